//! Authentication of stored values: HMAC-SHA-256 over the value and its place.
//!
//! A reader recognizes a value that was edited or moved to another place. The tag does not encrypt the value,
//! and cannot reveal that a value is missing or outdated (docs/decisions/0046).

use aws_lc_rs::{hkdf, hmac};

use crate::key::KeyEncryptionKey;

/// Length of a tag in bytes.
const TAG_LENGTH: usize = 32;

/// Authenticates values of one format of the store.
pub(crate) struct Authenticator {
    key: hmac::Key,
    format: u32,
}

impl Authenticator {
    /// The authenticator of this format, with a key derived from the key-encryption key.
    pub(crate) fn new(kek: &KeyEncryptionKey, format: u32) -> Result<Self, KeyDerivation> {
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, b"ironmesh-store").extract(kek.bytes());
        let key = derived
            .expand(&[b"record authentication"], hmac::HMAC_SHA256)
            .map_err(|_| KeyDerivation)?;
        Ok(Self { key: key.into(), format })
    }

    /// `value` as it is stored at the place `key` of `table`: its tag, then the value.
    pub(crate) fn tagged(&self, table: &str, key: &str, value: &[u8]) -> Vec<u8> {
        let mut context = self.context(table, key);
        context.update(value);
        [context.sign().as_ref(), value].concat()
    }

    /// The value of the stored bytes at this place; none if it is not authentic.
    pub(crate) fn verified<'a>(
        &self,
        table: &str,
        key: &str,
        stored: &'a [u8],
    ) -> Option<&'a [u8]> {
        let (tag, value) = stored.split_at_checked(TAG_LENGTH)?;
        let message = [self.place(table, key).as_slice(), value].concat();
        hmac::verify(&self.key, &message, tag).ok()?;
        Some(value)
    }

    fn context(&self, table: &str, key: &str) -> hmac::Context {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&self.place(table, key));
        context
    }

    /// The format and the place, encoded without ambiguity: each part is preceded by its length.
    fn place(&self, table: &str, key: &str) -> Vec<u8> {
        let mut place = self.format.to_be_bytes().to_vec();
        for part in [table, key] {
            place.extend_from_slice(&(part.len() as u64).to_be_bytes());
            place.extend_from_slice(part.as_bytes());
        }
        place
    }
}

/// No key could be derived.
#[derive(Debug, thiserror::Error)]
#[error("no key for the authentication of records can be derived")]
pub(crate) struct KeyDerivation;
