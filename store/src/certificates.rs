//! The storage of certificates, as records whose store seals what has private keys.
//!
//! It never parses a certificate.

use ironmesh_catalog::{CertificateStore, ServiceCertificate, StoreError};
use zeroize::Zeroizing;

use crate::database::Failure;
use crate::mesh_state::{CURRENT, MeshState, json, put};
use crate::record_store::TableName;

/// The material of the certificate authority.
pub(crate) const AUTHORITY: TableName = TableName("authority");
/// The service certificates by account.
pub(crate) const SERVICE_CERTIFICATES: TableName = TableName("service_certificates");

impl CertificateStore for MeshState {
    fn authority(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let stored = self.indispensable(AUTHORITY, "keys of the authority");
        let stored = stored.map_err(|e| StoreError::new("read the certificate authority", e))?;
        Ok(stored.map(|value| value.to_vec()))
    }

    fn put_authority(&self, material: &[u8]) -> Result<(), StoreError> {
        let change = put(AUTHORITY, CURRENT, Zeroizing::new(material.to_vec()));
        let stored = self.records.commit(&[change]);
        stored.map(drop).map_err(|e| StoreError::new("keep the certificate authority", e))
    }

    /// Those that are not authentic are omitted: the caller issues them again.
    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError> {
        let read = || -> Result<_, Failure> {
            let stored = self.records.list(SERVICE_CERTIFICATES)?.into_iter();
            Ok(stored
                .map(|(_, one)| serde_json::from_slice(&one.value))
                .collect::<Result<_, _>>()?)
        };
        read().map_err(|e| StoreError::new("read the service certificates", e))
    }

    fn put_service_certificate(&self, certificate: &ServiceCertificate) -> Result<(), StoreError> {
        let account = certificate.account.to_string();
        let write = || -> Result<_, Failure> {
            let change = put(SERVICE_CERTIFICATES, account.as_str(), json(certificate)?);
            self.records.commit(&[change])?;
            Ok(())
        };
        write().map_err(|e| StoreError::new(format!("keep the certificate of `{account}`"), e))
    }
}
