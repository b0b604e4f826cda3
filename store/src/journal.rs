//! The journal's entries: appended in batches, bounded per kind, read by number.
//!
//! A key is the number of an entry, then its kind. So the order of keys is that of numbers, and the bound of a
//! kind needs no value. This module never decides what is an entry.

use std::collections::{BTreeMap, VecDeque};

use ironmesh_catalog::{JournalEntry, JournalKind, JournalQuery, StoreError};
use redb::{ReadableDatabase as _, ReadableTable as _, TableHandle as _};

use crate::database::{Failure, JOURNAL, Store};

/// The numbers of all stored entries, ascending, by the words of their kinds. A newer version may have stored
/// kinds that this one does not know.
#[derive(Debug, Default)]
pub(crate) struct JournalIndex {
    last: u64,
    kinds: BTreeMap<String, VecDeque<u64>>,
}

impl JournalIndex {
    fn read(store: &Store) -> Result<Self, Failure> {
        store.engine.read(|database| {
            let table = database.begin_read()?.open_table(JOURNAL)?;
            let mut index = Self::default();
            for entry in table.iter()? {
                let (key, _) = entry?;
                if let Some((sequence, kind)) = parse_key(key.value()) {
                    index.add(sequence, kind);
                }
            }
            Ok(index)
        })
    }

    fn add(&mut self, sequence: u64, kind: &str) {
        self.last = self.last.max(sequence);
        self.kinds.entry(kind.to_owned()).or_default().push_back(sequence);
    }

    /// Removes the oldest numbers beyond the bound of each kind, and returns the keys of their entries.
    fn trim(&mut self, bound: impl Fn(JournalKind) -> usize) -> Vec<String> {
        let mut gone = Vec::new();
        for (word, numbers) in &mut self.kinds {
            let Ok(kind) = word.parse() else { continue };
            let surplus = numbers.len().saturating_sub(bound(kind));
            gone.extend(numbers.drain(..surplus).map(|sequence| key(sequence, word)));
        }
        gone
    }
}

impl Store {
    /// Appends entries with the next numbers, and removes the oldest beyond the bound of each kind, in one
    /// transaction. The number that an entry has is ignored.
    pub fn append_journal(&self, entries: &[JournalEntry]) -> Result<(), StoreError> {
        self.append_journal_within(entries, JournalKind::bound)
            .map_err(|e| StoreError::new(format!("append {} journal entries", entries.len()), e))
    }

    pub(crate) fn append_journal_within(
        &self,
        entries: &[JournalEntry],
        bound: impl Fn(JournalKind) -> usize,
    ) -> Result<(), Failure> {
        let mut kept = self.journal_index.lock();
        // After a failed write, the index is read again: it is unknown what the disk has.
        let mut index = match kept.take() {
            Some(index) => index,
            None => JournalIndex::read(self)?,
        };
        let mut values = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry = JournalEntry { sequence: index.last + 1, ..entry.clone() };
            index.add(entry.sequence, entry.kind.word());
            values.push((key(entry.sequence, entry.kind.word()), serde_json::to_vec(&entry)?));
        }
        let gone = index.trim(bound);
        self.change(JOURNAL, |table| {
            for (key, value) in &values {
                table.insert(key, value)?;
            }
            for key in &gone {
                table.remove(key)?;
            }
            Ok(values.len() + gone.len())
        })?;
        *kept = Some(index);
        Ok(())
    }

    /// The entries of a query, the newest last, and the highest number of all entries. Entries that are not
    /// authentic, or that this version cannot read, are quarantined and omitted.
    pub fn journal(&self, query: &JournalQuery) -> Result<(Vec<JournalEntry>, u64), StoreError> {
        let read = || {
            self.engine.read(|database| {
                let table = database.begin_read()?.open_table(JOURNAL)?;
                let last = table.last()?.and_then(|(key, _)| Some(parse_key(key.value())?.0));
                let first = key(query.after.map_or(0, |after| after.saturating_add(1)), "");
                let stored = table.range(first.as_str()..)?;
                let limit = query.limit.unwrap_or(usize::MAX);
                let entries = if query.after.is_some() {
                    self.matching(stored, query, limit)?
                } else {
                    let mut newest = self.matching(stored.rev(), query, limit)?;
                    newest.reverse();
                    newest
                };
                Ok((entries, last.unwrap_or_default()))
            })
        };
        read().map_err(|e| StoreError::new("read the journal", e))
    }

    /// The first `limit` of the stored entries that the query includes.
    fn matching<'t>(
        &self,
        stored: impl Iterator<
            Item = Result<
                (redb::AccessGuard<'t, &'static str>, redb::AccessGuard<'t, &'static [u8]>),
                redb::StorageError,
            >,
        >,
        query: &JournalQuery,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, Failure> {
        let mut entries = Vec::new();
        for one in stored {
            if entries.len() >= limit {
                break;
            }
            let (key, value) = one?;
            let key = key.value();
            // A newer version may have stored other kinds.
            let kind = parse_key(key).and_then(|(_, kind)| kind.parse::<JournalKind>().ok());
            if kind.is_none_or(|kind| query.kind.is_some_and(|wanted| wanted != kind)) {
                continue;
            }
            let Some(json) = self.verified(JOURNAL, key, value.value()) else { continue };
            match serde_json::from_slice(&json) {
                Ok(entry) if query.includes(&entry) => entries.push(entry),
                Ok(_) => {}
                Err(_) => self.quarantine.lock().add(JOURNAL.name(), key),
            }
        }
        Ok(entries)
    }
}

/// The key of an entry: so many digits that the order of keys is that of numbers.
fn key(sequence: u64, kind: &str) -> String {
    format!("{sequence:020}/{kind}")
}

fn parse_key(key: &str) -> Option<(u64, &str)> {
    let (sequence, kind) = key.split_once('/')?;
    Some((sequence.parse().ok()?, kind))
}
