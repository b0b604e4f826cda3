//! Log throttles: a stranger can repeat some events at will, so they are logged at most once per
//! interval, with the number of suppressed ones.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The interval in which nothing more is logged.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    logged_at: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    /// Returns the number of events suppressed since the last entry if this one may be logged, and
    /// `None` if not.
    pub(crate) fn now(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.logged_at.is_some_and(|logged_at| now < logged_at + PAUSE) {
            state.suppressed += 1;
            return None;
        }
        state.logged_at = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

/// The interval in which nothing more is logged about one client.
const CLIENT_PAUSE: Duration = Duration::from_secs(60);

/// The number of clients with an interval of their own. Events of the others share one, as in
/// [`LogThrottle`].
const MAX_CLIENTS: usize = 256;

/// A log throttle per client: a client that retries is logged once a minute, with the number of
/// attempts.
#[derive(Debug, Default)]
pub(crate) struct ClientLogThrottle {
    clients: Mutex<HashMap<Vec<u8>, (Instant, u64)>>,
    others: LogThrottle,
}

impl ClientLogThrottle {
    /// Returns the number of suppressed events of `client` if this one may be logged, and `None` if
    /// not.
    pub(crate) fn now(&self, client: Vec<u8>) -> Option<u64> {
        let now = Instant::now();
        let mut clients = self.clients.lock();
        if let Some((logged_at, suppressed)) = clients.get_mut(&client) {
            if now < *logged_at + CLIENT_PAUSE {
                *suppressed += 1;
                return None;
            }
            *logged_at = now;
            return Some(std::mem::take(suppressed));
        }
        if clients.len() >= MAX_CLIENTS {
            clients.retain(|_, (logged_at, _)| now < *logged_at + CLIENT_PAUSE);
        }
        if clients.len() >= MAX_CLIENTS {
            return self.others.now();
        }
        clients.insert(client, (now, 0));
        Some(0)
    }
}

/// A condition that persists: its start is logged through a throttle, and its end only if its start
/// was.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_logged: bool,
    throttle: LogThrottle,
}

impl Outage {
    /// Records a failure. Returns whether to log it.
    pub(crate) fn fails(&mut self) -> bool {
        let is_logged_now = !self.is_logged && self.throttle.now().is_some();
        self.is_logged |= is_logged_now;
        is_logged_now
    }

    /// Records a success. Returns whether to log that the failure is over.
    pub(crate) fn recovers(&mut self) -> bool {
        std::mem::take(&mut self.is_logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeated_message_is_logged_once_a_second_with_the_count() {
        let throttle = LogThrottle::default();
        assert_eq!([throttle.now(), throttle.now(), throttle.now()], [Some(0), None, None]);
        tokio::time::advance(PAUSE).await;
        assert_eq!([throttle.now(), throttle.now()], [Some(2), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn retrying_client_is_logged_once_a_minute_with_the_count() {
        let throttle = ClientLogThrottle::default();
        let now = |client: &str| throttle.now(client.as_bytes().to_vec());
        assert_eq!([now("a"), now("a"), now("b"), now("a")], [Some(0), None, Some(0), None]);
        tokio::time::advance(CLIENT_PAUSE).await;
        assert_eq!([now("a"), now("a"), now("b")], [Some(2), None, Some(0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_beyond_the_bound_are_logged_together() {
        let throttle = ClientLogThrottle::default();
        let now = |client: usize| throttle.now(client.to_be_bytes().to_vec());
        assert!((0..MAX_CLIENTS).all(|client| now(client) == Some(0)));
        assert_eq!([now(MAX_CLIENTS), now(MAX_CLIENTS + 1)], [Some(0), None]);
        assert_eq!(throttle.clients.lock().len(), MAX_CLIENTS);
        tokio::time::advance(CLIENT_PAUSE).await;
        assert_eq!(now(MAX_CLIENTS + 2), Some(0));
        assert_eq!(throttle.clients.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn outage_end_is_logged_only_if_its_start_was_logged() {
        let mut outage = Outage::default();
        assert!(!outage.recovers(), "there was none");
        assert_eq!([outage.fails(), outage.fails()], [true, false]);
        assert_eq!([outage.recovers(), outage.recovers()], [true, false]);
        // At the limit, the failure comes and goes.
        for _ in 0..100 {
            assert!(!outage.fails() && !outage.recovers());
        }
        // A lasting failure is logged, although its start was suppressed.
        assert!(!outage.fails());
        tokio::time::advance(PAUSE).await;
        assert_eq!([outage.fails(), outage.fails()], [true, false]);
        assert!(outage.recovers());
    }
}
