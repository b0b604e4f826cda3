//! The protection of records in a store that others can read and write, such as etcd: AES-256-GCM over each value,
//! bound to its key, its version and its mesh.
//!
//! A value that was edited, moved to another key, given another version or taken from another mesh does not open.
//! Alone, the cipher cannot reveal an older value at the same key, nor a missing one: [`crate::SetDigest`] does.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{digest, hmac, rand};
use zeroize::Zeroizing;

use crate::authentic::{KeyDerivation, derive, expand};
use crate::identity::{KeyId, MeshId};
use crate::key::KeyEncryptionKey;
use crate::record_store::{RecordBytes, RecordVersion};
use crate::set_digest::SetElement;

/// Seals and opens the records of one mesh.
pub struct RecordCipher {
    cipher: LessSafeKey,
    elements: hmac::Key,
    key_id: KeyId,
    mesh: MeshId,
}

/// Why a sealed value does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealedFault {
    /// It was sealed under another key-encryption key.
    #[error("it was sealed by another key-encryption key (id {0})")]
    OtherKey(KeyId),
    /// A newer version of this program sealed it.
    #[error("it has the format {0}, and this version supports formats up to {FORMAT}")]
    NewerFormat(u8),
    /// It was changed, moved, or never sealed.
    #[error("it was changed, moved from another place, or never sealed")]
    NotAuthentic,
}

/// A value could not be sealed, or a key not be derived.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("no random bytes, or a cipher that rejects its input")]
pub struct CipherFault;

/// The format of sealed values: `format 1 | key id 8 | version 8 | nonce 12 | ciphertext and tag`, numbers big-endian.
const FORMAT: u8 = 1;
const HEADER: usize = 1 + 8 + 8 + NONCE_LEN;

impl RecordCipher {
    /// The cipher of the mesh with this identity.
    ///
    /// # Errors
    ///
    /// Fails if no keys can be derived.
    pub fn new(kek: &KeyEncryptionKey, mesh: MeshId) -> Result<Self, CipherFault> {
        let purpose = |purpose: &'static str| [purpose.as_bytes(), mesh.as_bytes()].concat();
        let mut key = Zeroizing::new([0; KeyEncryptionKey::LENGTH]);
        expand(kek, &purpose("shared records"), &mut *key)?;
        let key = UnboundKey::new(&AES_256_GCM, &*key).map_err(|_| CipherFault)?;
        Ok(Self {
            cipher: LessSafeKey::new(key),
            elements: derive(kek, &purpose("elements of shared records"))?,
            key_id: KeyId::of(kek)?,
            mesh,
        })
    }

    /// The mesh whose records it seals.
    pub fn mesh(&self) -> MeshId {
        self.mesh
    }

    /// Seals `plain` as the value of `key` with this version.
    ///
    /// The nonce is random: one key may seal 2^32 values (NIST SP 800-38D, section 8.3). At thirty commits a second,
    /// that is over four years.
    ///
    /// # Errors
    ///
    /// Fails if there are no random bytes.
    pub fn seal(
        &self,
        key: &str,
        version: RecordVersion,
        plain: &[u8],
    ) -> Result<Vec<u8>, CipherFault> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).map_err(|_| CipherFault)?;
        // Memory for the tag too: growth would leave a copy of the plain text in memory.
        let mut sealed = Zeroizing::new(Vec::with_capacity(plain.len() + AES_256_GCM.tag_len()));
        sealed.extend_from_slice(plain);
        let place = Aad::from(self.place(key, version));
        self.cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), place, &mut *sealed)
            .map_err(|_| CipherFault)?;
        let version = version.0.to_be_bytes();
        Ok([&[FORMAT][..], self.key_id.as_bytes(), &version, &nonce, &sealed].concat())
    }

    /// Opens the value of `key`. Returns it with the version under which it was sealed.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the value is not authentic at this key.
    pub fn open(
        &self,
        key: &str,
        sealed: &[u8],
    ) -> Result<(RecordVersion, RecordBytes), SealedFault> {
        let (header, sealed) =
            sealed.split_first_chunk::<HEADER>().ok_or(SealedFault::NotAuthentic)?;
        let Header { format, key_id, version, nonce } = Header::read(header);
        if format != FORMAT {
            let is_newer = format > FORMAT;
            return Err(if is_newer {
                SealedFault::NewerFormat(format)
            } else {
                SealedFault::NotAuthentic
            });
        }
        if key_id != self.key_id {
            return Err(SealedFault::OtherKey(key_id));
        }
        let mut opened = Zeroizing::new(sealed.to_vec());
        let place = Aad::from(self.place(key, version));
        let length = self
            .cipher
            .open_in_place(Nonce::assume_unique_for_key(nonce), place, &mut opened)
            .map_err(|_| SealedFault::NotAuthentic)?
            .len();
        opened.truncate(length);
        Ok((version, opened))
    }

    /// The element of a sealed value in the digest of all records. Two values that were sealed for the same key and
    /// version have different ones.
    pub fn element(&self, key: &str, version: RecordVersion, sealed: &[u8]) -> SetElement {
        let value = digest::digest(&digest::SHA256, sealed);
        let mut context = hmac::Context::with_key(&self.elements);
        for part in [key.as_bytes(), &version.0.to_be_bytes(), value.as_ref()] {
            update(&mut context, part);
        }
        SetElement::from_tag(context.sign().as_ref())
    }

    /// What a value is bound to: each part is preceded by its length.
    fn place(&self, key: &str, version: RecordVersion) -> Vec<u8> {
        let mut place = Vec::new();
        for part in [
            b"ironmesh shared record".as_slice(),
            &[FORMAT],
            self.key_id.as_bytes(),
            self.mesh.as_bytes(),
            key.as_bytes(),
            &version.0.to_be_bytes(),
        ] {
            place.extend_from_slice(&(part.len() as u64).to_be_bytes());
            place.extend_from_slice(part);
        }
        place
    }
}

fn update(context: &mut hmac::Context, part: &[u8]) {
    context.update(&(part.len() as u64).to_be_bytes());
    context.update(part);
}

/// What precedes the ciphertext.
struct Header {
    format: u8,
    key_id: KeyId,
    version: RecordVersion,
    nonce: [u8; NONCE_LEN],
}

impl Header {
    fn read(bytes: &[u8; HEADER]) -> Self {
        let (mut key_id, mut version, mut nonce) = ([0; KeyId::LENGTH], [0; 8], [0; NONCE_LEN]);
        key_id.copy_from_slice(&bytes[1..9]);
        version.copy_from_slice(&bytes[9..17]);
        nonce.copy_from_slice(&bytes[17..]);
        let version = RecordVersion(u64::from_be_bytes(version));
        Self { format: bytes[0], key_id: KeyId::from_bytes(key_id), version, nonce }
    }
}

impl fmt::Debug for RecordCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordCipher").field("mesh", &self.mesh).finish_non_exhaustive()
    }
}

impl From<KeyDerivation> for CipherFault {
    fn from(_: KeyDerivation) -> Self {
        Self
    }
}
