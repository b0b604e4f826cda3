//! Memory quotas for incomplete requests.
//!
//! A request is decoded when it is complete, and may have 4 MiB. A client that starts one on each
//! of its streams, and ends none, would make the server hold 4 GiB. So an incomplete request takes
//! a share of its client's quota, and of its connection's own or else of the quota for all. Without
//! a share it is rejected: to let it wait would delay harmless requests behind it.
//!
//! An answer about a client's status is as large as the client's resource set, and no other client
//! shares its bytes. Each client has one at a time, until its last byte has left.
//!
//! Access logs have connections of their own, which xDS may need: so their number is limited, and
//! so is their rate for each client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::Limits;
use crate::rate_limiter::RateLimiter;

/// The bytes of each connection's own quota. An Envoy's first request has 61 KB, and some hundred
/// bytes for each cluster that it has already. So this fits 1,900 clusters; a larger request takes
/// from the quota for all.
const CONNECTION_QUOTA: usize = 256 << 10;

/// The number of status answers that are built at one time. Each has a thread of its own, and so
/// many leave time for others on two cores.
const MAX_BUILDING: usize = 2;

/// The interval at which a client may send messages of access logs, on all its streams, and the
/// burst.
const LOG_INTERVAL: Duration = Duration::from_millis(5);
const LOG_BURST: u32 = 400;

/// The quotas for all clients.
#[derive(Debug, Clone)]
pub(crate) struct QuotaPool {
    all: Arc<Semaphore>,
    per_client: usize,
    /// Permits to build a status answer.
    building: Arc<Semaphore>,
    /// Permits for access log streams of all clients, and the number that one client may have.
    logs: Arc<Semaphore>,
    logs_per_client: usize,
}

/// The quotas of one client, on all its connections.
#[derive(Debug, Clone)]
pub(crate) struct ClientQuota {
    requests: Arc<Semaphore>,
    /// The permit for its one status answer.
    answer: Arc<Semaphore>,
    /// Permits for its access log streams, and their rate limit.
    logs: Arc<Semaphore>,
    log_limiter: Arc<Mutex<RateLimiter>>,
}

/// The quotas for the streams of one connection.
#[derive(Debug, Clone)]
pub(crate) struct MemoryQuota {
    connection: Arc<Semaphore>,
    client: Arc<Semaphore>,
    all: Arc<Semaphore>,
    answer: Arc<Semaphore>,
    building: Arc<Semaphore>,
    client_logs: Arc<Semaphore>,
    all_logs: Arc<Semaphore>,
    log_limiter: Arc<Mutex<RateLimiter>>,
}

/// Memory of an incomplete request, released on drop.
#[derive(Debug)]
pub(crate) struct QuotaShare {
    _client: OwnedSemaphorePermit,
    _connection_or_all: OwnedSemaphorePermit,
}

/// The quota that a request exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaExceeded {
    #[error(
        "this client has too many large incomplete requests: complete some before you start others"
    )]
    PerClient,
    #[error("the memory quota for incomplete requests is exhausted: try again later")]
    Total,
}

impl QuotaPool {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            all: semaphore(limits.unfinished),
            per_client: limits.unfinished_per_client,
            building: semaphore(MAX_BUILDING),
            logs: semaphore(limits.connections / 4),
            logs_per_client: limits.connections_per_client / 4 * 3,
        }
    }

    /// Creates the quotas of one more client.
    pub(crate) fn client_quota(&self) -> ClientQuota {
        ClientQuota {
            requests: semaphore(self.per_client),
            answer: semaphore(1),
            logs: semaphore(self.logs_per_client),
            log_limiter: Arc::new(Mutex::new(RateLimiter::new(LOG_INTERVAL, LOG_BURST))),
        }
    }

    /// Creates the quotas of one more connection of a client.
    pub(crate) fn connection_quota(&self, client: &ClientQuota) -> MemoryQuota {
        MemoryQuota {
            connection: semaphore(CONNECTION_QUOTA),
            client: Arc::clone(&client.requests),
            all: Arc::clone(&self.all),
            answer: Arc::clone(&client.answer),
            building: Arc::clone(&self.building),
            client_logs: Arc::clone(&client.logs),
            all_logs: Arc::clone(&self.logs),
            log_limiter: Arc::clone(&client.log_limiter),
        }
    }
}

