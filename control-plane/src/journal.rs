//! The journal: records every change of the mesh by any actor, done or rejected.
//!
//! It owns the entries that are not stored yet, and the one task that appends them to the store, in batches. It
//! never decides about a change, never delays the issue of certificates or the answers to proxies, and never
//! interprets an entry. A disk that cannot be written costs entries beyond a bound, and nothing else.

mod certificates;
mod operators;
mod pending;
#[cfg(test)]
mod tests;
mod users;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use ironmesh_admin::ApiError;
use ironmesh_api::{JournalPage, MAX_JOURNAL_PAGE};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    Actor, JoinRecord, JournalEntry, JournalKind, JournalOutcome, JournalQuery, JournalSubject,
};
use ironmesh_store::MeshState;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub(crate) use certificates::{CertificateHolder, RecordedCertificates};
pub(crate) use operators::{
    author, cordon_change, enrollment, export, held_endpoints, log_level_change, login_change,
    operator_change, policy_change, principal_name, revocations, services_change, silence_change,
    token_change,
};
use pending::PendingEntries;
pub use users::user_name;

/// The interval of writes, unless an operator waits.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// The longest wait of an operator's request for its entry. The change itself is stored by then, so a slow disk must
/// not delay the answer for long.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// How many of the newest entries of a kind are searched for a revision at the start.
const SEARCHED: usize = 20;

/// The handle of the journal, by which all components record entries.
#[derive(Debug, Clone)]
pub(crate) struct Journal(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Arc<MeshState>,
    pending: Mutex<PendingEntries>,
    /// Held during a write, so that batches are appended in their order.
    writing: Mutex<()>,
    /// Wakes the writer before its interval is over.
    urgent: Notify,
}

impl Journal {
    pub(crate) fn new(state: Arc<MeshState>) -> Self {
        let (pending, writing, urgent) = Default::default();
        Self(Arc::new(Shared { state, pending, writing, urgent }))
    }

    /// Records an entry. It is stored within about a second, and the caller does not wait.
    pub(crate) fn record(&self, entry: JournalEntry) {
        self.add(entry, None);
    }

    /// Records an entry, and waits until it is stored, a write has failed, or half a second has passed. Blocks.
    pub(crate) fn record_and_wait(&self, entry: JournalEntry) {
        let (sender, receiver) = channel();
        self.add(entry, Some(sender));
        // The writer logs a failure; the change was made all the same.
        let _ = receiver.recv_timeout(LONGEST_WAIT);
    }

    fn add(&self, entry: JournalEntry, waiting: Option<Sender<()>>) {
        let mut pending = self.0.pending.lock();
        let is_urgent = waiting.is_some() || pending.is_half_full();
        pending.push(entry);
        pending.waiting.extend(waiting);
        let has_ended = pending.has_ended;
        drop(pending);
        if has_ended {
            self.write();
        } else if is_urgent {
            self.0.urgent.notify_one();
        }
    }

    /// Records that certificates were issued. Those of the same holder in one batch become one entry.
    pub(crate) fn record_issued(&self, holder: CertificateHolder, count: u64) {
        self.0.pending.lock().issued.add(holder, count, Timestamp::now());
    }

    /// Writes in batches until `shutdown`. Later entries are written at once by those who record them.
    pub(crate) async fn run(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut has_ended = false;
        while !has_ended {
            has_ended = tokio::select! {
                () = shutdown.cancelled() => true,
                () = self.0.urgent.notified() => false,
                () = sleep(WRITE_INTERVAL) => false,
            };
            self.0.pending.lock().has_ended = has_ended;
            // The disk may be slow: other tasks continue on other threads.
            tokio::task::block_in_place(|| self.write());
        }
        Ok(())
    }

    /// Writes what is pending, for tests without the task.
    #[cfg(test)]
    pub(crate) fn flush(&self) {
        self.write();
    }

    /// Appends all pending entries to the store.
    fn write(&self) {
        let _writing = self.0.writing.lock();
        let (mut entries, waiting) = self.0.pending.lock().take();
        if !entries.is_empty() {
            let written = self.0.state.append_journal(&mut entries);
            let mut pending = self.0.pending.lock();
            match written {
                Ok(()) => {
                    let dropped = std::mem::take(&mut pending.unreported);
                    if std::mem::take(&mut pending.is_failing) {
                        tracing::info!(dropped, "the journal is written again");
                    } else if dropped > 0 {
                        tracing::warn!(dropped, "journal entries were lost: too many at once");
                    }
                }
                Err(error) => {
                    pending.put_back(entries);
                    if !std::mem::replace(&mut pending.is_failing, true) {
                        tracing::error!(
                            error = chain(&error),
                            action =
                                "retrying every second; entries are kept in memory, up to a bound",
                            "cannot write the journal"
                        );
                    }
                }
            }
        }
        for waiting in waiting {
            // The operator may have given up.
            let _ = waiting.send(());
        }
    }

    /// The stored entries of a query. Blocks on the store.
    pub(crate) fn page(&self, query: &JournalQuery) -> Result<JournalPage, ApiError> {
        let limit = Some(query.limit.unwrap_or(MAX_JOURNAL_PAGE).min(MAX_JOURNAL_PAGE));
        let page = self.0.state.journal(&JournalQuery { limit, ..*query });
        let (entries, last) = page.map_err(|error| ApiError::Internal(chain(&error)))?;
        Ok(JournalPage { entries, last, dropped: self.0.pending.lock().dropped })
    }

    /// How many entries are not stored yet, and how many were lost since the start.
    pub(crate) fn queue(&self) -> (usize, u64) {
        let pending = self.0.pending.lock();
        (pending.len(), pending.dropped)
    }

    /// Whether the newest stored change of policy with the same outcome has the same revision: then a start with
    /// that revision changes nothing.
    pub(crate) fn has_policy(&self, entry: &JournalEntry) -> bool {
        let is_done = |entry: &JournalEntry| entry.outcome == JournalOutcome::Done;
        let newest = |kind| {
            let query =
                JournalQuery { kind: Some(kind), limit: Some(SEARCHED), ..JournalQuery::default() };
            let (entries, _) = self.0.state.journal(&query).ok()?;
            let is_same = |one: &JournalEntry| {
                one.subject.revision.is_some() && is_done(one) == is_done(entry)
            };
            entries.into_iter().rev().find(is_same)
        };
        let newest = JournalKind::OF_POLICY.into_iter().filter_map(newest);
        let newest = newest.max_by_key(|entry| entry.sequence);
        newest.is_some_and(|newest| newest.subject.revision == entry.subject.revision)
    }
}

/// The entry of the first connection of a proxy, from this address.
pub(crate) fn claim(record: &JoinRecord, address: SocketAddr, at: Timestamp) -> JournalEntry {
    let subject = JournalSubject {
        proxy: Some(record.id),
        name: record.name.as_ref().map(ToString::to_string),
        services: few(&record.services),
        ..JournalSubject::default()
    };
    let origin = Some(address.to_string());
    JournalEntry { subject, origin, ..JournalEntry::new(at, JournalKind::Claim, Actor::Proxy) }
}

/// The most services that an entry names, and the most characters of a text in it: a request may have any number.
const MAX_SERVICES: usize = 20;
const MAX_TEXT: usize = 500;

pub(crate) fn few<T: Clone>(services: &[T]) -> Vec<T> {
    services.iter().take(MAX_SERVICES).cloned().collect()
}

/// A text as one line of bounded length.
pub(crate) fn line(text: &str) -> String {
    let text = ironmesh_catalog::text::escape_line(text.trim_end());
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into_owned(),
    }
}
