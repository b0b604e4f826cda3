//! The entries that are not stored yet: bounded per kind, and apart for rejected ones, so that neither claims of many
//! proxies nor repeated bad requests displace an action of an operator.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use ironmesh_catalog::{JournalEntry, JournalKind};

use super::certificates::Issued;

/// The most entries of one kind that wait for a write, done or rejected.
pub(super) const MAX_PENDING: usize = 2_000;

/// The entries that wait for the next write, and those who wait for it.
#[derive(Debug, Default)]
pub(super) struct PendingEntries {
    entries: Vec<JournalEntry>,
    /// How many there are of each kind, done or rejected.
    counts: BTreeMap<(JournalKind, bool), usize>,
    /// The certificates issued since the last write.
    pub(super) issued: Issued,
    pub(super) waiting: Vec<Sender<()>>,
    /// How many entries were lost since the start, and since the last report of it.
    pub(super) dropped: u64,
    pub(super) unreported: u64,
    /// Whether the last write failed, which was logged then.
    pub(super) is_failing: bool,
    /// Whether the writer has ended.
    pub(super) has_ended: bool,
}

impl PendingEntries {
    /// Adds an entry, or counts it as lost if too many of its kind wait.
    pub(super) fn push(&mut self, entry: JournalEntry) {
        // Several streams of a proxy may claim its certificate at once.
        let is_same =
            |one: &JournalEntry| one.kind == entry.kind && one.subject.proxy == entry.subject.proxy;
        if entry.kind == JournalKind::Claim && self.entries.iter().any(is_same) {
            return;
        }
        let count = self.counts.entry((entry.kind, entry.is_rejected())).or_default();
        if *count >= MAX_PENDING {
            self.dropped += 1;
            self.unreported += 1;
            return;
        }
        *count += 1;
        self.entries.push(entry);
    }

    /// How many entries wait, without those of certificates.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the next write should not wait for its interval.
    pub(super) fn is_half_full(&self) -> bool {
        self.counts.values().any(|count| *count >= MAX_PENDING / 2)
    }

    /// The entries of the next write, and those who wait for it.
    pub(super) fn take(&mut self) -> (Vec<JournalEntry>, Vec<Sender<()>>) {
        self.counts.clear();
        let mut entries = std::mem::take(&mut self.entries);
        entries.extend(std::mem::take(&mut self.issued).into_entries());
        // (Entries of the same time keep their order.)
        entries.sort_by_key(|entry| entry.at);
        (entries, std::mem::take(&mut self.waiting))
    }

    /// Keeps entries whose write has failed, before those that came since.
    pub(super) fn put_back(&mut self, entries: Vec<JournalEntry>) {
        self.counts.clear();
        let newer = std::mem::take(&mut self.entries);
        entries.into_iter().chain(newer).for_each(|entry| self.push(entry));
    }
}
