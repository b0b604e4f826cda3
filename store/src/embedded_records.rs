//! The embedded store as a store of records.
//!
//! [`crate::embedded_codec`] protects each of them. An older copy of the whole file does match: see
//! [`crate::high_water`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use redb::{
    ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError,
    TableHandle as _,
};

use crate::database::{Failure, META, RECORD_VERSIONS, Store, Table};
use crate::embedded_codec::{RecordCodec, Stored, number, version_key};
use crate::engine::is_damage;
use crate::record_store::{
    ExpectedVersion, KeyedRecords, Order, RecordAddress, RecordBytes, RecordChange, RecordError,
    RecordStore, RecordVersion, RecordVisitor, TableName, Versioned, check_changes,
};
use crate::record_watch::{RecordWatch, RecordWatchSender};

/// The revision of the store, and the watches of its tables.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    /// The highest revision that a commit has used, also one that failed: it may have reached the disk.
    pub(crate) used: u64,
    /// The revision of the last commit.
    pub(crate) committed: u64,
    watches: Vec<(TableName, RecordWatchSender)>,
}

impl RecordStore for Store {
    fn get(
        &self,
        table: TableName,
        key: &str,
    ) -> Result<Option<Versioned<RecordBytes>>, RecordError> {
        let stored = self.engine.read(|database| {
            let Some((records, versions)) = open_both(&database.begin_read()?, table)? else {
                return Ok(Stored::Absent);
            };
            self.codec().read(table, key, &records, &versions)
        });
        match stored.map_err(unavailable)? {
            Stored::Absent => Ok(None),
            Stored::Present(record) => Ok(Some(record)),
            Stored::Refused => {
                self.quarantine(table, key);
                Err(RecordError::quarantined(table, key))
            }
        }
    }

    fn list(&self, table: TableName) -> Result<KeyedRecords, RecordError> {
        let (records, refused) =
            self.engine.read(|database| self.read_all(database, table)).map_err(unavailable)?;
        for key in refused {
            self.quarantine(table, &key);
        }
        Ok(records)
    }

    fn keys(&self, table: TableName) -> Result<Vec<String>, RecordError> {
        let keys = self.engine.read(|database| {
            let Some(records) = open(&database.begin_read()?, definition(table))? else {
                return Ok(Vec::new());
            };
            let keys = records.iter()?.map(|entry| Ok(entry?.0.value().to_owned()));
            keys.collect()
        });
        keys.map_err(unavailable)
    }

    fn visit(
        &self,
        table: TableName,
        keys: Range<&str>,
        order: Order,
        visitor: RecordVisitor<'_>,
    ) -> Result<(), RecordError> {
        if keys.is_empty() {
            return Ok(());
        }
        let visited = self.engine.read(|database| {
            let Some((records, versions)) = open_both(&database.begin_read()?, table)? else {
                return Ok(());
            };
            let mut entries = records.range(keys)?;
            let mut next = || match order {
                Order::Ascending => entries.next(),
                Order::Descending => entries.next_back(),
            };
            while let Some(entry) = next() {
                let (key, record) = entry?;
                let key = key.value();
                match self.codec().verify(table, key, Some(record.value()), &versions)? {
                    Stored::Present(record) => {
                        if visitor(key, record).is_break() {
                            break;
                        }
                    }
                    Stored::Refused | Stored::Absent => self.quarantine(table, key),
                }
            }
            Ok(())
        });
        visited.map_err(unavailable)
    }

