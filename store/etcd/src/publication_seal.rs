//! The seal of what the leader of an election publishes: that of the records of the mesh, bound to the key of etcd.

use std::fmt;
use std::sync::Arc;

use ironmesh_etcd::PublicationSeal;
use ironmesh_store::RecordVersion;

use crate::shared::Shared;
use crate::store::EtcdStore;

struct StoreSeal(Arc<Shared>);

impl EtcdStore {
    /// The seal of publications, which control planes of this mesh alone can make.
    pub fn publication_seal(&self) -> Arc<dyn PublicationSeal> {
        Arc::new(StoreSeal(Arc::clone(&self.shared)))
    }
}

impl PublicationSeal for StoreSeal {
    fn seal(&self, key: &str, version: u64, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.cipher.seal(key, RecordVersion(version), plain).ok()
    }

    fn open(&self, key: &str, sealed: &[u8]) -> Option<(u64, Vec<u8>)> {
        let (version, plain) = self.0.cipher.open(key, sealed).ok()?;
        Some((version.0, plain.to_vec()))
    }
}

impl fmt::Debug for StoreSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSeal")
    }
}
