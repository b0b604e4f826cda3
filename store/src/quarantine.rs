//! The quarantine: stored values that are not authentic, or that cannot be read. They count as missing, and
//! stay in the database until they are written again or removed.

use std::collections::BTreeSet;

/// A quarantined value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuarantinedRecord {
    /// Its table, such as `join_records`.
    pub table: String,
    /// Its key in that table, such as the UUID of a proxy.
    pub key: String,
}

#[derive(Debug, Default)]
pub(crate) struct Quarantine(BTreeSet<QuarantinedRecord>);

impl Quarantine {
    pub(crate) fn add(&mut self, table: &str, key: &str) {
        self.0.insert(QuarantinedRecord { table: table.to_owned(), key: key.to_owned() });
    }

    pub(crate) fn remove(&mut self, table: &str, key: &str) {
        // There is nearly always none, so no key is copied for it.
        if !self.0.is_empty() {
            self.0.remove(&QuarantinedRecord { table: table.to_owned(), key: key.to_owned() });
        }
    }

    pub(crate) fn records(&self) -> Vec<QuarantinedRecord> {
        self.0.iter().cloned().collect()
    }
}
