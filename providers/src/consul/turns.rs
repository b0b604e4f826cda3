//! Over plain HTTP each blocking query takes a connection, of which agents allow few. When there are more
//! queries than connections, they take turns.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::options::ConsulOptions;

/// When queries take turns, each is to have one so often.
const ROUND: Duration = Duration::from_secs(2);
/// No turn is shorter than this.
const SHORTEST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Turns {
    /// None where queries share connections.
    connections: Option<(Semaphore, usize)>,
    /// How long a query waits for a change when nobody waits for its turn.
    longest: Duration,
    wait: watch::Sender<Duration>,
}

/// Someone's turn: it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _connection: Option<SemaphorePermit<'a>>,
    /// How long the agent may keep it waiting.
    pub(super) wait: Duration,
    changes: watch::Receiver<Duration>,
}

impl Turns {
    pub(super) fn new(options: &ConsulOptions, shares_connections: bool) -> Self {
        // One is the warden's.
        let room = options.max_connections.saturating_sub(1).clamp(1, Semaphore::MAX_PERMITS);
        let connections = (!shares_connections).then(|| (Semaphore::new(room), room));
        Self { connections, longest: options.wait, wait: watch::Sender::new(options.wait) }
    }

    /// Says how many queries there are.
    pub(super) fn share(&self, queries: usize) {
        let Some((_, room)) = &self.connections else { return };
        let wait = if queries <= *room {
            self.longest
        } else {
            let [room, queries] = [*room, queries].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            (ROUND * room / queries).max(SHORTEST).min(self.longest)
        };
        self.wait.send_if_modified(|now| {
            let before = std::mem::replace(now, wait);
            if before == self.longest && wait < self.longest {
                tracing::warn!(
                    queries,
                    connections = room,
                    action = "raise `max_connections`, and `http_max_conns_per_client` of the agents \
                              above it, or use HTTPS",
                    "consul queries share too few connections: changes may arrive up to 2 s later"
                );
            }
            before != wait
        });
    }

    /// Waits for a turn. They come in the order of asking.
    pub(super) async fn take(&self) -> Turn<'_> {
        let connection = match &self.connections {
            // It is never closed.
            Some((connections, _)) => connections.acquire().await.ok(),
            None => None,
        };
        let mut changes = self.wait.subscribe();
        let wait = *changes.borrow_and_update();
        Turn { _connection: connection, wait, changes }
    }
}

impl Turn<'_> {
    /// Returns when turns have another length.
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
        let turns = Turns::new(&options, false);
        turns.share(2);
        let mut first = turns.take().await;
        assert_eq!(first.wait, options.wait);
        turns.share(8);
        first.is_revised().await;
        let second = turns.take().await;
        assert_eq!(second.wait, ROUND / 4);
        assert!(turns.connections.as_ref().unwrap().0.try_acquire().is_err());
        drop(first);
        turns.share(1);
        assert_eq!(turns.take().await.wait, options.wait);
    }

    #[tokio::test]
    async fn multiplexed_queries_never_wait_for_a_connection() {
        let options = ConsulOptions { max_connections: 1, ..ConsulOptions::default() };
        let turns = Turns::new(&options, true);
        turns.share(1000);
        let held = [turns.take().await, turns.take().await];
        assert!(held.iter().all(|turn| turn.wait == options.wait));
    }
}
