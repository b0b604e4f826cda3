//! Authentication of stored values: HMAC-SHA-256 over the value and its place.
//!
//! A reader recognizes a value that was edited or moved to another place. The tag of a record covers its version too.
//! A tag does not encrypt the value, and cannot reveal alone that a value is missing or outdated
//! (docs/decisions/0046, 0060).

use aws_lc_rs::{hkdf, hmac};

use crate::key::KeyEncryptionKey;
use crate::record_store::RecordVersion;

/// Length of a tag in bytes.
const TAG_LENGTH: usize = 32;

/// The format of the store that introduced the tags of values. Later formats have the same.
const VALUES: u32 = 2;
/// The format of the store that introduced the tags of records with versions.
const RECORDS: u32 = 3;

/// Authenticates stored values.
pub(crate) struct Authenticator {
    key: hmac::Key,
}

impl Authenticator {
    /// The authenticator with a key derived from the key-encryption key.
    pub(crate) fn new(kek: &KeyEncryptionKey) -> Result<Self, KeyDerivation> {
        Ok(Self { key: derive(kek, b"record authentication")? })
    }

    /// `value` as it is stored at the place `key` of `table`: its tag, then the value.
    pub(crate) fn tagged(&self, table: &str, key: &str, value: &[u8]) -> Vec<u8> {
        self.sign(&place(VALUES, table, key), value)
    }

    /// The value of the stored bytes at this place; none if it is not authentic.
    pub(crate) fn verified<'a>(
        &self,
        table: &str,
        key: &str,
        stored: &'a [u8],
    ) -> Option<&'a [u8]> {
        self.verify(&place(VALUES, table, key), stored)
    }

    /// A record as it is stored at this place: the tag of its version and value, then both.
    pub(crate) fn tagged_version(
        &self,
        table: &str,
        key: &str,
        version: RecordVersion,
        value: &[u8],
    ) -> Vec<u8> {
        let versioned = [version.0.to_be_bytes().as_slice(), value].concat();
        self.sign(&place(RECORDS, table, key), &versioned)
    }

    /// The version and value of the stored record at this place; none if it is not authentic.
    pub(crate) fn verified_version<'a>(
        &self,
        table: &str,
        key: &str,
        stored: &'a [u8],
    ) -> Option<(RecordVersion, &'a [u8])> {
        let versioned = self.verify(&place(RECORDS, table, key), stored)?;
        let (version, value) = versioned.split_first_chunk()?;
        Some((RecordVersion(u64::from_be_bytes(*version)), value))
    }

    fn sign(&self, place: &[u8], value: &[u8]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(place);
        context.update(value);
        [context.sign().as_ref(), value].concat()
    }

    fn verify<'a>(&self, place: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
        let (tag, value) = stored.split_at_checked(TAG_LENGTH)?;
        hmac::verify(&self.key, &[place, value].concat(), tag).ok()?;
        Some(value)
    }
}

/// The format and the place, encoded without ambiguity: each part is preceded by its length.
fn place(format: u32, table: &str, key: &str) -> Vec<u8> {
    let mut place = format.to_be_bytes().to_vec();
    for part in [table, key] {
        place.extend_from_slice(&(part.len() as u64).to_be_bytes());
        place.extend_from_slice(part.as_bytes());
    }
    place
}

/// A key of authentication for one purpose, derived from the key-encryption key.
pub(crate) fn derive(kek: &KeyEncryptionKey, purpose: &[u8]) -> Result<hmac::Key, KeyDerivation> {
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(kek.bytes());
    let purpose = [purpose];
    let key = derived.expand(&purpose, hmac::HMAC_SHA256).map_err(|_| KeyDerivation)?;
    Ok(key.into())
}

/// Fills `bytes` for one purpose, derived from the key-encryption key.
pub(crate) fn expand(
    kek: &KeyEncryptionKey,
    purpose: &[u8],
    bytes: &mut [u8],
) -> Result<(), KeyDerivation> {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(kek.bytes());
    let purpose = [purpose];
    let key = derived.expand(&purpose, Length(bytes.len())).map_err(|_| KeyDerivation)?;
    key.fill(bytes).map_err(|_| KeyDerivation)
}

const SALT: &[u8] = b"ironmesh-store";

/// No key could be derived.
#[derive(Debug, thiserror::Error)]
#[error("no key for the authentication of records can be derived")]
pub(crate) struct KeyDerivation;
