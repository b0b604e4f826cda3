//! The queue of TLS handshakes, counted by source: silent connections, those that wait for a
//! handshake slot, and those that have one.
//!
//! One source can fill only what other sources do not use. Beyond the limit, a connection of the
//! source with the most of them is evicted. This module decides which; it opens no connection and
//! knows no TLS.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// The time for which a connection keeps its slot in any case. A silent client has no slot.
pub(super) const SLOT_TIME: Duration = Duration::from_secs(2);

/// The number of silent connections, and of waiting ones, per slot.
const QUEUE_PER_SLOT: usize = 4;

/// The number of a connection, in order of arrival.
type Id = u64;

/// The addresses of one machine, or of one site behind NAT: an IPv4 address, or an IPv6 network of
/// 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    V4([u8; 4]),
    V6([u16; 4]),
}

impl Source {
    fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

/// A connection that was closed in favour of others, or because it kept its slot too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EvictedConnection(pub(super) SocketAddr);

/// All connections before the end of their handshakes.
#[derive(Debug)]
pub(super) struct HandshakeQueue {
    /// The number of slots.
    slots: usize,
    state: Mutex<State>,
    /// Wakes [`HandshakeQueue::may_accept`] and [`HandshakeQueue::next_evicted`].
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    last_id: Id,
    tasks: BTreeMap<Id, (AbortHandle, SocketAddr)>,
    silent: Group<()>,
    waiting: Group<oneshot::Sender<()>>,
    in_slot: Group<Instant>,
    /// The last time a connection lost its slot because it kept it too long.
    last_timed_out: Option<Instant>,
}

/// Connections in one state, by arrival and by source.
#[derive(Debug)]
struct Group<T> {
    by_id: BTreeMap<Id, (Source, T)>,
    by_source: BTreeMap<Source, BTreeSet<Id>>,
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self { by_id: BTreeMap::new(), by_source: BTreeMap::new() }
    }
}

impl<T> Group<T> {
    fn len(&self) -> usize {
        self.by_id.len()
    }

    fn of(&self, source: Source) -> usize {
        self.by_source.get(&source).map_or(0, BTreeSet::len)
    }

    /// The connections of the source that has the most.
    fn largest_source(&self) -> Option<&BTreeSet<Id>> {
        self.by_source.values().max_by_key(|ids| ids.len())
    }

    fn insert(&mut self, id: Id, source: Source, value: T) {
        self.by_id.insert(id, (source, value));
        self.by_source.entry(source).or_default().insert(id);
    }

    fn remove(&mut self, id: Id) -> Option<(Source, T)> {
        let (source, value) = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_source.get_mut(&source) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_source.remove(&source);
            }
        }
        Some((source, value))
    }
}

impl State {
    fn close(&mut self, id: Id) -> Option<EvictedConnection> {
        self.silent.remove(id);
        self.waiting.remove(id);
        self.in_slot.remove(id);
        let (task, address) = self.tasks.remove(&id)?;
        task.abort();
        Some(EvictedConnection(address))
    }

    /// Assigns free slots to waiting connections: first to a source that has the fewest.
    fn assign_slots(&mut self, slots: usize) {
        while self.in_slot.len() < slots {
            let fewest = self
                .waiting
                .by_source
                .iter()
                .min_by_key(|(source, ids)| (self.in_slot.of(**source), ids.first().copied()));
            let Some(id) = fewest.and_then(|(_, ids)| ids.first().copied()) else { return };
            let Some((source, slot)) = self.waiting.remove(id) else { return };
            // A task that has just been aborted does not take the slot, and returns it by its
            // guard.
            self.in_slot.insert(id, source, Instant::now());
            let _ = slot.send(());
        }
    }
}

impl HandshakeQueue {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots, state: Mutex::default(), changed: Notify::new() }
    }

    fn max_queued(&self) -> usize {
        QUEUE_PER_SLOT * self.slots
    }

    /// Adds a silent connection, whose task `begin` starts. If there are too many, the oldest one
    /// of the largest source is closed and returned.
    pub(super) fn enter(
        &self,
        address: SocketAddr,
        begin: impl FnOnce(Id) -> AbortHandle,
    ) -> Option<EvictedConnection> {
        let mut state = self.state.lock();
        let oldest = state.silent.largest_source().and_then(BTreeSet::first).copied();
        let is_full = state.silent.len() >= self.max_queued();
        let evicted = oldest.filter(|_| is_full).and_then(|oldest| state.close(oldest));
        state.last_id += 1;
        let id = state.last_id;
        state.silent.insert(id, Source::of(address), ());
        // The task waits for the lock if it runs before this returns.
        let task = begin(id);
        state.tasks.insert(id, (task, address));
        evicted
    }

    /// Moves a connection whose ClientHello has arrived to those that wait for a slot.
    ///
    /// Returns what receives the slot, and a connection that was closed: if too many wait, the
    /// newest one of the largest source, which may be this one.
    pub(super) fn hello_received(
        &self,
        id: Id,
    ) -> (oneshot::Receiver<()>, Option<EvictedConnection>) {
        let (slot, granted) = oneshot::channel();
        let mut state = self.state.lock();
        let mut evicted = None;
        if let Some((source, ())) = state.silent.remove(id) {
            state.waiting.insert(id, source, slot);
            state.assign_slots(self.slots);
            if state.waiting.len() > self.max_queued() {
                let newest = state.waiting.largest_source().and_then(BTreeSet::last).copied();
                evicted = newest.and_then(|newest| state.close(newest));
            }
        }
        drop(state);
        self.changed.notify_waiters();
        (granted, evicted)
    }

    /// Removes a connection, whatever its state.
    pub(super) fn leave(&self, id: Id) {
        let mut state = self.state.lock();
        state.silent.remove(id);
        state.waiting.remove(id);
        state.in_slot.remove(id);
        state.tasks.remove(&id);
        state.assign_slots(self.slots);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns when one more connection may be accepted: at once, except in a storm of clients that
    /// all make progress. Then further ones wait in the system's own queue.
    pub(super) async fn may_accept(&self) {
        loop {
            let changed = self.changed.notified();
            let is_storm = {
                let state = self.state.lock();
                let is_calm = |at: Instant| at.elapsed() > 2 * SLOT_TIME;
                state.waiting.len() >= self.max_queued() && state.last_timed_out.is_none_or(is_calm)
            };
            if !is_storm {
                return;
            }
            changed.await;
        }
    }

    /// Waits until a connection has kept its slot too long while others wait, and closes it.
    pub(super) async fn next_evicted(&self) -> EvictedConnection {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut state = self.state.lock();
                let oldest = state.in_slot.by_id.iter().min_by_key(|(_, (_, since))| *since);
                let oldest = oldest.map(|(id, (_, since))| (*id, *since + SLOT_TIME));
                let oldest = oldest.filter(|_| state.waiting.len() > 0);
                if let Some((id, due)) = oldest
                    && due <= Instant::now()
                    && let Some(evicted) = state.close(id)
                {
                    state.last_timed_out = Some(Instant::now());
                    state.assign_slots(self.slots);
                    drop(state);
                    self.changed.notify_waiters();
                    return evicted;
                }
                oldest.map(|(_, due)| due)
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
