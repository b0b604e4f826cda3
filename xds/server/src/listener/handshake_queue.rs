//! Who is on the way into TLS, counted by source: connections that have said nothing yet, those that wait
//! for a place to make their handshake, and those that have one.
//!
//! One source can fill only what other sources do not use. Where there is no room for one more, a
//! connection of the source with the most of them is closed. This module decides which; it opens no
//! connection and knows no TLS.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// How long one that has a place is safe from having to give it up. A client that has said nothing has no
/// place.
pub(super) const SLOT_TIME: Duration = Duration::from_secs(2);

/// For each place, how many connections may be silent, and how many may wait.
const QUEUE_PER_SLOT: usize = 4;

/// Connections in this order of arrival.
type Id = u64;

/// The addresses that one machine, or one site behind NAT, has: an IPv4 address, or an IPv6 network of
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

/// A connection that was closed to make room, or that kept its place for too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EvictedConnection(pub(super) SocketAddr);

/// All that are on the way.
#[derive(Debug)]
pub(super) struct HandshakeQueue {
    /// How many places there are.
    slots: usize,
    state: Mutex<State>,
    /// Tells when [`HandshakeQueue::room`] and [`HandshakeQueue::next_evicted`] are to look again.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    last_id: Id,
    tasks: BTreeMap<Id, (AbortHandle, SocketAddr)>,
    silent: Group<()>,
    waiting: Group<oneshot::Sender<()>>,
    in_slot: Group<Instant>,
    /// When one last gave up its place because it kept it for too long.
    last_timed_out: Option<Instant>,
}

/// Some of them, by arrival and by source.
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

    /// Those of the source that has the most.
    fn of_largest_source(&self) -> Option<&BTreeSet<Id>> {
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

    /// Gives free places to those who wait: first to a source that has the fewest.
    fn assign_slots(&mut self, slots: usize) {
        while self.in_slot.len() < slots {
            let fewest = self
                .waiting
                .by_source
                .iter()
                .min_by_key(|(source, ids)| (self.in_slot.of(**source), ids.first().copied()));
            let Some(id) = fewest.and_then(|(_, ids)| ids.first().copied()) else { return };
            let Some((source, slot)) = self.waiting.remove(id) else { return };
            // (One whose task has just been ended does not take it, and gives it back by its guard.)
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

    /// Takes in one that has said nothing yet. `begin` starts its task. Where there are too many of those,
    /// the oldest one of the source that has the most is closed, and returned.
    pub(super) fn enter(
        &self,
        address: SocketAddr,
        begin: impl FnOnce(Id) -> AbortHandle,
    ) -> Option<EvictedConnection> {
        let mut state = self.state.lock();
        let oldest = state.silent.of_largest_source().and_then(BTreeSet::first).copied();
        let is_full = state.silent.len() >= self.max_queued();
        let evicted = oldest.filter(|_| is_full).and_then(|oldest| state.close(oldest));
        state.last_id += 1;
        let id = state.last_id;
        state.silent.insert(id, Source::of(address), ());
        // (The task waits for the lock, should it come to that before this returns.)
        let task = begin(id);
        state.tasks.insert(id, (task, address));
        evicted
    }

    /// Takes note that a client has said all that it has to say first. Returns what tells when it has a
    /// place, and one that was closed: where too many wait, the newest one of the source of which the most
    /// do, which may be this one.
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
                let newest = state.waiting.of_largest_source().and_then(BTreeSet::last).copied();
                evicted = newest.and_then(|newest| state.close(newest));
            }
        }
        drop(state);
        self.changed.notify_waiters();
        (granted, evicted)
    }

    /// One has gone, in whatever way.
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

    /// Returns when one more may be accepted: at once, but in a storm of clients that all make progress.
    /// Then those wait in the system's own queue for whom there is no room.
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

    /// Waits until one has had its place for too long while others wait, and closes that one.
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