impl MemoryQuota {
    /// Takes quota for a request of `bytes`.
    pub(crate) fn hold(&self, bytes: u32) -> Result<QuotaShare, QuotaExceeded> {
        let take = |quota: &Arc<Semaphore>| Arc::clone(quota).try_acquire_many_owned(bytes);
        let client = take(&self.client).map_err(|_| QuotaExceeded::PerClient)?;
        let other = take(&self.connection).or_else(|_| take(&self.all));
        let other = other.map_err(|_| QuotaExceeded::Total)?;
        Ok(QuotaShare { _client: client, _connection_or_all: other })
    }

    /// Waits for the permit to hold one answer about the client's status.
    pub(crate) async fn answer(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.answer).acquire_owned().await.ok()
    }

    /// Takes permits for one access log stream, if there are any.
    pub(crate) fn log(&self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let take = |quota: &Arc<Semaphore>| Arc::clone(quota).try_acquire_owned().ok();
        take(&self.client_logs).zip(take(&self.all_logs))
    }

    /// The rate limit of the client's access logs.
    pub(crate) fn log_limiter(&self) -> &Mutex<RateLimiter> {
        &self.log_limiter
    }

    /// Waits for a permit to build a status answer.
    pub(crate) async fn building(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.building).acquire_owned().await.ok()
    }
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_quota_is_held_per_client_and_in_total_and_released() {
        let limits =
            Limits { unfinished_per_client: 600 << 10, unfinished: 1 << 20, ..Limits::default() };
        let pool = QuotaPool::new(&limits);
        let client = pool.client_quota();
        let (one, other) = (pool.connection_quota(&client), pool.connection_quota(&client));
        let large = one.hold(500 << 10).unwrap();
        assert_eq!(other.hold(101 << 10).unwrap_err(), QuotaExceeded::PerClient);
        let small = other.hold(100 << 10).unwrap();
        // Another client has a quota of its own, and what is left of the quota for all.
        let second = pool.connection_quota(&pool.client_quota());
        let rest = second.hold(524 << 10).unwrap();
        assert_eq!(
            pool.connection_quota(&pool.client_quota()).hold(300 << 10).unwrap_err(),
            QuotaExceeded::Total
        );
        drop((large, small, rest));
        let again = other.hold(600 << 10).unwrap();
        assert_eq!(pool.all.available_permits(), (1 << 20) - (600 << 10));
        drop(again);
        assert_eq!(pool.all.available_permits(), 1 << 20);
    }

    // More connections do not allow a client more buffered answers.
    #[tokio::test]
    async fn one_buffered_answer_is_allowed_per_client() {
        let waits = async |quota: &MemoryQuota| {
            let mut answer = std::pin::pin!(quota.answer());
            std::future::poll_fn(|context| {
                std::task::Poll::Ready(answer.as_mut().poll(context).is_pending())
            })
            .await
        };
        let pool = QuotaPool::new(&Limits::default());
        let client = pool.client_quota();
        let (one, other) = (pool.connection_quota(&client), pool.connection_quota(&client));
        let answer = one.answer().await.unwrap();
        assert!(waits(&other).await);
        assert!(!waits(&pool.connection_quota(&pool.client_quota())).await);
        drop(answer);
        assert!(!waits(&other).await);
    }

    // A first request of an Envoy has 61 KB, and the versions of 1,900 clusters, or some logged
    // calls.
    #[test]
    fn memory_quota_fits_a_first_request_on_every_connection() {
        let limits = Limits { unfinished: 0, ..Limits::default() };
        let pool = QuotaPool::new(&limits);
        let mut held = Vec::new();
        let clients = limits.connections / limits.connections_per_client;
        for _ in 0..clients {
            let client = pool.client_quota();
            for n in 0..limits.connections_per_client {
                let is_log = n < limits.connections_per_client / 4 * 3;
                let more = if is_log { 16 << 10 } else { 1900 * 100 };
                held.push(pool.connection_quota(&client).hold((61 << 10) + more).unwrap());
            }
        }
        assert_eq!(held.len(), clients * limits.connections_per_client);
    }
}
