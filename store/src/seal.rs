//! Sealing: AES-256-GCM over single values of the database.
//!
//! It knows no table and no record. A sealed value is bound to its place, so that it cannot replace another.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use zeroize::Zeroizing;

use crate::key::KeyEncryptionKey;

/// The cipher that seals and opens values.
pub(crate) struct Sealer {
    key: LessSafeKey,
}

impl Sealer {
    pub(crate) fn new(key: &KeyEncryptionKey) -> Result<Self, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, key.bytes()).map_err(|_| SealError::Cipher)?;
        Ok(Self { key: LessSafeKey::new(key) })
    }

    /// Seals `plain` for the place `key` of `table`: the result is the nonce, then the ciphertext and its
    /// tag.
    ///
    /// The nonce is random. At a few hundred thousand certificates a day, it would take decades to reach the
    /// 2^32 values that one key may seal so (NIST SP 800-38D, section 8.3).
    pub(crate) fn seal(&self, table: &str, key: &str, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).map_err(|_| SealError::Random)?;
        // Memory for the tag too: growth would leave a copy of the plain text in memory.
        let capacity = plain.len() + AES_256_GCM.tag_len();
        let mut sealed = Zeroizing::new(Vec::with_capacity(capacity));
        sealed.extend_from_slice(plain);
        let place = Aad::from(place(table, key));
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), place, &mut *sealed)
            .map_err(|_| SealError::Cipher)?;
        Ok([&nonce, sealed.as_slice()].concat())
    }

    /// Opens a value that [`Self::seal`] sealed for the same place under the same key.
    pub(crate) fn unseal(
        &self,
        table: &str,
        key: &str,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (nonce, sealed) = sealed.split_first_chunk().ok_or(SealError::NotAuthentic)?;
        let mut opened = Zeroizing::new(sealed.to_vec());
        let place = Aad::from(place(table, key));
        let length = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), place, &mut opened)
            .map_err(|_| SealError::NotAuthentic)?
            .len();
        opened.truncate(length);
        Ok(opened)
    }
}

/// A value could not be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error("sealed value does not open: it was changed, moved, or sealed under another key")]
    NotAuthentic,
    #[error("no random bytes for a nonce")]
    Random,
    #[error("cipher rejected its input")]
    Cipher,
}

/// The place to which a sealed value is bound. Table names have no NUL, so no two places are encoded alike.
fn place(table: &str, key: &str) -> Vec<u8> {
    format!("ironmesh-store\0{table}\0{key}").into_bytes()
}
