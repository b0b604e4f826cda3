//! The trait of a store of records: versioned values in tables, changed by compare-and-swap, and watched.
//!
//! The embedded store implements it ([`crate::Store`]). Nothing in it assumes that one process writes: a version may
//! be a revision of etcd, a commit one of its transactions. Calls block until the store has answered.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::ops::{ControlFlow, Range};

use zeroize::Zeroizing;

use crate::record_watch::RecordWatch;

/// The name of a table of records, such as `join_records`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName(pub &'static str);

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The version of a record: the revision of the whole store that the last commit of the record produced. So the
/// versions at one key only grow, also over a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordVersion(pub u64);

impl fmt::Display for RecordVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// Its version.
    pub version: RecordVersion,
}

/// The bytes of a record. They may have a private key, so they are wiped when they are dropped.
pub type RecordBytes = Zeroizing<Vec<u8>>;

/// Records with their keys, as the store has them.
pub type KeyedRecords = Vec<(String, Versioned<RecordBytes>)>;

/// The order in which records are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By their keys.
    Ascending,
    /// By their keys, the last one first.
    Descending,
}

/// Sees one record; `Break` ends the visit.
pub type RecordVisitor<'v> = &'v mut dyn FnMut(&str, Versioned<RecordBytes>) -> ControlFlow<()>;

/// The version that a change expects at its key; with any other, the commit is a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// There is no record.
    Absent,
    /// There is a record of exactly this version.
    Exactly(RecordVersion),
    /// Any, also no record or a quarantined one.
    Any,
}

/// One change of a commit.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// The table of the record.
    pub table: TableName,
    /// The key of the record.
    pub key: String,
    /// The version that the record must have before the change.
    pub expected: ExpectedVersion,
    /// The new value; none removes the record.
    pub value: Option<RecordBytes>,
}

/// The value may have a private key, so only its length is shown.
impl fmt::Debug for RecordChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordChange")
            .field("table", &self.table)
            .field("key", &self.key)
            .field("expected", &self.expected)
            .field("bytes", &self.value.as_ref().map(|value| value.len()))
            .finish()
    }
}

/// A store of records, shared by all tasks, and possibly by several processes.
pub trait RecordStore: fmt::Debug + Send + Sync {
    /// The record at a key.
    fn get(
        &self,
        table: TableName,
        key: &str,
    ) -> Result<Option<Versioned<RecordBytes>>, RecordError>;

    /// All records of a table, in the order of the keys. Records that are not authentic are quarantined and omitted.
    fn list(&self, table: TableName) -> Result<KeyedRecords, RecordError>;

    /// All keys of a table, in order, also those of quarantined records.
    fn keys(&self, table: TableName) -> Result<Vec<String>, RecordError>;

    /// Visits the records of a table with keys in a range, one after the other, so that large tables are read in parts.
    /// Records that are not authentic are quarantined and omitted; only [`Self::list`] notices those that were removed.
    fn visit(
        &self,
        table: TableName,
        keys: Range<&str>,
        order: Order,
        visitor: RecordVisitor<'_>,
    ) -> Result<(), RecordError>;

    /// Makes all changes durably, or none. A key occurs once at most. Returns the version of all written records.
    fn commit(&self, changes: &[RecordChange]) -> Result<RecordVersion, RecordError>;

    /// Waits until reads show all commits that were made before this call, also by other processes. A store of one process
    /// always does.
    fn catch_up(&self) -> Result<(), RecordError> {
        Ok(())
    }

    /// Watches a table: first its current state, then what changes.
    fn watch(&self, table: TableName) -> Result<RecordWatch, RecordError>;

    /// Quarantines a record that its reader cannot decode, until it is written again or removed.
    fn quarantine(&self, table: TableName, key: &str);

    /// The keys of the quarantined records of a table.
    fn quarantined(&self, table: TableName) -> BTreeSet<String>;

    /// Makes the commits so far evident: if the whole store is replaced by an older copy, the next start detects it.
    /// Callers call it before an answer that issues or revokes a certificate. A store that a quorum keeps needs
    /// nothing here.
    fn record_high_water(&self) -> Result<(), RecordError> {
        Ok(())
    }
}

/// The most changes of one commit that every store accepts: a transaction of etcd has at most 128 operations by default.
pub const MAX_COMMIT_CHANGES: usize = 100;

