//! The cursor of a reader of events: what it has, and what it gets next.
//!
//! The number of the newest entry that it sent decides alone which entries follow, wherever they are read. So each entry is
//! sent once.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ironmesh_admin::EventCursor;
use ironmesh_api::{EventId, EventKind, LaggedEvent, ResetEvent};
use ironmesh_catalog::JournalQuery;
use ironmesh_catalog::text::chain;
use ironmesh_store::MeshState;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::ring::{MAX_BATCH, Position, Ring, RingBatch, Wanted, body, frame};
use super::{Timed, now};

/// How long a reader waits that has a newer entry than this control plane. Another one may have sent it, and this one gets it
/// within moments; otherwise its id is of another store.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The paths of observed states.
const OBSERVED: [&str; 5] =
    ["/readyz", "/v1/convergence", "/v1/findings", "/v1/providers", "/v1/proxies"];

/// The cursor.
#[derive(Debug)]
pub(super) struct Cursor {
    ring: Arc<Ring>,
    state: Arc<MeshState>,
    store_reads: Arc<Semaphore>,
    news: watch::Receiver<()>,
    phase: Phase,
    /// The number of the newest entry that the reader has.
    journal: u64,
    follows: bool,
    with_journal: bool,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// It begins now.
    Begin,
    /// It has entries, and its place in the ring is not known. Once it has newer entries than the ring, this time bounds its
    /// wait for the ring.
    Locate(Option<Instant>),
    /// It gets the entries before `end`, which it missed.
    Replay {
        place: u64,
        end: u64,
        journal_at_end: u64,
    },
    /// It gets all events from this place on.
    Live(u64),
    Ended,
}

impl Cursor {
    pub(super) fn new(
        ring: Arc<Ring>,
        state: Arc<MeshState>,
        store_reads: Arc<Semaphore>,
        since: Option<EventId>,
        follows: bool,
        with_journal: bool,
    ) -> Self {
        let news = ring.news();
        let (phase, journal) = match since {
            None if follows => (Phase::Begin, 0),
            None => {
                let (place, journal) = ring.begin();
                (Phase::Live(place), journal)
            }
            Some(id) => match ring.place_after(id) {
                Some(place) => (Phase::Live(place), id.journal),
                None if with_journal => (Phase::Locate(None), id.journal),
                None => (Phase::Begin, 0),
            },
        };
        Self { ring, state, store_reads, news, phase, journal, follows, with_journal }
    }

    /// The next events; none at the end of the stream.
    pub(super) async fn take(&mut self) -> Option<Vec<Bytes>> {
        loop {
            // Before the ring is read: what is added meanwhile wakes the wait below.
            self.news.mark_unchanged();
            match self.phase {
                Phase::Begin => return Some(self.begin(&[])),
                Phase::Locate(deadline) => match self.ring.position(self.journal) {
                    Position::At { place, end, journal } => {
                        self.phase = Phase::Replay { place, end, journal_at_end: journal };
                    }
                    Position::Before(base) => {
                        let entries = self.read_store(base).await?;
                        if !entries.is_empty() {
                            return Some(entries);
                        }
                    }
                    Position::After => {
                        let deadline = deadline.unwrap_or_else(|| Instant::now() + CATCH_UP);
                        self.phase = Phase::Locate(Some(deadline));
                        if timeout_at(deadline, self.news.changed()).await.is_err() {
                            return Some(self.begin(&["/v1/journal"]));
                        }
                    }
                },
                Phase::Replay { place, end, journal_at_end } => {
                    if place >= end {
                        // What was added since is after this place.
                        let id = self.ring.id_before(end, journal_at_end);
                        (self.phase, self.journal) = (Phase::Live(end), journal_at_end);
                        return Some(vec![frame(id, EventKind::Reset, &timed(&reset(&[])))]);
                    }
                    let wanted = Wanted::EntriesBefore(end);
                    match self.ring.take(place, self.journal, wanted) {
                        RingBatch::Events(frames, next, journal) => {
                            self.journal = journal;
                            self.phase = Phase::Replay { place: next, end, journal_at_end };
                            if !frames.is_empty() {
                                return Some(frames);
                            }
                        }
                        RingBatch::Overtaken => {
                            self.phase = Phase::Locate(None);
                        }
                    }
                }
                Phase::Live(place) => {
                    let wanted = Wanted::All { with_journal: self.with_journal };
                    match self.ring.take(place, self.journal, wanted) {
                        RingBatch::Events(frames, next, journal) => {
                            self.journal = journal;
                            self.phase = Phase::Live(next);
                            if !frames.is_empty() {
                                return Some(frames);
                            }
                            if next == place {
                                if !self.follows {
                                    self.phase = Phase::Ended;
                                    return None;
                                }
                                // (Without a sender, the control plane stops.)
                                self.news.changed().await.ok()?;
                            }
                        }
                        RingBatch::Overtaken => {
                            self.phase = Phase::Ended;
                            return Some(vec![lagged()]);
                        }
                    }
                }
                Phase::Ended => return None,
            }
        }
    }

    /// Begins at the end of the ring, with a `reset` that also names the paths of `more`.
    fn begin(&mut self, more: &[&str]) -> Vec<Bytes> {
        let (place, journal) = self.ring.end();
        (self.phase, self.journal) = (Phase::Live(place), journal);
        vec![frame(self.ring.id_before(place, journal), EventKind::Reset, &timed(&reset(more)))]
    }

    /// The next entries from the store, where all up to `base` are that are older than those of the ring. None if the store
    /// cannot be read: the reader resumes later.
    async fn read_store(&mut self, base: u64) -> Option<Vec<Bytes>> {
        let permit = Arc::clone(&self.store_reads).acquire_owned().await.ok()?;
        let (state, after) = (Arc::clone(&self.state), Some(self.journal));
        let read = tokio::task::spawn_blocking(move || {
            let page = state.journal(&JournalQuery {
                after,
                limit: Some(MAX_BATCH),
                ..JournalQuery::default()
            });
            drop(permit);
            page
        });
        let entries = match read.await.ok()? {
            Ok((entries, _)) => entries,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "cannot read the journal for a reader of events"
                );
                return None;
            }
        };
        // After a page that is not full, the store has no readable entries up to `base`.
        let is_full = entries.len() >= MAX_BATCH;
        let last = entries.last().map_or(self.journal, |entry| entry.sequence);
        self.journal = if is_full { last } else { last.max(base) };
        let frames = entries.iter().map(|entry| {
            let id = EventId { journal: entry.sequence, place: None };
            frame(id, EventKind::Journal, entry)
        });
        Some(frames.collect())
    }
}

impl EventCursor for Cursor {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<Bytes>>> + Send + '_>> {
        Box::pin(self.take())
    }
}

fn timed<T>(content: &T) -> Timed<'_, T> {
    Timed { at: now(), content }
}

fn reset(more: &[&str]) -> ResetEvent {
    ResetEvent { read_again: OBSERVED.iter().chain(more).map(|&path| path.to_owned()).collect() }
}

/// Has no id: a reader resumes after the last event that it has.
fn lagged() -> Bytes {
    let message =
        "the reader is slower than events are added: connect again with the id of the last event";
    body(EventKind::Lagged, &timed(&LaggedEvent { message: message.to_owned() })).into()
}
