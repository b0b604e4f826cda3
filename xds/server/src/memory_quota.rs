//! Memory for requests that have come in part.
//!
//! A request is read when it is whole, and may be of 4 MiB: one client that begins one on each of its
//! streams, and ends none, would have us hold 4 GiB. So such a request takes room of its client, and of
//! what its connection has for itself or else of what there is for all; and where there is none, it is
//! refused. (To let it wait would be to let those wait behind it who do no harm.)
//!
//! Answers about a client's status are as large as what it is to have, and are held for nobody else: there
//! is one at a time for each client, until its last byte has left.
//!
//! Who tells of calls does so on connections of their own: they have seats that xDS may need, so that there
//! are fewer of them, and at a pace for each client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::Limits;
use crate::rate_limiter::RateLimiter;

/// What each connection has for itself, in bytes: an Envoy's first request has 61 KB, and some hundred for
/// each cluster that it has already. So that is room for 1,900 of them; what brings more along takes of
/// what there is for all.
const CONNECTION_QUOTA: usize = 256 << 10;

/// How many answers about a client's status are made at once. Each has a thread to itself, and so many
/// leave others time on two cores.
const MAX_BUILDING: usize = 2;

/// How often a client may tell of calls, on all its streams, and how many times at once.
const LOG_INTERVAL: Duration = Duration::from_millis(5);
const LOG_BURST: u32 = 400;

/// The room for all clients.
#[derive(Debug, Clone)]
pub(crate) struct QuotaPool {
    all: Arc<Semaphore>,
    per_client: usize,
    /// For those who make an answer about a client's status.
    building: Arc<Semaphore>,
    /// For streams that tell of calls: of all, and how many of them one client may have.
    logs: Arc<Semaphore>,
    logs_per_client: usize,
}

/// The room for one client, on all its connections.
#[derive(Debug, Clone)]
pub(crate) struct ClientQuota {
    requests: Arc<Semaphore>,
    /// For the one answer about its status.
    answer: Arc<Semaphore>,
    /// For its streams that tell of calls, and how fast they may.
    logs: Arc<Semaphore>,
    log_limiter: Arc<Mutex<RateLimiter>>,
}

/// The room for the streams of one connection.
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

/// Memory that is taken, for as long as this is there.
#[derive(Debug)]
pub(crate) struct QuotaShare {
    _client: OwnedSemaphorePermit,
    _connection_or_all: OwnedSemaphorePermit,
}

/// There is no room for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaExceeded {
    #[error("this client has begun too many large requests: end some before others are begun")]
    PerClient,
    #[error("the control plane has no room for so large a request now: try again later")]
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

    /// The room for one more client.
    pub(crate) fn client_quota(&self) -> ClientQuota {
        ClientQuota {
            requests: semaphore(self.per_client),
            answer: semaphore(1),
            logs: semaphore(self.logs_per_client),
            log_limiter: Arc::new(Mutex::new(RateLimiter::new(LOG_INTERVAL, LOG_BURST))),
        }
    }

    /// The room for one more connection of a client.
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
    /// Takes room for a request of so many bytes.
    pub(crate) fn hold(&self, bytes: u32) -> Result<QuotaShare, QuotaExceeded> {
        let take = |quota: &Arc<Semaphore>| Arc::clone(quota).try_acquire_many_owned(bytes);
        let client = take(&self.client).map_err(|_| QuotaExceeded::PerClient)?;
        let other = take(&self.connection).or_else(|_| take(&self.all));
        let other = other.map_err(|_| QuotaExceeded::Total)?;
        Ok(QuotaShare { _client: client, _connection_or_all: other })
    }

    /// The room for one answer about the client's status, when there is none of it under way.
    pub(crate) async fn answer(&self) -> Option<OwnedSemaphorePermit> {
        // (It is never closed.)
        Arc::clone(&self.answer).acquire_owned().await.ok()
    }

    /// The room for one stream that tells of calls, if there is any.
    pub(crate) fn log(&self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let take = |quota: &Arc<Semaphore>| Arc::clone(quota).try_acquire_owned().ok();
        take(&self.client_logs).zip(take(&self.all_logs))
    }

    /// How fast the client may tell of calls.
    pub(crate) fn log_limiter(&self) -> &Mutex<RateLimiter> {
        &self.log_limiter
    }

    /// The turn to make one.
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
        // Another client has room of its own, and what is left of that for all.
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

    // A client does not have more held for it by having more connections.
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

    // What an Envoy says at first is 61 KB, and what it has of 1,900 clusters, or some calls that it tells of.
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
