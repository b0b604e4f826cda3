//! All values of the embedded store at one moment: one read transaction, which later commits do not change.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use redb::{ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableHandle as _};

use crate::database::{Failure, Store, TABLES, Table};
use crate::embedded_codec::{Stored, version_key};
use crate::embedded_records::open_both;
use crate::export::{ExportError, LOCAL_TABLES, RecordSnapshot, SHARED_TABLES, SnapshotVisitor};
use crate::record_store::{RecordAddress, TableName};

/// The values of an embedded store at one moment.
pub struct StoreSnapshot {
    store: Arc<Store>,
    transaction: ReadTransaction,
}

impl StoreSnapshot {
    /// The values of the store now.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn new(store: Arc<Store>) -> Result<Arc<Self>, ExportError> {
        // The engine is not locked while the snapshot is read: a disk that fails is reopened meanwhile.
        let transaction = store.engine.read(|database| Ok(database.begin_read()?));
        let transaction = transaction.map_err(ExportError::Store)?;
        Ok(Arc::new(Self { store, transaction }))
    }

    /// Visits the values that one control plane keeps for itself. Those that are not authentic are omitted, as by their
    /// readers.
    pub(crate) fn visit_local(
        &self,
        mut visitor: impl FnMut(&Table, &str, &[u8]) -> io::Result<()>,
    ) -> Result<(), ExportError> {
        for (_, table) in LOCAL_TABLES {
            let values = self.transaction.open_table(table).map_err(failed)?;
            for entry in values.iter().map_err(failed)? {
                let (key, stored) = entry.map_err(failed)?;
                let (key, stored) = (key.value(), stored.value());
                if let Some(value) = self.store.authenticator.verified(table.name(), key, stored) {
                    visitor(&table, key, value).map_err(ExportError::Output)?;
                }
            }
        }
        Ok(())
    }

    /// Visits the records of one table, also those of which only the version is left.
    fn visit_table(
        &self,
        table: TableName,
        visitor: SnapshotVisitor<'_>,
    ) -> Result<Vec<RecordAddress>, ExportError> {
        let opened = open_both(&self.transaction, table).map_err(ExportError::Store)?;
        let Some((records, versions)) = opened else { return Ok(Vec::new()) };
        let mut keys = BTreeSet::new();
        for entry in records.iter().map_err(failed)? {
            keys.insert(entry.map_err(failed)?.0.value().to_owned());
        }
        let prefix = version_key(table, "");
        for entry in versions.range(prefix.as_str()..).map_err(failed)? {
            let (key, _) = entry.map_err(failed)?;
            let Some(key) = key.value().strip_prefix(&prefix) else { break };
            keys.insert(key.to_owned());
        }
        let mut refused = Vec::new();
        for key in keys {
            let stored = self.store.codec().read(table, &key, &records, &versions);
            match stored.map_err(ExportError::Store)? {
                Stored::Present(record) => {
                    visitor(table, &key, &record.value).map_err(ExportError::Output)?;
                }
                Stored::Refused => refused.push(RecordAddress { table, key }),
                Stored::Absent => {}
            }
        }
        Ok(refused)
    }
}

impl RecordSnapshot for StoreSnapshot {
    fn visit(&self, visitor: SnapshotVisitor<'_>) -> Result<Vec<RecordAddress>, ExportError> {
        for table in self.transaction.list_tables().map_err(failed)? {
            let is_own = TABLES.iter().any(|own| own.name() == table.name());
            if !is_own && !SHARED_TABLES.iter().any(|shared| shared.0 == table.name()) {
                return Err(ExportError::UnknownTable(table.name().to_owned()));
            }
        }
        let mut refused = Vec::new();
        for table in SHARED_TABLES {
            refused.extend(self.visit_table(table, visitor)?);
        }
        Ok(refused)
    }
}

impl fmt::Debug for StoreSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSnapshot").finish_non_exhaustive()
    }
}

fn failed(error: impl Into<Failure>) -> ExportError {
    ExportError::Store(error.into())
}
