//! The connection limit: a maximum for all clients, and one for each.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::Limits;
use crate::memory_quota::{ClientQuota, MemoryQuota, QuotaPool};

#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    limits: Limits,
    pool: QuotaPool,
    hasher: RandomState,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    all: usize,
    /// By the hash of the owner, with a random key: a client cannot search for two owners with the same
    /// hash.
    by_owner: BTreeMap<u64, Client>,
}

/// The connections of one client, and its memory quota.
#[derive(Debug)]
struct Client {
    connections: usize,
    quota: ClientQuota,
}

/// What a connection may do once its owner is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Have streams.
    Granted,
    /// Only receive the reason: its client has too many connections.
    TooMany,
    /// Nothing: too many connections of this client are receiving the reason already.
    FarTooMany,
}

impl ConnectionLimit {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let pool = QuotaPool::new(&limits);
        Arc::new(Self { limits, pool, hasher: RandomState::new(), open: Mutex::default() })
    }

    /// Takes a permit for a connection, unless the limit for all clients is reached.
    pub(crate) fn acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut open = self.open.lock();
        if open.all >= self.limits.connections {
            return None;
        }
        open.all += 1;
        let quota = self.pool.connection_quota(&self.pool.client_quota());
        Some(ConnectionPermit { limit: Arc::clone(self), owner: None, quota })
    }
}

/// A permit for one connection, released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    owner: Option<u64>,
    quota: MemoryQuota,
}

impl ConnectionPermit {
    /// Assigns the permit to an owner, and checks that owner's limit.
    pub(crate) fn claim(&mut self, owner: &[u8]) -> Claim {
        let owner = self.limit.hasher.hash_one(owner);
        let most = self.limit.limits.connections_per_client;
        let mut open = self.limit.open.lock();
        let client = open
            .by_owner
            .entry(owner)
            .or_insert_with(|| Client { connections: 0, quota: self.limit.pool.client_quota() });
        let claim = match client.connections {
            count if count < most => Claim::Granted,
            count if count < 2 * most => Claim::TooMany,
            _ => return Claim::FarTooMany,
        };
        client.connections += 1;
        self.quota = self.limit.pool.connection_quota(&client.quota);
        self.owner = Some(owner);
        claim
    }

    /// The memory quota for requests on the connection.
    pub(crate) fn quota(&self) -> &MemoryQuota {
        &self.quota
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limit.open.lock();
        open.all = open.all.saturating_sub(1);
        let Some(owner) = self.owner else { return };
        if let Some(client) = open.by_owner.get_mut(&owner) {
            client.connections = client.connections.saturating_sub(1);
            if client.connections == 0 {
                open.by_owner.remove(&owner);
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
        let limit = ConnectionLimit::new(limits);
        let connect = |owner: &[u8]| {
            let mut permit = limit.acquire().unwrap();
            (permit.claim(owner), permit)
        };
        let mut open: Vec<_> = (0..4).map(|_| connect(b"one")).collect();
        let claims: Vec<_> = open.iter().map(|(claim, _)| *claim).collect();
        assert_eq!(claims, [Claim::Granted, Claim::Granted, Claim::TooMany, Claim::TooMany]);
        assert_eq!(connect(b"one").0, Claim::FarTooMany);
        assert_eq!(connect(b"other").0, Claim::Granted);
        let others: Vec<_> = (0..3).map(|_| limit.acquire().unwrap()).collect();
        assert!(limit.acquire().is_none());
        open.clear();
        drop(others);
        assert_eq!(connect(b"one").0, Claim::Granted);
        assert!(limit.open.lock().by_owner.is_empty());
        assert_eq!(limit.open.lock().all, 0);
    }
}
