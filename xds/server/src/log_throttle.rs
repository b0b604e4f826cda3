//! Words about what a stranger can make happen as often as it likes: so that it cannot fill the log,
//! they are said once in a while, with how often they were kept back.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long nothing more is said.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    logged_at: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    /// Whether it is to be said now; if so, how often it was kept back since the last time.
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

/// How long nothing more is logged about the same client.
const CLIENT_PAUSE: Duration = Duration::from_secs(60);

/// How many clients are told apart. What the others do is logged together, as [`LogThrottle`] has it.
const MAX_CLIENTS: usize = 256;

/// A log throttle by client: one that tries again and again is logged once a minute, with how often.
#[derive(Debug, Default)]
pub(crate) struct ClientLogThrottle {
    clients: Mutex<HashMap<Vec<u8>, (Instant, u64)>>,
    others: LogThrottle,
}

impl ClientLogThrottle {
    /// Whether to log now what `client` does; if so, how often it was not logged since the last time.
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

/// What fails for a while: its beginning is said rarely, and its end where its beginning was.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_logged: bool,
    throttle: LogThrottle,
}

impl Outage {
    /// It fails. Whether that is to be said now.
    pub(crate) fn fails(&mut self) -> bool {
        let is_logged_now = !self.is_logged && self.throttle.now().is_some();
        self.is_logged |= is_logged_now;
        is_logged_now
    }

    /// It fails no more. Whether that is to be said.
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
        // At the edge it comes and goes.
        for _ in 0..100 {
            assert!(!outage.fails() && !outage.recovers());
        }
        // One that stays is said, although its beginning was kept back.
        assert!(!outage.fails());
        tokio::time::advance(PAUSE).await;
        assert_eq!([outage.fails(), outage.fails()], [true, false]);
        assert!(outage.recovers());
    }
}
