//! The storage of certificates: every value with a private key is sealed as a whole.
//!
//! It never parses a certificate.

use ironmesh_catalog::{CertificateStore, ServiceCertificate, StoreError};
use redb::TableHandle as _;
use zeroize::Zeroizing;

use crate::database::{AUTHORITY, Failure, SERVICE_CERTIFICATES, Store};

/// The one key in the authority's table.
const CURRENT: &str = "current";

impl CertificateStore for Store {
    fn authority(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let read = || -> Result<_, Failure> {
            let Some(sealed) = self.get_raw(AUTHORITY, CURRENT)? else { return Ok(None) };
            Ok(Some(self.unseal(AUTHORITY, CURRENT, &sealed)?.to_vec()))
        };
        read().map_err(|e| StoreError::new("read the certificate authority", e))
    }

    fn put_authority(&self, material: &[u8]) -> Result<(), StoreError> {
        self.put_sealed(AUTHORITY, CURRENT, material)
            .map_err(|e| StoreError::new("keep the certificate authority", e))
    }

    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError> {
        let read = || -> Result<_, Failure> {
            let mut certificates = Vec::new();
            for (account, sealed) in self.all_raw(SERVICE_CERTIFICATES)? {
                // The caller issues a certificate again if the stored one does not open.
                match self.unseal(SERVICE_CERTIFICATES, &account, &sealed) {
                    Ok(json) => certificates.push(serde_json::from_slice(&json)?),
                    Err(_) => self.quarantine.lock().add(SERVICE_CERTIFICATES.name(), &account),
                }
            }
            Ok(certificates)
        };
        read().map_err(|e| StoreError::new("read the service certificates", e))
    }

    fn put_service_certificate(&self, certificate: &ServiceCertificate) -> Result<(), StoreError> {
        let account = certificate.account.to_string();
        let write = || -> Result<_, Failure> {
            let json = Zeroizing::new(serde_json::to_vec(certificate)?);
            self.put_sealed(SERVICE_CERTIFICATES, &account, &json)
        };
        write().map_err(|e| StoreError::new(format!("keep the certificate of `{account}`"), e))
    }
}
