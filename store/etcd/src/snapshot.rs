//! All records of the mesh at one moment, for an export: the sealed values of the mirror, which later commits do not change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ironmesh_store::{
    ExportError, RecordAddress, RecordSnapshot, SHARED_TABLES, SnapshotVisitor, TableName,
};

use crate::records::{RecordKey, SealedRecord};
use crate::shared::Shared;
use crate::store::EtcdStore;

/// The records of the mesh at one moment.
struct EtcdSnapshot {
    shared: Arc<Shared>,
    records: BTreeMap<RecordKey, SealedRecord>,
}

impl EtcdStore {
    /// The records of the mesh now.
    ///
    /// # Errors
    ///
    /// Fails with the reason while etcd cannot be used: other control planes may have stored what this one does not know.
    pub fn snapshot(&self) -> Result<Arc<dyn RecordSnapshot>, ExportError> {
        if let Some(problem) = self.condition().blocked() {
            return Err(ExportError::Store(problem.into()));
        }
        let records = self.shared.view.lock().mirror.records().clone().into_all();
        Ok(Arc::new(EtcdSnapshot { shared: Arc::clone(&self.shared), records }))
    }
}

impl RecordSnapshot for EtcdSnapshot {
    fn visit(&self, visitor: SnapshotVisitor<'_>) -> Result<Vec<RecordAddress>, ExportError> {
        let layout = self.shared.view.lock().mirror.layout().clone();
        for (place, record) in &self.records {
            let known = SHARED_TABLES.into_iter().find(|table| table.0 == place.table);
            let table: TableName =
                known.ok_or_else(|| ExportError::UnknownTable(place.table.clone()))?;
            let stored = layout.record(table.0, &place.key);
            let opened = self.shared.cipher.open(&stored, &record.sealed);
            let (_, value) = opened.map_err(|fault| ExportError::Store(fault.into()))?;
            visitor(table, &place.key, &value).map_err(ExportError::Output)?;
        }
        // The mirror has authentic records only, and its digest shows that none is missing.
        Ok(Vec::new())
    }
}

impl fmt::Debug for EtcdSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSnapshot").field("records", &self.records.len()).finish_non_exhaustive()
    }
}
