//! The journal's entries: appended in batches, bounded per group, read by number.
//!
//! The groups are the done entries of each kind, and the rejected ones. A key is the number of an entry, then its
//! group. So the order of keys is that of numbers, and the bound of a group needs no value. This module never
//! decides what is an entry.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};

use ironmesh_catalog::{JournalEntry, JournalKind, JournalQuery, StoreError};

use crate::database::Failure;
use crate::mesh_state::{CURRENT, MeshState, json, put, remove};
use crate::record_store::{
    ExpectedVersion, MAX_COMMIT_CHANGES, Order, RecordChange, RecordError, RecordStore, TableName,
};
use crate::record_watch::RecordWatch;

/// The journal's entries, by number and kind.
pub(crate) const JOURNAL: TableName = TableName("journal");

/// The number of the last entry. Each append replaces it, so two control planes never use one number.
pub(crate) const JOURNAL_END: TableName = TableName("journal_end");

/// The most entries that one commit appends.
const MAX_APPENDED: usize = MAX_COMMIT_CHANGES / 3;

/// The most entries that one commit removes: more, so that a lower bound is reached.
pub(crate) const MAX_REMOVED: usize = MAX_COMMIT_CHANGES - MAX_APPENDED - 1;

/// How often an append is tried, each time after the newest entry.
const MAX_ATTEMPTS: usize = 8;

/// The word after the kind in the group of rejected entries.
const REJECTED: &str = "/rejected";

/// How many entries of before the start of a query, one after the other, end its reading. Some may precede entries
/// that belong to the query: a change is recorded after its time, and the clock may have been set back.
pub(crate) const MAX_OLDER: usize = 100;

/// A key after that of any entry.
const END: &str = "~";

/// The numbers of all stored entries, ascending, by their groups. A newer version may have stored groups that this
/// one does not know.
#[derive(Debug)]
pub(crate) struct JournalIndex {
    last: u64,
    /// The version of the record of the last number, which each append replaces.
    end: ExpectedVersion,
    groups: BTreeMap<String, VecDeque<u64>>,
}

impl JournalIndex {
    fn read(records: &dyn RecordStore) -> Result<Self, Failure> {
        // Read first: what is appended meanwhile makes this append a conflict.
        let (end, last) = match records.get(JOURNAL_END, CURRENT) {
            Ok(None) => (ExpectedVersion::Absent, 0),
            Ok(Some(end)) => {
                (ExpectedVersion::Exactly(end.version), serde_json::from_slice(&end.value)?)
            }
            // The number of the newest entry replaces it.
            Err(RecordError::Corrupt(_)) => (ExpectedVersion::Any, 0),
            Err(error) => return Err(error.into()),
        };
        let mut index = Self { last, end, groups: BTreeMap::new() };
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

    /// Removes the oldest numbers beyond the bound of each group, as many as one commit removes, and returns the keys of
    /// their entries.
    fn trim(&mut self, bound: &impl Fn(JournalKind, bool) -> usize) -> Vec<String> {
        let mut gone = Vec::new();
        for (group, numbers) in &mut self.groups {
            let Some((kind, is_rejected)) = parse_group(group) else { continue };
            let surplus = numbers.len().saturating_sub(bound(kind, is_rejected));
            let surplus = surplus.min(MAX_REMOVED - gone.len());
            gone.extend(numbers.drain(..surplus).map(|sequence| key(sequence, group)));
        }
        gone
    }
}

impl MeshState {
    /// Appends entries with the next numbers, and removes the oldest beyond the bound of each group. What is stored is
    /// removed from `entries`; after a failure the rest is left. The number that an entry has is ignored.
    pub fn append_journal(&self, entries: &mut Vec<JournalEntry>) -> Result<(), StoreError> {
        let appended = self.append_journal_within(entries, JournalKind::bound);
        appended
            .map_err(|e| StoreError::new(format!("append {} journal entries", entries.len()), e))
    }

    pub(crate) fn append_journal_within(
        &self,
        entries: &mut Vec<JournalEntry>,
        bound: impl Fn(JournalKind, bool) -> usize,
    ) -> Result<(), Failure> {
        let mut kept = self.journal_index.lock();
        while !entries.is_empty() {
            let count = entries.len().min(MAX_APPENDED);
            let part = entries.get(..count).unwrap_or_default();
            let mut attempts = 1..=MAX_ATTEMPTS;
            while !self.append_part(&mut kept, part, &bound)? {
                if attempts.next().is_none() {
                    return Err("other control planes append all the time".into());
                }
            }
            entries.drain(..count);
        }
        Ok(())
    }

    /// Appends entries in one commit. Returns whether it did: not if another control plane has appended since the index was
    /// read. Then, and after a failed write, the index is read again the next time.
    fn append_part(
        &self,
        kept: &mut Option<JournalIndex>,
        entries: &[JournalEntry],
        bound: &impl Fn(JournalKind, bool) -> usize,
    ) -> Result<bool, Failure> {
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
        changes.push(RecordChange {
            expected: index.end,
            ..put(JOURNAL_END, CURRENT, json(&index.last)?)
        });
        match self.records.commit(&changes) {
            Ok(version) => {
                index.end = ExpectedVersion::Exactly(version);
                *kept = Some(index);
                Ok(true)
            }
            Err(RecordError::Conflict(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
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

    /// Watches the end of the journal, which all control planes append to.
    pub fn watch_journal(&self) -> Result<RecordWatch, RecordError> {
        self.records.watch(JOURNAL_END)
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
