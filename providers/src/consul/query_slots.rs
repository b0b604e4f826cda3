//! Limits the number of concurrent queries.
//!
//! Over plain HTTP each blocking query takes a connection, and agents allow few. If there are more
//! queries than connections, each query holds a connection only for a short slot.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::options::ConsulOptions;

/// The interval in which each query gets a slot if there are too few connections.
const ROUND: Duration = Duration::from_secs(2);
/// The shortest slot.
const SHORTEST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct QuerySlots {
    /// The connections and their number; `None` if queries share connections.
    connections: Option<(Semaphore, usize)>,
    /// The wait of a query that has a connection of its own.
    longest: Duration,
    wait: watch::Sender<Duration>,
}

/// A slot of a query. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct QuerySlot<'a> {
    _connection: Option<SemaphorePermit<'a>>,
    /// The wait that the query may request.
    pub(super) wait: Duration,
    changes: watch::Receiver<Duration>,
}

impl QuerySlots {
    pub(super) fn new(options: &ConsulOptions, shares_connections: bool) -> Self {
        // One connection belongs to the agent selector.
        let limit = options.max_connections.saturating_sub(1).clamp(1, Semaphore::MAX_PERMITS);
        let connections = (!shares_connections).then(|| (Semaphore::new(limit), limit));
        Self { connections, longest: options.wait, wait: watch::Sender::new(options.wait) }
    }

    /// Sets the number of queries.
    pub(super) fn share(&self, queries: usize) {
        let Some((_, limit)) = &self.connections else { return };
        let wait = if queries <= *limit {
            self.longest
        } else {
            let [limit, queries] = [*limit, queries].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            (ROUND * limit / queries).max(SHORTEST).min(self.longest)
        };
        self.wait.send_if_modified(|now| {
            let before = std::mem::replace(now, wait);
            if before == self.longest && wait < self.longest {
                tracing::warn!(
                    queries,
                    connections = limit,
                    action = "raise `max_connections`, and `http_max_conns_per_client` of the agents \
                              above it, or use HTTPS",
                    "consul queries share too few connections: changes may arrive up to 2 s later"
                );
            }
            before != wait
        });
    }

    /// Waits for a slot. Slots are granted in the order of the calls.
    pub(super) async fn take(&self) -> QuerySlot<'_> {
        let connection = match &self.connections {
            // The semaphore is never closed.
            Some((connections, _)) => connections.acquire().await.ok(),
            None => None,
        };
        let mut changes = self.wait.subscribe();
        let wait = *changes.borrow_and_update();
        QuerySlot { _connection: connection, wait, changes }
    }
}

impl QuerySlot<'_> {
    /// Returns when the length of slots changes.
    pub(super) async fn is_revised(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_queries_share_connections_with_shorter_waits() {
        let options = ConsulOptions { max_connections: 3, ..ConsulOptions::default() };
        let slots = QuerySlots::new(&options, false);
        slots.share(2);
        let mut first = slots.take().await;
        assert_eq!(first.wait, options.wait);
        slots.share(8);
        first.is_revised().await;
        let second = slots.take().await;
        assert_eq!(second.wait, ROUND / 4);
        assert!(slots.connections.as_ref().unwrap().0.try_acquire().is_err());
        drop(first);
        slots.share(1);
        assert_eq!(slots.take().await.wait, options.wait);
    }

    #[tokio::test]
    async fn multiplexed_queries_never_wait_for_a_connection() {
        let options = ConsulOptions { max_connections: 1, ..ConsulOptions::default() };
        let slots = QuerySlots::new(&options, true);
        slots.share(1000);
        let held = [slots.take().await, slots.take().await];
        assert!(held.iter().all(|slot| slot.wait == options.wait));
    }
}
