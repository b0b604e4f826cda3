//! The limit of connections: so many for all clients, and so many for each.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::Limits;
use crate::memory_quota::{ClientRoom, MemoryQuota, Rooms};

#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    limits: Limits,
    rooms: Rooms,
    hasher: RandomState,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By the hash of who it is, whose key is ours alone: nobody can look for two that share their seats.
    by_owner: BTreeMap<u64, Client>,
}

/// What a client has.
#[derive(Debug)]
struct Client {
    connections: usize,
    room: ClientRoom,
}

/// What the one who claims a seat may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Have streams.
    Granted,
    /// Be told why it may have none.
    TooMany,
    /// Nothing: too many of this client are being told already.
    FarTooMany,
}

impl ConnectionLimit {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let rooms = Rooms::new(&limits);
        Arc::new(Self { limits, rooms, hasher: RandomState::new(), taken: Mutex::default() })
    }

    /// A seat for a connection, if there is one.
    pub(crate) fn take(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut taken = self.taken.lock();
        if taken.all >= self.limits.connections {
            return None;
        }
        taken.all += 1;
        let room = self.rooms.of_connection(&self.rooms.of_client());
        Some(ConnectionPermit { seats: Arc::clone(self), owner: None, room })
    }
}

/// A seat of a connection, for as long as this is there.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    seats: Arc<ConnectionLimit>,
    owner: Option<u64>,
    room: MemoryQuota,
}

impl ConnectionPermit {
    /// Says whose seat it is.
    pub(crate) fn claim(&mut self, owner: &[u8]) -> Claim {
        let owner = self.seats.hasher.hash_one(owner);
        let most = self.seats.limits.connections_per_client;
        let mut taken = self.seats.taken.lock();
        let client = taken
            .by_owner
            .entry(owner)
            .or_insert_with(|| Client { connections: 0, room: self.seats.rooms.of_client() });
        let claim = match client.connections {
            count if count < most => Claim::Granted,
            count if count < 2 * most => Claim::TooMany,
            _ => return Claim::FarTooMany,
        };
        client.connections += 1;
        self.room = self.seats.rooms.of_connection(&client.room);
        self.owner = Some(owner);
        claim
    }

    /// The room for what comes on it.
    pub(crate) fn room(&self) -> &MemoryQuota {
        &self.room
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        taken.all = taken.all.saturating_sub(1);
        let Some(owner) = self.owner else { return };
        if let Some(client) = taken.by_owner.get_mut(&owner) {
            client.connections = client.connections.saturating_sub(1);
            if client.connections == 0 {
                taken.by_owner.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_in_total_and_per_client() {
        let limits = Limits { connections: 7, connections_per_client: 2, ..Limits::default() };
        let seats = ConnectionLimit::new(limits);
        let sit = |owner: &[u8]| {
            let mut seat = seats.take().unwrap();
            (seat.claim(owner), seat)
        };
        let mut taken: Vec<_> = (0..4).map(|_| sit(b"one")).collect();
        let claims: Vec<_> = taken.iter().map(|(claim, _)| *claim).collect();
        assert_eq!(claims, [Claim::Granted, Claim::Granted, Claim::TooMany, Claim::TooMany]);
        assert_eq!(sit(b"one").0, Claim::FarTooMany);
        assert_eq!(sit(b"other").0, Claim::Granted);
        let others: Vec<_> = (0..3).map(|_| seats.take().unwrap()).collect();
        assert!(seats.take().is_none());
        taken.clear();
        drop(others);
        assert_eq!(sit(b"one").0, Claim::Granted);
        assert!(seats.taken.lock().by_owner.is_empty());
        assert_eq!(seats.taken.lock().all, 0);
    }
}
