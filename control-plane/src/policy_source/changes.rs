//! The changes of the policy source, for the journal: who changed policy, as git or the push states, and whether it
//! became active.
//!
//! A change of the folder waits for the search for its commit, which takes as long as git. Rollbacks and acceptances
//! are operators' requests, which the admin API records.

use ironmesh_catalog::{
    Actor, Finding, JournalEntry, JournalKind, JournalOutcome, JournalSubject, PolicyRecord,
    PolicyRevision,
};
use ironmesh_config_language::Loaded;
use jiff::Timestamp;

use super::commits::{FoundCommit, is_dirty};
use super::{PolicySource, Source, new_record};
use crate::journal::{Journal, line};

/// The changes of policy that are not recorded yet.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// None during the first reading.
    journal: Option<Journal>,
    /// The last change, whose commit is not known yet.
    pending: Option<JournalEntry>,
    /// The last change, while its documents differ from their commit.
    uncommitted: Option<JournalEntry>,
}

impl Changes {
    /// Records what waits for its commit, without one.
    pub(super) fn flush(&mut self) {
        if let Some(journal) = &self.journal
            && let Some(entry) = self.pending.take()
        {
            journal.record(entry);
        }
    }

    /// Adds a change, after those before it. It waits if a search for its commit reports one.
    fn add(&mut self, entry: JournalEntry, has_commit: bool) {
        self.flush();
        self.uncommitted = None;
        self.pending = Some(entry);
        if !has_commit {
            self.flush();
        }
    }

    /// Completes the change of this revision. A pending change of a different one gets no commit: a newer search has
    /// replaced its own.
    fn complete(&mut self, found: &FoundCommit) {
        let is_it =
            |entry: &mut JournalEntry| entry.subject.revision.as_ref() == Some(&found.revision);
        let replaced = self.pending.as_mut().is_some_and(|pending| !is_it(pending));
        if replaced {
            self.flush();
        }
        let commit = found.commit.as_ref().ok().cloned().flatten();
        let is_committed = commit.as_deref().is_some_and(|commit| !is_dirty(commit));
        let entry = match self.pending.take_if(is_it) {
            Some(pending) => pending,
            // The same documents were committed after they became active.
            None if is_committed => match self.uncommitted.take_if(is_it) {
                Some(entry) => JournalEntry { at: Timestamp::now(), ..entry },
                None => return,
            },
            None => return,
        };
        let is_uncommitted = commit.is_some() && !is_committed;
        let entry = JournalEntry {
            who: Actor::Author { name: found.author.as_deref().map(line) },
            subject: JournalSubject { commit, ..entry.subject },
            ..entry
        };
        self.uncommitted = is_uncommitted.then(|| entry.clone());
        self.pending = Some(entry);
        self.flush();
    }
}

impl PolicySource {
    /// Records the changes from now on in `journal`, and that of the first reading, unless the last run did.
    pub(crate) fn record_in(&mut self, journal: Journal) {
        self.changes.pending.take_if(|first| journal.has_policy(first));
        self.changes.journal = Some(journal);
        if self.source.path().is_none() {
            self.changes.flush();
        }
    }

    /// Notes that policy is about to become active. The documents of the active policy are no change.
    pub(super) fn note_change(&mut self, record: &PolicyRecord) {
        let is_active = self.state.borrow().view.revision.as_deref() == Some(&*record.revision.0);
        if !is_active {
            let entry = self.change(record, JournalOutcome::Done);
            self.changes.add(entry, self.source.path().is_some());
        }
    }

    /// Notes that policy was rejected.
    pub(super) fn note_rejection(&mut self, loaded: &Loaded, pushed: Option<PolicyRecord>) {
        let errors = || loaded.findings.iter().filter(|finding| finding.is_error());
        let first = errors().next().map(Finding::to_string).unwrap_or_default();
        let reason = match errors().count().saturating_sub(1) {
            0 => line(&first),
            more => format!("{} (and {more} more)", line(&first)),
        };
        let record = pushed.unwrap_or_else(|| new_record(&loaded.revision));
        let entry = self.change(&record, JournalOutcome::Rejected { reason });
        self.changes.add(entry, self.source.path().is_some());
    }

    /// Notes that a removal is active because its hold is over.
    pub(super) fn note_hold_end(&mut self) {
        let Some(record) = self.state.borrow().view.active_record.clone() else { return };
        let entry = self.change(&record, JournalOutcome::Done);
        let message = Some("no longer held back".to_owned());
        self.changes.add(JournalEntry { message, ..entry }, self.source.path().is_some());
    }

    /// Records and shows a found commit.
    pub(super) fn note_commit(&mut self, found: FoundCommit) {
        self.changes.complete(&found);
        if let Ok(commit) = found.commit {
            self.show_commit(&found.revision, commit);
        }
    }

    fn change(&self, record: &PolicyRecord, outcome: JournalOutcome) -> JournalEntry {
        let PolicyRecord { revision, commit, by, message, .. } = record;
        let kind = match self.source {
            Source::Etcd(_) => JournalKind::Push,
            _ => JournalKind::Policy,
        };
        let who = Actor::Author { name: by.as_deref().map(line) };
        let subject = JournalSubject {
            revision: Some(PolicyRevision::clone(revision)),
            commit: commit.clone(),
            ..JournalSubject::default()
        };
        JournalEntry {
            origin: Some(self.source.name()),
            subject,
            message: message.as_deref().map(line),
            outcome,
            ..JournalEntry::new(Timestamp::now(), kind, who)
        }
    }
}

#[cfg(test)]
mod tests;
