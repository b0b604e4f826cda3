//! A certificate store without a disk, for the tests of this crate.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use ironmesh_catalog::{CertificateStore, ServiceAccount, ServiceCertificate, StoreError};

/// Keeps everything in memory, and fails on a test's command.
#[derive(Default)]
pub(crate) struct MemoryStore(Mutex<Kept>);

#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) certificates: BTreeMap<ServiceAccount, ServiceCertificate>,
    /// The account whose certificate it fails to store.
    pub(crate) rejected: Option<ServiceAccount>,
    pub(crate) rejects_authority: bool,
}

impl MemoryStore {
    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap()
    }
}

impl CertificateStore for MemoryStore {
    fn authority(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.kept().authority.clone())
    }

    fn replace_authority(&self, old: Option<&[u8]>, new: &[u8]) -> Result<bool, StoreError> {
        let mut kept = self.kept();
        if kept.rejects_authority {
            return Err(StoreError::new("keep the authority", "disk full"));
        }
        let is_current = kept.authority.as_deref() == old;
        if is_current {
            kept.authority = Some(new.to_vec());
        }
        Ok(is_current)
    }

    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError> {
        Ok(self.kept().certificates.values().cloned().collect())
    }

    fn service_certificate(
        &self,
        account: &ServiceAccount,
    ) -> Result<Option<ServiceCertificate>, StoreError> {
        Ok(self.kept().certificates.get(account).cloned())
    }

    fn replace_service_certificate(
        &self,
        old: Option<&ServiceCertificate>,
        new: &ServiceCertificate,
    ) -> Result<bool, StoreError> {
        let mut kept = self.kept();
        if kept.rejected.as_ref() == Some(&new.account) {
            return Err(StoreError::new("keep a certificate", "disk full"));
        }
        let stored = kept.certificates.get(&new.account).map(|stored| &stored.serial);
        let is_current = stored == old.map(|old| &old.serial);
        if is_current {
            kept.certificates.insert(new.account.clone(), new.clone());
        }
        Ok(is_current)
    }
}
