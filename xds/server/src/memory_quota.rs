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
const OF_CONNECTION: usize = 256 << 10;

/// How many answers about a client's status are made at once. Each has a thread to itself, and so many
/// leave others time on two cores.
const MOST_MAKING: usize = 2;

/// How often a client may tell of calls, on all its streams, and how many times at once.
const LOG_PACE: Duration = Duration::from_millis(5);
const LOG_BURST: u32 = 400;

/// The room for all clients.
#[derive(Debug, Clone)]
pub(crate) struct Rooms {
    all: Arc<Semaphore>,
    per_client: usize,
    /// For those who make an answer about a client's status.
    making: Arc<Semaphore>,
    /// For streams that tell of calls: of all, and how many of them one client may have.
    logs: Arc<Semaphore>,
    logs_per_client: usize,
}

/// The room for one client, on all its connections.
#[derive(Debug, Clone)]
pub(crate) struct ClientRoom {
    requests: Arc<Semaphore>,
    /// For the one answer about its status.
    answer: Arc<Semaphore>,
    /// For its streams that tell of calls, and how fast they may.
    logs: Arc<Semaphore>,
    log_pace: Arc<Mutex<RateLimiter>>,
}

/// The room for the streams of one connection.
#[derive(Debug, Clone)]
pub(crate) struct MemoryQuota {
    connection: Arc<Semaphore>,
    client: Arc<Semaphore>,
    all: Arc<Semaphore>,
    answer: Arc<Semaphore>,
    making: Arc<Semaphore>,
    client_logs: Arc<Semaphore>,
    all_logs: Arc<Semaphore>,
    log_pace: Arc<Mutex<RateLimiter>>,
}

/// Memory that is taken, for as long as this is there.
#[derive(Debug)]
pub(crate) struct QuotaShare {
    _client: OwnedSemaphorePermit,
    _connection_or_all: OwnedSemaphorePermit,
}

/// There is no room for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    #[error("this client has begun too many large requests: end some before others are begun")]
    OfClient,
    #[error("the control plane has no room for so large a request now: try again later")]
    OfAll,
}

impl Rooms {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            all: room(limits.unfinished),
            per_client: limits.unfinished_per_client,
            making: room(MOST_MAKING),
            logs: room(limits.connections / 4),
            logs_per_client: limits.connections_per_client / 4 * 3,
        }
    }

    /// The room for one more client.
    pub(crate) fn of_client(&self) -> ClientRoom {
        ClientRoom {
            requests: room(self.per_client),
            answer: room(1),
            logs: room(self.logs_per_client),
            log_pace: Arc::new(Mutex::new(RateLimiter::new(LOG_PACE, LOG_BURST))),
        }
    }

    /// The room for one more connection of a client.
    pub(crate) fn of_connection(&self, client: &ClientRoom) -> MemoryQuota {
        MemoryQuota {
            connection: room(OF_CONNECTION),
            client: Arc::clone(&client.requests),
            all: Arc::clone(&self.all),
            answer: Arc::clone(&client.answer),
            making: Arc::clone(&self.making),
            client_logs: Arc::clone(&client.logs),
            all_logs: Arc::clone(&self.logs),
            log_pace: Arc::clone(&client.log_pace),
        }
    }
}

impl MemoryQuota {
    /// Takes room for a request of so many bytes.
    pub(crate) fn hold(&self, bytes: u32) -> Result<QuotaShare, NoRoom> {
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(bytes);
        let client = take(&self.client).map_err(|_| NoRoom::OfClient)?;
        let other = take(&self.connection).or_else(|_| take(&self.all));
        let other = other.map_err(|_| NoRoom::OfAll)?;
        Ok(QuotaShare { _client: client, _connection_or_all: other })
    }

    /// The room for one answer about the client's status, when there is none of it under way.
    pub(crate) async fn answer(&self) -> Option<OwnedSemaphorePermit> {
        // (It is never closed.)
        Arc::clone(&self.answer).acquire_owned().await.ok()
    }

    /// The room for one stream that tells of calls, if there is any.
    pub(crate) fn log(&self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_owned().ok();
        take(&self.client_logs).zip(take(&self.all_logs))
    }

    /// How fast the client may tell of calls.
    pub(crate) fn log_pace(&self) -> &Mutex<RateLimiter> {
        &self.log_pace
    }

    /// The turn to make one.
    pub(crate) async fn making(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.making).acquire_owned().await.ok()
    }
}

fn room(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_quota_is_held_per_client_and_in_total_and_released() {
        let limits =
            Limits { unfinished_per_client: 600 << 10, unfinished: 1 << 20, ..Limits::default() };
        let rooms = Rooms::new(&limits);
        let client = rooms.of_client();
        let (one, other) = (rooms.of_connection(&client), rooms.of_connection(&client));
        let large = one.hold(500 << 10).unwrap();
        assert_eq!(other.hold(101 << 10).unwrap_err(), NoRoom::OfClient);
        let small = other.hold(100 << 10).unwrap();
        // Another client has room of its own, and what is left of that for all.
        let second = rooms.of_connection(&rooms.of_client());
        let rest = second.hold(524 << 10).unwrap();
        assert_eq!(
            rooms.of_connection(&rooms.of_client()).hold(300 << 10).unwrap_err(),
            NoRoom::OfAll
        );
        drop((large, small, rest));
        let again = other.hold(600 << 10).unwrap();
        assert_eq!(rooms.all.available_permits(), (1 << 20) - (600 << 10));
        drop(again);
        assert_eq!(rooms.all.available_permits(), 1 << 20);
    }

    // A client does not have more held for it by having more connections.
    #[tokio::test]
    async fn one_buffered_answer_is_allowed_per_client() {
        let waits = async |room: &MemoryQuota| {
            let mut answer = std::pin::pin!(room.answer());
            std::future::poll_fn(|context| {
                std::task::Poll::Ready(answer.as_mut().poll(context).is_pending())
            })
            .await
        };
        let rooms = Rooms::new(&Limits::default());
        let client = rooms.of_client();
        let (one, other) = (rooms.of_connection(&client), rooms.of_connection(&client));
        let answer = one.answer().await.unwrap();
        assert!(waits(&other).await);
        assert!(!waits(&rooms.of_connection(&rooms.of_client())).await);
        drop(answer);
        assert!(!waits(&other).await);
    }

    // What an Envoy says at first is 61 KB, and what it has of 1,900 clusters, or some calls that it tells of.
    #[test]
    fn memory_quota_fits_a_first_request_on_every_connection() {
        let limits = Limits { unfinished: 0, ..Limits::default() };
        let rooms = Rooms::new(&limits);
        let mut held = Vec::new();
        let clients = limits.connections / limits.connections_per_client;
        for _ in 0..clients {
            let client = rooms.of_client();
            for n in 0..limits.connections_per_client {
                let is_log = n < limits.connections_per_client / 4 * 3;
                let more = if is_log { 16 << 10 } else { 1900 * 100 };
                held.push(rooms.of_connection(&client).hold((61 << 10) + more).unwrap());
            }
        }
        assert_eq!(held.len(), clients * limits.connections_per_client);
    }
}