    fn commit(&self, changes: &[RecordChange]) -> Result<RecordVersion, RecordError> {
        check_changes(changes, MAX_RECORD)?;
        // Held during the write, so that watches report commits in their order.
        let mut revisions = self.revisions.lock();
        if changes.is_empty() {
            return Ok(RecordVersion(revisions.committed));
        }
        revisions.used += 1;
        let version = RecordVersion(revisions.used);
        let written = self.engine.read(|database| self.write_all(database, changes, version));
        written.map_err(unavailable)??;
        self.engine.note_success();
        revisions.committed = version.0;

        let mut quarantine = self.quarantine.lock();
        for change in changes {
            quarantine.remove(change.table.0, &change.key);
        }
        drop(quarantine);
        revisions.watches.retain(|(_, watch)| !watch.is_closed());
        for (table, watch) in &revisions.watches {
            let mut changed = changes.iter().filter(|change| change.table == *table).peekable();
            if changed.peek().is_some() {
                let version_of = |change: &RecordChange| change.value.is_some().then_some(version);
                watch.send(changed.map(|change| (change.key.as_str(), version_of(change))));
            }
        }
        Ok(version)
    }

    fn watch(&self, table: TableName) -> Result<RecordWatch, RecordError> {
        // No commit is between the current state and the first change.
        let mut revisions = self.revisions.lock();
        let records = self.list(table)?.into_iter();
        let current = records.map(|(key, record)| (key, record.version)).collect();
        let (sender, watch) = RecordWatch::new(current);
        revisions.watches.push((table, sender));
        Ok(watch)
    }

    fn quarantine(&self, table: TableName, key: &str) {
        self.quarantine.lock().add(table.0, key);
    }

    fn quarantined(&self, table: TableName) -> BTreeSet<String> {
        let quarantined = self.quarantine.lock().records().into_iter();
        quarantined.filter(|record| record.table == table.0).map(|record| record.key).collect()
    }

    fn record_high_water(&self) -> Result<(), RecordError> {
        // Without its place, the mark would be written beside a different store.
        if self.engine.file().file_fault().is_some() {
            return Ok(());
        }
        let committed = || self.revisions.lock().committed;
        self.high_water.raise(committed).map_err(|error| RecordError::Unavailable(error.into()))
    }
}

