//! The key of exports, and the cipher of one export.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf;
use zeroize::Zeroizing;

use crate::authentic::expand;
use crate::identity::KeyId;
use crate::key::KeyEncryptionKey;
use crate::record_cipher::CipherFault;

/// Seals and opens the exports of a mesh. It is derived from the key-encryption key, and opens nothing but exports.
pub struct ExportKey {
    secret: Zeroizing<[u8; KeyEncryptionKey::LENGTH]>,
    id: KeyId,
}

impl ExportKey {
    /// The key of the exports of a mesh with this key-encryption key.
    ///
    /// # Errors
    ///
    /// Fails if no key can be derived.
    pub fn new(kek: &KeyEncryptionKey) -> Result<Self, CipherFault> {
        let mut secret = Zeroizing::new([0; KeyEncryptionKey::LENGTH]);
        expand(kek, b"export of a mesh", &mut *secret)?;
        Ok(Self { secret, id: KeyId::of(kek)? })
    }

    /// The identity of the key-encryption key.
    pub(crate) fn id(&self) -> KeyId {
        self.id
    }

    /// The cipher of the one export with this header, which has random bytes. Its nonces can therefore be numbers.
    pub(crate) fn cipher(&self, header: &[u8]) -> Result<LessSafeKey, CipherFault> {
        struct Length;
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                KeyEncryptionKey::LENGTH
            }
        }
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, header).extract(&*self.secret);
        let mut key = Zeroizing::new([0; KeyEncryptionKey::LENGTH]);
        let info = [b"export".as_slice()];
        derived
            .expand(&info, Length)
            .and_then(|okm| okm.fill(&mut *key))
            .map_err(|_| CipherFault)?;
        let key = UnboundKey::new(&AES_256_GCM, &*key).map_err(|_| CipherFault)?;
        Ok(LessSafeKey::new(key))
    }
}

impl fmt::Debug for ExportKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportKey").field("id", &self.id).finish_non_exhaustive()
    }
}
