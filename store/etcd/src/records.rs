//! A set of verified records, with its digest.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ironmesh_store::{RecordCipher, RecordVersion, SetDigest, SetElement};

/// The place of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordKey {
    pub(crate) table: String,
    pub(crate) key: String,
}

/// A record as etcd has it, whose authenticity was verified.
#[derive(Debug, Clone)]
pub(crate) struct SealedRecord {
    pub(crate) version: RecordVersion,
    /// The sealed value: private keys are not in the clear in memory either, except while they are read.
    pub(crate) sealed: Arc<[u8]>,
    element: SetElement,
}

impl SealedRecord {
    /// The record of a value that was sealed for this key of etcd; none if it does not open.
    pub(crate) fn verify(cipher: &RecordCipher, key: &str, sealed: &[u8]) -> Option<Self> {
        let (version, _) = cipher.open(key, sealed).ok()?;
        Some(Self::new(cipher, key, version, sealed.into()))
    }

    pub(crate) fn new(
        cipher: &RecordCipher,
        key: &str,
        version: RecordVersion,
        sealed: Arc<[u8]>,
    ) -> Self {
        let element = cipher.element(key, version, &sealed);
        Self { version, sealed, element }
    }
}

/// Records with their new values; none removes the record.
pub(crate) type RecordChanges = BTreeMap<RecordKey, Option<SealedRecord>>;

/// A set of records: their number, their digest, and the records by their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    records: BTreeMap<RecordKey, SealedRecord>,
    digest: SetDigest,
}

impl Records {
    /// Replaces the record at a key, or removes it.
    pub(crate) fn set(&mut self, key: RecordKey, record: Option<SealedRecord>) {
        let before = match record {
            Some(record) => {
                self.digest.add(record.element);
                self.records.insert(key, record)
            }
            None => self.records.remove(&key),
        };
        if let Some(before) = before {
            self.digest.remove(before.element);
        }
    }

    /// Number and digest after these changes, each of a different key.
    pub(crate) fn after<'c>(
        &self,
        changes: impl IntoIterator<Item = (&'c RecordKey, Option<&'c SealedRecord>)>,
    ) -> (u64, SetDigest) {
        let (mut count, mut digest) = self.sum();
        for (key, record) in changes {
            if let Some(before) = self.records.get(key) {
                digest.remove(before.element);
                count -= 1;
            }
            if let Some(record) = record {
                digest.add(record.element);
                count += 1;
            }
        }
        (count, digest)
    }

    /// The number of records, and their digest.
    pub(crate) fn sum(&self) -> (u64, SetDigest) {
        (self.records.len() as u64, self.digest)
    }

    pub(crate) fn get(&self, key: &RecordKey) -> Option<&SealedRecord> {
        self.records.get(key)
    }

    /// All records, in the order of their places.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&RecordKey, &SealedRecord)> {
        self.records.iter()
    }

    /// The records by their places.
    pub(crate) fn into_all(self) -> BTreeMap<RecordKey, SealedRecord> {
        self.records
    }

    /// The records of a table, in the order of the keys.
    pub(crate) fn of_table<'r>(
        &'r self,
        table: &str,
    ) -> impl DoubleEndedIterator<Item = (&'r str, &'r SealedRecord)> {
        let place = |table: String| RecordKey { table, key: String::new() };
        // No table has a name with NUL, so this is after the last key of the table.
        self.between(place(table.to_owned()), place(format!("{table}\0")))
    }

    /// The records of a table with keys in a range, in the order of the keys.
    pub(crate) fn within<'r>(
        &'r self,
        table: &str,
        keys: Range<&str>,
    ) -> impl DoubleEndedIterator<Item = (&'r str, &'r SealedRecord)> {
        let place = |key: &str| RecordKey { table: table.to_owned(), key: key.to_owned() };
        self.between(place(keys.start), place(keys.end.max(keys.start)))
    }

    fn between(
        &self,
        first: RecordKey,
        end: RecordKey,
    ) -> impl DoubleEndedIterator<Item = (&str, &SealedRecord)> {
        self.records.range(first..end).map(|(key, record)| (key.key.as_str(), record))
    }

    /// The versions of the records of a table that differ from those of `before`; none for those that are gone.
    pub(crate) fn differences(
        &self,
        before: &Self,
        table: &str,
    ) -> Vec<(String, Option<RecordVersion>)> {
        let versions = |records: &Self| -> BTreeMap<String, RecordVersion> {
            let records = records.of_table(table);
            records.map(|(key, record)| (key.to_owned(), record.version)).collect()
        };
        let (after, before) = (versions(self), versions(before));
        let gone = before.keys().filter(|key| !after.contains_key(*key));
        let gone: Vec<_> = gone.map(|key| (key.clone(), None)).collect();
        let changed = after.into_iter().filter(|(key, version)| before.get(key) != Some(version));
        changed.map(|(key, version)| (key, Some(version))).chain(gone).collect()
    }
}
