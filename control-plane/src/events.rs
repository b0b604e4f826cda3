//! The events of the mesh: one bounded ring, which one task writes, and cursors of readers in it.
//!
//! Entries of the journal are durable: the store has them, and their number is the same at all control planes. So a reader
//! that returns gets each of them once, from the ring or from the store. All other events tell that an observed state has
//! changed; a reader that may have missed some gets a `reset` and reads the state again.

mod cursor;
mod observed;
mod ring;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ironmesh_admin::{ApiError, EventCursor};
use ironmesh_api::{EventId, EventKind, EventsQuery};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{JournalQuery, StoreError};
use ironmesh_store::MeshState;
use jiff::{Timestamp, Unit};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use cursor::Cursor;
pub(crate) use observed::{Observed, finding_key};
use ring::Ring;

/// The most events in the ring, and the most bytes of them.
const MAX_EVENTS: usize = 4_096;
const MAX_BYTES: usize = 8 << 20;

/// How many of the newest entries of the journal are in the ring at the start: readers of before resume without the store.
const ENTRIES_AT_START: usize = 1_000;

/// How many entries are read from the store at once.
const PAGE: usize = 500;

/// How many readers read entries from the store at once. Others wait.
const MAX_STORE_READS: usize = 2;

/// The pause before a new watch, after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// The content of an event that is no entry of the journal, and the time at which this control plane created it.
#[derive(Serialize)]
struct Timed<'a, T> {
    at: Timestamp,
    #[serde(flatten)]
    content: &'a T,
}

/// The time of an event. (No reader needs fractions below a millisecond.)
fn now() -> Timestamp {
    let now = Timestamp::now();
    now.round(Unit::Millisecond).unwrap_or(now)
}

/// The events of the mesh.
#[derive(Debug)]
pub(crate) struct Events {
    ring: Arc<Ring>,
    state: Arc<MeshState>,
    store_reads: Arc<Semaphore>,
}

impl Events {
    /// Opens the ring with the newest entries of the journal.
    pub(crate) fn open(state: Arc<MeshState>) -> Result<Self, StoreError> {
        let process = Uuid::new_v4().as_fields().0;
        let ring = Ring::new(process, MAX_EVENTS, MAX_BYTES);
        let limit = Some(ENTRIES_AT_START);
        let (entries, last) = state.journal(&JournalQuery { limit, ..JournalQuery::default() })?;
        // With fewer, the store has no older ones.
        let first = entries.first().filter(|_| entries.len() >= ENTRIES_AT_START);
        ring.start_after(first.map_or(0, |entry| entry.sequence.saturating_sub(1)));
        ring.push_entries(&entries, last);
        let store_reads = Arc::new(Semaphore::new(MAX_STORE_READS));
        Ok(Self { ring: Arc::new(ring), state, store_reads })
    }

    /// Adds an event about an observed state, with the time.
    pub(crate) fn publish(&self, kind: EventKind, content: &impl Serialize) {
        self.ring.push_observed(kind, &Timed { at: now(), content });
    }

    /// Adds the entries of the journal that all control planes append, until `shutdown`.
    pub(crate) async fn follow_journal(
        self: Arc<Self>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let once = async || -> anyhow::Result<()> {
            let mut watch = tokio::task::block_in_place(|| self.state.watch_journal())?;
            loop {
                watch.changed().await?;
                tokio::task::block_in_place(|| self.read_journal())?;
            }
        };
        let follow = async {
            loop {
                if let Err(error) = once().await {
                    let reason = chain(&*error);
                    tracing::debug!(reason, "the watch of the journal has ended");
                }
                sleep(RETRY).await;
            }
        };
        tokio::select! {
            () = follow => {}
            () = shutdown.cancelled() => {}
        }
        Ok(())
    }

    /// Reads the entries after those of the ring.
    fn read_journal(&self) -> Result<(), StoreError> {
        loop {
            let (after, limit) = (Some(self.ring.journal()), Some(PAGE));
            let query = JournalQuery { after, limit, ..JournalQuery::default() };
            let (entries, last) = self.state.journal(&query)?;
            let is_full = entries.len() >= PAGE;
            self.ring.push_entries(&entries, if is_full { 0 } else { last });
            if !is_full {
                return Ok(());
            }
        }
    }

    /// A reader of events; of those of the journal only if it may read that.
    pub(crate) fn cursor(
        &self,
        query: &EventsQuery,
        with_journal: bool,
    ) -> Result<Box<dyn EventCursor>, ApiError> {
        let since = query.since.as_deref().map(str::parse::<EventId>).transpose();
        let since = since.map_err(|error| ApiError::BadRequest(format!("`since`: {error}")))?;
        let cursor = Cursor::new(
            Arc::clone(&self.ring),
            Arc::clone(&self.state),
            Arc::clone(&self.store_reads),
            since,
            query.follow.unwrap_or(true),
            with_journal,
        );
        Ok(Box::new(cursor))
    }
}