/// The most bytes of the values of one commit that every store accepts: a request of etcd has at most 1.5 MiB by default.
pub const MAX_COMMIT_BYTES: usize = 768 * 1024;

/// Changes in parts that every store accepts as one commit each, in order. A change that exceeds the bytes alone is a part
/// of its own.
pub fn commit_parts(changes: &[RecordChange]) -> impl Iterator<Item = &[RecordChange]> {
    let mut rest = changes;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |(index, change): &(usize, &RecordChange)| {
            bytes += change.value.as_ref().map_or(0, |value| value.len());
            *index == 0 || (*index < MAX_COMMIT_CHANGES && bytes <= MAX_COMMIT_BYTES)
        };
        let length = rest.iter().enumerate().take_while(fits).count();
        let (part, after) = rest.split_at(length);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// Rejects a commit with two changes of one record, or with a record of more than `max_record` bytes.
///
/// # Errors
///
/// Fails with [`RecordError::Invalid`], which names the record.
pub fn check_changes(changes: &[RecordChange], max_record: usize) -> Result<(), RecordError> {
    let mut seen = BTreeSet::new();
    for change in changes {
        let reason = if !seen.insert((change.table, &change.key)) {
            "a commit changes it twice".to_owned()
        } else if change.value.as_ref().is_some_and(|value| value.len() > max_record) {
            format!("it has more than {max_record} bytes")
        } else {
            continue;
        };
        let record = RecordAddress { table: change.table, key: change.key.clone() };
        return Err(RecordError::Invalid { record, source: reason.into() });
    }
    Ok(())
}

/// An operation on records failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Records have other versions than a commit expects. Nothing was changed: read them, and try again.
    #[error("records were changed concurrently: {}", list(.0))]
    Conflict(Vec<RecordAddress>),
    /// The store cannot be read or written now. It is unknown whether a failed commit was stored.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// What is stored cannot be read, and does not change by a retry.
    #[error("the store is damaged")]
    Corrupt(#[source] Box<dyn Error + Send + Sync>),
    /// The caller's record cannot be stored.
    #[error("record {record} cannot be stored")]
    Invalid {
        /// The record.
        record: RecordAddress,
        /// The reason.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl RecordError {
    /// The error that the record at this place is not authentic or unreadable.
    pub fn quarantined(table: TableName, key: &str) -> Self {
        let record = RecordAddress { table, key: key.to_owned() };
        Self::Corrupt(format!("the stored record {record} is quarantined").into())
    }
}

/// The place of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordAddress {
    /// Its table.
    pub table: TableName,
    /// Its key.
    pub key: String,
}

impl fmt::Display for RecordAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of {}", self.key, self.table)
    }
}

/// The most records that an error names.
const NAMED: usize = 3;

fn list(records: &[RecordAddress]) -> String {
    let mut named: Vec<_> = records.iter().take(NAMED).map(ToString::to_string).collect();
    if records.len() > NAMED {
        named.push(format!("{} more", records.len() - NAMED));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(sizes: &[usize]) -> Vec<RecordChange> {
        let change = |(number, size): (usize, &usize)| RecordChange {
            table: TableName("t"),
            key: number.to_string(),
            expected: ExpectedVersion::Any,
            value: (*size > 0).then(|| vec![0; *size].into()),
        };
        sizes.iter().enumerate().map(change).collect()
    }

    #[test]
    fn parts_stay_within_the_limits_of_every_store() {
        let lengths = |sizes: &[usize]| -> Vec<usize> {
            let changes = changes(sizes);
            let parts: Vec<_> = commit_parts(&changes).collect();
            assert_eq!(parts.concat(), changes, "every change is in one part, in order");
            parts.iter().map(|part| part.len()).collect()
        };
        assert_eq!(lengths(&[]), [0_usize; 0]);
        assert_eq!(lengths(&[0; 100]), [100]);
        assert_eq!(lengths(&[1; 201]), [100, 100, 1]);
        let half = MAX_COMMIT_BYTES / 2;
        assert_eq!(lengths(&[half, half, 1, half]), [2, 2]);
        assert_eq!(lengths(&[1, MAX_COMMIT_BYTES + 1, 1]), [1, 1, 1]);
    }
}
