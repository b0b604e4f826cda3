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

    fn put_authority(&self, material: &[u8]) -> Result<(), StoreError> {
        let mut kept = self.kept();
        if kept.rejects_authority {
            return Err(StoreError::new("keep the authority", "disk full"));
        }
        kept.authority = Some(material.to_vec());
        Ok(())
    }

    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError> {
        Ok(self.kept().certificates.values().cloned().collect())
    }

    fn put_service_certificate(&self, certificate: &ServiceCertificate) -> Result<(), StoreError> {
        let mut kept = self.kept();
        if kept.rejected.as_ref() == Some(&certificate.account) {
            return Err(StoreError::new("keep a certificate", "disk full"));
        }
        kept.certificates.insert(certificate.account.clone(), certificate.clone());
        Ok(())
    }
}
