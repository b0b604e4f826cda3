//! The journal's entries: appended in batches, bounded per group, read by number.
//!
//! The groups are the done entries of each kind, and the rejected ones. A key is the number of an entry, then its
//! group. So the order of keys is that of numbers, and the bound of a group needs no value. This module never
//! decides what is an entry.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};

use ironmesh_catalog::{JournalEntry, JournalKind, JournalQuery, StoreError};

use crate::database::Failure;
use crate::mesh_state::{MeshState, json, put, remove};
use crate::record_store::{Order, RecordStore, TableName};

/// The journal's entries, by number and kind.
pub(crate) const JOURNAL: TableName = TableName("journal");

/// The word after the kind in the group of rejected entries.
const REJECTED: &str = "/rejected";

/// How many entries of before the start of a query, one after the other, end its reading. Some may precede entries
/// that belong to the query: a change is recorded after its time, and the clock may have been set back.
pub(crate) const MAX_OLDER: usize = 100;

/// A key after that of any entry.
const END: &str = "~";

/// The numbers of all stored entries, ascending, by their groups. A newer version may have stored groups that this
/// one does not know.
#[derive(Debug, Default)]
pub(crate) struct JournalIndex {
    last: u64,
    groups: BTreeMap<String, VecDeque<u64>>,
}

impl JournalIndex {
    fn read(records: &dyn RecordStore) -> Result<Self, Failure> {
        let mut index = Self::default();
        for key in records.keys(JOURNAL)? {
            if let Some((sequence, group)) = parse_key(&key) {
                index.add(sequence, group);
            }
        }
        Ok(index)
    }

    fn add(&mut self, sequence: u64, group: &str) {
        self.last = self.last.max(sequence);
        self.groups.entry(group.to_owned()).or_default().push_back(sequence);
    }

    /// Removes the oldest numbers beyond the bound of each group, and returns the keys of their entries.
    fn trim(&mut self, bound: impl Fn(JournalKind, bool) -> usize) -> Vec<String> {
        let mut gone = Vec::new();
        for (group, numbers) in &mut self.groups {
            let Some((kind, is_rejected)) = parse_group(group) else { continue };
            let surplus = numbers.len().saturating_sub(bound(kind, is_rejected));
            gone.extend(numbers.drain(..surplus).map(|sequence| key(sequence, group)));
        }
        gone
    }
}

impl MeshState {
    /// Appends entries with the next numbers, and removes the oldest beyond the bound of each group, in one
    /// transaction. The number that an entry has is ignored.
    pub fn append_journal(&self, entries: &[JournalEntry]) -> Result<(), StoreError> {
        self.append_journal_within(entries, JournalKind::bound)
            .map_err(|e| StoreError::new(format!("append {} journal entries", entries.len()), e))
    }

    pub(crate) fn append_journal_within(
        &self,
        entries: &[JournalEntry],
        bound: impl Fn(JournalKind, bool) -> usize,
    ) -> Result<(), Failure> {
        let mut kept = self.journal_index.lock();
        // After a failed write, the index is read again: it is unknown what the disk has.
        let mut index = match kept.take() {
            Some(index) => index,
            None => JournalIndex::read(&*self.records)?,
        };
        let mut changes = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry = JournalEntry { sequence: index.last + 1, ..entry.clone() };
            let group = group(&entry);
            index.add(entry.sequence, &group);
            changes.push(put(JOURNAL, key(entry.sequence, &group), json(&entry)?));
        }
        changes.extend(index.trim(bound).into_iter().map(|key| remove(JOURNAL, key)));
        self.records.commit(&changes)?;
        *kept = Some(index);
        Ok(())
    }

    /// The entries of a query, the newest last, and the highest number of all entries. Entries that are not
    /// authentic are quarantined and omitted. Those that this version cannot read are omitted.
    pub fn journal(&self, query: &JournalQuery) -> Result<(Vec<JournalEntry>, u64), StoreError> {
        let read = || -> Result<_, Failure> {
            let mut last = 0;
            self.records.visit(JOURNAL, ""..END, Order::Descending, &mut |stored, _| {
                last = parse_key(stored).map_or(0, |(sequence, _)| sequence);
                ControlFlow::Break(())
            })?;
            let first = key(query.after.map_or(0, |after| after.saturating_add(1)), "");
            let end = key(query.before.unwrap_or(u64::MAX), "");
            let mut entries = if query.after.is_some() {
                self.matching(&first..&end, Order::Ascending, query, usize::MAX)?
            } else {
                self.matching(&first..&end, Order::Descending, query, MAX_OLDER)?
            };
            entries.sort_unstable_by_key(|entry| entry.sequence);
            Ok((entries, last))
        };
        read().map_err(|e| StoreError::new("read the journal", e))
    }

    /// The first of the stored entries that the query includes, up to its limit, or until more than `max_older` in
    /// a row are older than its start.
    fn matching(
        &self,
        keys: Range<&str>,
        order: Order,
        query: &JournalQuery,
        max_older: usize,
    ) -> Result<Vec<JournalEntry>, Failure> {
        let limit = query.limit.unwrap_or(usize::MAX);
        let (mut entries, mut older) = (Vec::new(), 0);
        if limit == 0 {
            return Ok(entries);
        }
        self.records.visit(JOURNAL, keys, order, &mut |key, record| {
            // A newer version may have stored other kinds, actors or outcomes.
            let kind = parse_key(key).and_then(|(_, group)| Some(parse_group(group)?.0));
            if kind.is_none_or(|kind| query.kind.is_some_and(|wanted| wanted != kind)) {
                return ControlFlow::Continue(());
            }
            let Ok(entry) = serde_json::from_slice::<JournalEntry>(&record.value) else {
                return ControlFlow::Continue(());
            };
            let is_older = query.since.is_some_and(|since| entry.at < since);
            older = if is_older { older + 1 } else { 0 };
            if query.includes(&entry) {
                entries.push(entry);
            }
            if entries.len() >= limit || older > max_older {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(entries)
    }
}

/// The group of an entry, whose bound it counts towards.
fn group(entry: &JournalEntry) -> String {
    format!("{}{}", entry.kind, if entry.is_rejected() { REJECTED } else { "" })
}

/// The kind of a group, and whether it is that of rejected entries; none if this version does not know it.
fn parse_group(group: &str) -> Option<(JournalKind, bool)> {
    let rejected = group.strip_suffix(REJECTED);
    Some((rejected.unwrap_or(group).parse().ok()?, rejected.is_some()))
}

/// The key of an entry: so many digits that the order of keys is that of numbers.
fn key(sequence: u64, group: &str) -> String {
    format!("{sequence:020}/{group}")
}

fn parse_key(key: &str) -> Option<(u64, &str)> {
    let (sequence, group) = key.split_once('/')?;
    Some((sequence.parse().ok()?, group))
}
