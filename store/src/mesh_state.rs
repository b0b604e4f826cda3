//! The durable state that all control planes of a mesh share, in records: the names of the mesh, certificates, TCP
//! accesses, certificate revocation lists, the journal.
//!
//! Join records and tokens are in the same store of records, and their users keep their tables themselves. What one
//! control plane can read again from its sources is not here: policies and endpoints are in its own [`crate::Store`].

use std::sync::Arc;

use ironmesh_catalog::{Domain, RevocationLists, StoreError, TrustDomain};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::database::Failure;
use crate::journal::JournalIndex;
use crate::record_store::{
    ExpectedVersion, RecordBytes, RecordChange, RecordError, RecordStore, RecordVersion, TableName,
    Versioned,
};

/// The domain and the trust domain.
pub(crate) const MESH: TableName = TableName("mesh");
pub(crate) const REVOCATION_LISTS: TableName = TableName("revocation_lists");

/// The one key of a table with one record.
pub(crate) const CURRENT: &str = "current";

/// The state that all control planes of a mesh share.
#[derive(Debug)]
pub struct MeshState {
    pub(crate) records: Arc<dyn RecordStore>,
    /// The numbers of the stored journal entries; none before the first append.
    pub(crate) journal_index: Mutex<Option<JournalIndex>>,
}

impl MeshState {
    /// The state in this store of records.
    pub fn new(records: Arc<dyn RecordStore>) -> Arc<Self> {
        Arc::new(Self { records, journal_index: Mutex::default() })
    }

    /// The domain and the trust domain of the mesh, since its first start. The caller compares them with the
    /// settings.
    ///
    /// # Errors
    ///
    /// Fails if the stored names are not authentic. They have no default: they are in all certificates, and in all
    /// bootstraps.
    pub fn mesh(&self) -> Result<Option<(Domain, TrustDomain)>, StoreError> {
        let read = || -> Result<_, Failure> {
            let stored = self.indispensable(MESH, "names")?;
            Ok(stored.map(|value| serde_json::from_slice(&value)).transpose()?)
        };
        read().map_err(|e| StoreError::new("read the mesh identity", e))
    }

    /// Stores the domain and the trust domain of the mesh. They can never change, since every certificate and
    /// every proxy's bootstrap contains them.
    pub fn put_mesh(&self, domain: &Domain, trust_domain: &TrustDomain) -> Result<(), StoreError> {
        const OPERATION: &str = "store the mesh identity";
        if self.mesh()?.is_none() {
            let names = json(&(domain, trust_domain)).map_err(|e| StoreError::new(OPERATION, e))?;
            let stored = self.replace(MESH, CURRENT, ExpectedVersion::Absent, names);
            // Another control plane of a new mesh may have been faster.
            if stored.map_err(|e| StoreError::new(OPERATION, e))? {
                return Ok(());
            }
        }
        match self.mesh()? {
            None => Err(StoreError::new(OPERATION, "it was removed meanwhile")),
            Some((d, t)) if (&d, &t) == (domain, trust_domain) => Ok(()),
            Some((d, t)) => Err(StoreError::new(
                OPERATION,
                format!("it is fixed since the first start: domain `{d}`, trust domain `{t}`"),
            )),
        }
    }

    /// Stores new certificate revocation lists in place of `old`, before peers get them. Returns whether it does: not if
    /// another control plane has stored different ones first. Lists that are not authentic are replaced.
    pub fn replace_revocation_lists(
        &self,
        old: Option<&RevocationLists>,
        new: &RevocationLists,
    ) -> Result<bool, StoreError> {
        let replace = || -> Result<_, Failure> {
            let version = match self.records.get(REVOCATION_LISTS, CURRENT) {
                Ok(stored) => {
                    let found: Option<RevocationLists> = stored
                        .as_ref()
                        .map(|stored| serde_json::from_slice(&stored.value))
                        .transpose()?;
                    if found.as_ref() != old {
                        return Ok(false);
                    }
                    expected(stored.map(|stored| stored.version))
                }
                Err(_) if self.records.quarantined(REVOCATION_LISTS).contains(CURRENT) => {
                    ExpectedVersion::Any
                }
                Err(error) => return Err(error.into()),
            };
            self.replace(REVOCATION_LISTS, CURRENT, version, json(new)?)
        };
        replace().map_err(|e| StoreError::new("store the certificate revocation lists", e))
    }

    /// The certificate revocation lists that were signed last; none if they are not authentic.
    pub fn revocation_lists(&self) -> Result<Option<RevocationLists>, StoreError> {
        self.get_json(REVOCATION_LISTS, CURRENT)
            .map_err(|e| StoreError::new("read the certificate revocation lists", e))
    }

    /// The value of a record that has no default: if it is not authentic, that is an error.
    pub(crate) fn indispensable(
        &self,
        table: TableName,
        what: &str,
    ) -> Result<Option<RecordBytes>, Failure> {
        Ok(self.indispensable_record(table, what)?.map(|stored| stored.value))
    }

    /// The same, with its version.
    pub(crate) fn indispensable_record(
        &self,
        table: TableName,
        what: &str,
    ) -> Result<Option<Versioned<RecordBytes>>, Failure> {
        match self.records.get(table, CURRENT) {
            Ok(stored) => Ok(stored),
            Err(RecordError::Corrupt(_)) => Err(format!(
                "the stored {what} were changed or removed outside of `ironmesh serve`, or are older than the rest: restore the state folder from your backup"
            )
            .into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The value of a record; none if it is quarantined.
    pub(crate) fn get_json<T: DeserializeOwned>(
        &self,
        table: TableName,
        key: &str,
    ) -> Result<Option<T>, Failure> {
        match self.records.get(table, key) {
            Ok(None) => Ok(None),
            Ok(Some(stored)) => Ok(Some(serde_json::from_slice(&stored.value)?)),
            Err(_) if self.records.quarantined(table).contains(key) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores a value in place of one of this version. Returns whether it does: not if the record has a different version now.
    pub(crate) fn replace(
        &self,
        table: TableName,
        key: &str,
        expected: ExpectedVersion,
        value: RecordBytes,
    ) -> Result<bool, Failure> {
        let change = RecordChange { table, key: key.to_owned(), expected, value: Some(value) };
        match self.records.commit(&[change]) {
            Ok(_) => Ok(true),
            Err(RecordError::Conflict(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The expectation that a record still has this version, or is still absent.
pub(crate) fn expected(version: Option<RecordVersion>) -> ExpectedVersion {
    version.map_or(ExpectedVersion::Absent, ExpectedVersion::Exactly)
}

/// Stores a value in place of any.
pub(crate) fn put(table: TableName, key: impl Into<String>, value: RecordBytes) -> RecordChange {
    RecordChange { table, key: key.into(), expected: ExpectedVersion::Any, value: Some(value) }
}

/// Removes any value.
pub(crate) fn remove(table: TableName, key: impl Into<String>) -> RecordChange {
    RecordChange { table, key: key.into(), expected: ExpectedVersion::Any, value: None }
}

pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<RecordBytes, Failure> {
    Ok(Zeroizing::new(serde_json::to_vec(value)?))
}
