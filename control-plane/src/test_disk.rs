//! The real store of a test, on a disk that can become full.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use ironmesh_store::{
    KeyedRecords, Order, RecordBytes, RecordChange, RecordError, RecordStore, RecordVersion,
    RecordVisitor, RecordWatch, Store, TableName, Versioned,
};
use parking_lot::Mutex;

/// The real store, on a disk that can become full.
#[derive(Debug)]
pub(crate) struct TestDisk {
    store: Arc<Store>,
    /// The writes that succeed before one fails; none: all.
    writes_left: Mutex<Option<usize>>,
}

impl TestDisk {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store, writes_left: Mutex::default() }
    }

    /// Lets this many writes succeed, and each further one fail; none: all succeed.
    pub(crate) fn fail_after(&self, writes: Option<usize>) {
        *self.writes_left.lock() = writes;
    }
}

impl RecordStore for TestDisk {
    fn get(
        &self,
        table: TableName,
        key: &str,
    ) -> Result<Option<Versioned<RecordBytes>>, RecordError> {
        self.store.get(table, key)
    }

    fn list(&self, table: TableName) -> Result<KeyedRecords, RecordError> {
        self.store.list(table)
    }

    fn keys(&self, table: TableName) -> Result<Vec<String>, RecordError> {
        self.store.keys(table)
    }

    fn visit(
        &self,
        table: TableName,
        keys: Range<&str>,
        order: Order,
        visitor: RecordVisitor<'_>,
    ) -> Result<(), RecordError> {
        self.store.visit(table, keys, order, visitor)
    }

    fn commit(&self, changes: &[RecordChange]) -> Result<RecordVersion, RecordError> {
        match &mut *self.writes_left.lock() {
            Some(0) => Err(RecordError::Unavailable("no space left on device".into())),
            Some(left) => {
                *left -= 1;
                self.store.commit(changes)
            }
            None => self.store.commit(changes),
        }
    }

    fn watch(&self, table: TableName) -> Result<RecordWatch, RecordError> {
        self.store.watch(table)
    }

    fn quarantine(&self, table: TableName, key: &str) {
        self.store.quarantine(table, key);
    }

    fn quarantined(&self, table: TableName) -> BTreeSet<String> {
        self.store.quarantined(table)
    }

    fn record_high_water(&self) -> Result<(), RecordError> {
        self.store.record_high_water()
    }
}
