//! The storage of certificates, as records whose store seals what has private keys.
//!
//! It never parses a certificate.

use ironmesh_catalog::{
    CertificateStore, RenewedCertificate, ServiceAccount, ServiceCertificate, StoreError,
};
use zeroize::Zeroizing;

use crate::database::Failure;
use crate::mesh_state::{CURRENT, MeshState, expected, json};
use crate::record_store::{
    ExpectedVersion, MAX_COMMIT_CHANGES, RecordChange, RecordError, TableName,
};

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

    fn replace_authority(&self, old: Option<&[u8]>, new: &[u8]) -> Result<bool, StoreError> {
        let replace = || -> Result<_, Failure> {
            // Material that is not authentic is an error, and never replaced.
            let stored = self.indispensable_record(AUTHORITY, "keys of the authority")?;
            if stored.as_ref().map(|stored| stored.value.as_slice()) != old {
                return Ok(false);
            }
            let expected = expected(stored.map(|stored| stored.version));
            self.replace(AUTHORITY, CURRENT, expected, Zeroizing::new(new.to_vec()))
        };
        replace().map_err(|e| StoreError::new("keep the certificate authority", e))
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

    fn service_certificate(
        &self,
        account: &ServiceAccount,
    ) -> Result<Option<ServiceCertificate>, StoreError> {
        let account = account.to_string();
        self.get_json(SERVICE_CERTIFICATES, &account)
            .map_err(|e| StoreError::new(format!("read the certificate of `{account}`"), e))
    }

    fn replace_service_certificate(
        &self,
        old: Option<&ServiceCertificate>,
        new: &ServiceCertificate,
    ) -> Result<bool, StoreError> {
        let replace = || -> Result<_, Failure> {
            let Some(change) = self.renewal(old, new)? else { return Ok(false) };
            match self.records.commit(&[change]) {
                Ok(_) => Ok(true),
                Err(RecordError::Conflict(_)) => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        replace()
            .map_err(|e| StoreError::new(format!("keep the certificate of `{}`", new.account), e))
    }

    /// Those of many accounts are few commits. If one of these fails, each of its certificates is a commit of its own.
    fn replace_service_certificates(
        &self,
        renewed: &[RenewedCertificate],
    ) -> Vec<Result<bool, StoreError>> {
        let mut results = Vec::with_capacity(renewed.len());
        for part in renewed.chunks(MAX_RENEWED) {
            let changes: Result<Vec<_>, Failure> =
                part.iter().map(|one| self.renewal(one.old.as_deref(), &one.new)).collect();
            let changes =
                changes.ok().and_then(|changes| changes.into_iter().collect::<Option<Vec<_>>>());
            if changes.is_some_and(|changes| self.records.commit(&changes).is_ok()) {
                results.extend(part.iter().map(|_| Ok(true)));
            } else {
                let each = |one: &RenewedCertificate| {
                    self.replace_service_certificate(one.old.as_deref(), &one.new)
                };
                results.extend(part.iter().map(each));
            }
        }
        results
    }
}

/// The most certificates of one commit: so many that it stays below the limit of bytes, with their keys and chains.
const MAX_RENEWED: usize = MAX_COMMIT_CHANGES / 2;

impl MeshState {
    /// The change that replaces the certificate of an account; none if the stored one is not `old`. One that is not
    /// authentic is replaced.
    fn renewal(
        &self,
        old: Option<&ServiceCertificate>,
        new: &ServiceCertificate,
    ) -> Result<Option<RecordChange>, Failure> {
        let account = new.account.to_string();
        let expected = match self.records.get(SERVICE_CERTIFICATES, &account) {
            Ok(stored) => {
                let found: Option<ServiceCertificate> = stored
                    .as_ref()
                    .map(|stored| serde_json::from_slice(&stored.value))
                    .transpose()?;
                if found.as_ref().map(|found| &found.serial) != old.map(|old| &old.serial) {
                    return Ok(None);
                }
                expected(stored.map(|stored| stored.version))
            }
            Err(_) if self.records.quarantined(SERVICE_CERTIFICATES).contains(&account) => {
                ExpectedVersion::Any
            }
            Err(error) => return Err(error.into()),
        };
        let value = Some(json(new)?);
        Ok(Some(RecordChange { table: SERVICE_CERTIFICATES, key: account, expected, value }))
    }
}
