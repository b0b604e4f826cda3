//! The canary: the first record of a mesh, which tells its identity, and whether the key-encryption key is its own.
//!
//! The identity of the mesh precedes the sealed part, since the keys of the mesh are derived with it.

use ironmesh_store::{
    CipherFault, KeyEncryptionKey, MeshId, RecordCipher, RecordVersion, SealedFault,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::layout::Layout;

const VERSION: RecordVersion = RecordVersion(0);

/// What the canary says of its mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Canary {
    /// The name of the mesh, as in the settings.
    pub(crate) mesh: String,
    pub(crate) created_at: Timestamp,
    /// Whether an import is writing the store, which nothing else may use before it is complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_importing: bool,
}

impl Canary {
    /// The value of the key of the canary.
    pub(crate) fn seal(
        &self,
        cipher: &RecordCipher,
        layout: &Layout,
    ) -> Result<Vec<u8>, CipherFault> {
        let json = serde_json::to_vec(self).map_err(|_| CipherFault)?;
        let sealed = cipher.seal(layout.canary(), VERSION, &json)?;
        Ok([cipher.mesh().as_bytes().as_slice(), &sealed].concat())
    }

    /// The canary of a value of its key, and the cipher of its mesh.
    pub(crate) fn open(
        kek: &KeyEncryptionKey,
        layout: &Layout,
        value: &[u8],
    ) -> Result<(Self, RecordCipher), SealedFault> {
        let (mesh, sealed) = value.split_first_chunk().ok_or(SealedFault::NotAuthentic)?;
        let cipher = RecordCipher::new(kek, MeshId::from_bytes(*mesh))
            .map_err(|_| SealedFault::NotAuthentic)?;
        let (_, json) = cipher.open(layout.canary(), sealed)?;
        let canary = serde_json::from_slice(&json).map_err(|_| SealedFault::NotAuthentic)?;
        Ok((canary, cipher))
    }
}
