//! The identities of a mesh and of a key-encryption key, which sealed records name.

use std::fmt;

use aws_lc_rs::rand;

use crate::authentic::expand;
use crate::key::KeyEncryptionKey;
use crate::record_cipher::CipherFault;

/// The identity of a mesh: random, and made when its store is initialized.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MeshId([u8; 16]);

/// Distinguishes key-encryption keys, and reveals nothing of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyId([u8; 8]);

impl MeshId {
    /// A new identity.
    ///
    /// # Errors
    ///
    /// Fails if there are no random bytes.
    pub fn generate() -> Result<Self, CipherFault> {
        let mut bytes = [0; 16];
        rand::fill(&mut bytes).map_err(|_| CipherFault)?;
        Ok(Self(bytes))
    }

    /// The identity with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl KeyId {
    /// The number of bytes of an identity.
    pub const LENGTH: usize = 8;

    /// The identity of a key.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be derived.
    pub fn of(kek: &KeyEncryptionKey) -> Result<Self, CipherFault> {
        let mut id = [0; Self::LENGTH];
        expand(kek, b"identity of the key-encryption key", &mut id)?;
        Ok(Self(id))
    }

    /// The identity with these bytes.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl fmt::Display for MeshId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MeshId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeshId({self})")
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}
