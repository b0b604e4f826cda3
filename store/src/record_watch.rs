//! The watch of a table: the keys that changed since its reader read last, with their versions.
//!
//! It is level-triggered: several changes of one record are one, so it is bounded by the records of the table. It
//! needs no runtime: any executor can wait for it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::record_store::{RecordError, RecordVersion};

/// The changed records of a table: their versions, or none for removed ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// Whether these are all records of the table, as at the begin of a watch: the table has no others.
    pub is_complete: bool,
    /// The version of each changed record, by key; none if it was removed.
    pub records: BTreeMap<String, Option<RecordVersion>>,
}

/// The reading side of a watch. A store ends it when it cannot report changes any more; its reader then begins a new
/// one.
pub struct RecordWatch(Arc<Mutex<State>>);

/// The writing side of a watch, kept by a store. The watch ends when this is dropped.
pub struct RecordWatchSender(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    unread: Option<TableChanges>,
    has_ended: bool,
    waker: Option<Waker>,
}

impl RecordWatch {
    /// A watch whose first changes are the current state: the versions of all records by their keys.
    pub fn new(current: BTreeMap<String, RecordVersion>) -> (RecordWatchSender, Self) {
        let records = current.into_iter().map(|(key, version)| (key, Some(version))).collect();
        let unread = Some(TableChanges { is_complete: true, records });
        let state = Arc::new(Mutex::new(State { unread, ..State::default() }));
        (RecordWatchSender(Arc::clone(&state)), Self(state))
    }

    /// Waits for changes since the last call. The first call returns the current state. Fails when the watch has
    /// ended.
    pub async fn changed(&mut self) -> Result<TableChanges, RecordError> {
        poll_fn(|context: &mut Context<'_>| self.poll(context)).await
    }

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<TableChanges, RecordError>> {
        let mut state = self.0.lock();
        if let Some(changes) = state.unread.take() {
            return Poll::Ready(Ok(changes));
        }
        if state.has_ended {
            return Poll::Ready(Err(RecordError::Unavailable("the watch has ended".into())));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl fmt::Debug for RecordWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordWatch").finish_non_exhaustive()
    }
}

impl RecordWatchSender {
    /// Reports records with their versions; none if they were removed.
    pub fn send<'a>(&self, records: impl IntoIterator<Item = (&'a str, Option<RecordVersion>)>) {
        let mut state = self.0.lock();
        let unread = state.unread.get_or_insert_default();
        unread.records.extend(records.into_iter().map(|(key, version)| (key.to_owned(), version)));
        let waker = state.waker.take();
        drop(state);
        waker.iter().for_each(Waker::wake_by_ref);
    }

    /// Whether nothing reads the watch any more.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Drop for RecordWatchSender {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        let waker = state.waker.take();
        drop(state);
        waker.iter().for_each(Waker::wake_by_ref);
    }
}

impl fmt::Debug for RecordWatchSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordWatchSender").finish_non_exhaustive()
    }
}