impl Store {
    pub(crate) fn codec(&self) -> RecordCodec<'_> {
        RecordCodec { sealer: &self.sealer, authenticator: &self.authenticator }
    }

    fn read_all(
        &self,
        database: &redb::Database,
        table: TableName,
    ) -> Result<(KeyedRecords, BTreeSet<String>), Failure> {
        let Some((records, versions)) = open_both(&database.begin_read()?, table)? else {
            return Ok((Vec::new(), BTreeSet::new()));
        };
        // The keys of both tables: a record whose version is stored must exist.
        let mut keys = BTreeSet::new();
        for entry in records.iter()? {
            keys.insert(entry?.0.value().to_owned());
        }
        let prefix = version_key(table, "");
        for entry in versions.range(prefix.as_str()..)? {
            let (key, _) = entry?;
            let Some(key) = key.value().strip_prefix(&prefix) else { break };
            keys.insert(key.to_owned());
        }
        let (mut present, mut refused) = (Vec::new(), BTreeSet::new());
        for key in keys {
            match self.codec().read(table, &key, &records, &versions)? {
                Stored::Present(record) => present.push((key, record)),
                Stored::Refused => {
                    refused.insert(key);
                }
                Stored::Absent => {}
            }
        }
        Ok((present, refused))
    }

    /// Writes all changes in one transaction, or none.
    fn write_all(
        &self,
        database: &redb::Database,
        changes: &[RecordChange],
        version: RecordVersion,
    ) -> Result<Result<(), RecordError>, Failure> {
        let mut tables: BTreeMap<TableName, Vec<&RecordChange>> = BTreeMap::new();
        for change in changes {
            tables.entry(change.table).or_default().push(change);
        }
        let transaction = database.begin_write()?;
        let mut conflicts = Vec::new();
        let mut refused = None;
        {
            let mut versions = transaction.open_table(RECORD_VERSIONS)?;
            for (table, changes) in tables {
                let mut records = transaction.open_table(definition(table))?;
                for change in changes {
                    let key = change.key.as_str();
                    let stored = match change.expected {
                        ExpectedVersion::Any => None,
                        _ => Some(self.codec().read(table, key, &records, &versions)?),
                    };
                    let is_expected = match (change.expected, stored) {
                        (ExpectedVersion::Any, _)
                        | (ExpectedVersion::Absent, Some(Stored::Absent)) => true,
                        (_, Some(Stored::Refused)) => {
                            refused = Some((table, key));
                            false
                        }
                        (ExpectedVersion::Exactly(expected), Some(Stored::Present(record))) => {
                            record.version == expected
                        }
                        _ => false,
                    };
                    if !is_expected {
                        conflicts.push(RecordAddress { table, key: change.key.clone() });
                        continue;
                    }
                    if let Some(value) = &change.value {
                        let record = self.codec().encode(table, key, version, value)?;
                        records.insert(key, record.as_slice())?;
                        let (index, tagged) = self.codec().encode_version(table, key, version);
                        versions.insert(index.as_str(), tagged.as_slice())?;
                    } else {
                        records.remove(key)?;
                        versions.remove(version_key(table, key).as_str())?;
                    }
                }
            }
            let tagged = self.tagged_number(META, REVISION, version.0);
            transaction.open_table(META)?.insert(REVISION, tagged.as_slice())?;
        }
        if conflicts.is_empty() {
            transaction.commit()?;
            return Ok(Ok(()));
        }
        transaction.abort()?;
        Ok(Err(match refused {
            Some((table, key)) => {
                self.quarantine(table, key);
                RecordError::quarantined(table, key)
            }
            None => RecordError::Conflict(conflicts),
        }))
    }

    /// Reads the revision of the last commit. If it is not authentic, the highest version of a record stands for it.
    pub(crate) fn load_revision(&self) -> Result<u64, Failure> {
        let stored = self.get_value(META, REVISION)?.and_then(|bytes| number(&bytes));
        let revision = if let Some(revision) = stored {
            revision
        } else {
            let versions = self.all(RECORD_VERSIONS)?;
            versions.iter().filter_map(|(_, bytes)| number(bytes)).max().unwrap_or_default()
        };
        let mut revisions = self.revisions.lock();
        (revisions.used, revisions.committed) = (revision, revision);
        Ok(revision)
    }

    /// Makes the next commit use a revision above this one.
    pub(crate) fn skip_revisions(&self, up_to: u64) {
        let mut revisions = self.revisions.lock();
        revisions.used = revisions.used.max(up_to);
    }

    /// Stores this revision as that of the last commit.
    pub(crate) fn put_revision(&self, revision: u64) -> Result<(), Failure> {
        self.put(META, REVISION, &revision.to_be_bytes())?;
        self.load_revision()?;
        Ok(())
    }

    pub(crate) fn tagged_number(&self, table: Table, key: &str, number: u64) -> Vec<u8> {
        self.authenticator.tagged(table.name(), key, &number.to_be_bytes())
    }
}

/// The records of a table in the database.
pub(crate) fn definition(table: TableName) -> Table {
    TableDefinition::new(table.0)
}

/// The place of the revision of the last commit.
pub(crate) const REVISION: &str = "revision";

/// The most bytes of a record. That of a proxy has a few hundred, certificate revocation lists some hundred thousand.
const MAX_RECORD: usize = 16 * 1024 * 1024;

pub(crate) type ReadTable = redb::ReadOnlyTable<&'static str, &'static [u8]>;

/// A table; none if no record was ever stored in it.
fn open(transaction: &ReadTransaction, table: Table) -> Result<Option<ReadTable>, Failure> {
    match transaction.open_table(table) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The table of records and that of versions; none if no record was ever stored in it.
pub(crate) fn open_both(
    transaction: &ReadTransaction,
    table: TableName,
) -> Result<Option<(ReadTable, ReadTable)>, Failure> {
    Ok(open(transaction, definition(table))?.zip(open(transaction, RECORD_VERSIONS)?))
}

fn unavailable(failure: Failure) -> RecordError {
    if is_damage(&failure) {
        RecordError::Corrupt(failure)
    } else {
        RecordError::Unavailable(failure)
    }
}
