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
    said_at: Option<Instant>,
    kept_back: u64,
}

impl LogThrottle {
    /// Whether it is to be said now; if so, how often it was kept back since the last time.
    pub(crate) fn now(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.said_at.is_some_and(|said_at| now < said_at + PAUSE) {
            state.kept_back += 1;
            return None;
        }
        state.said_at = Some(now);
        Some(std::mem::take(&mut state.kept_back))
    }
}

/// How long nothing more is logged about the same client.
const PAUSE_OF_A_CLIENT: Duration = Duration::from_secs(60);

/// How many clients are told apart. What the others do is logged together, as [`LogThrottle`] has it.
const MOST_CLIENTS: usize = 256;

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
            if now < *logged_at + PAUSE_OF_A_CLIENT {
                *suppressed += 1;
                return None;
            }
            *logged_at = now;
            return Some(std::mem::take(suppressed));
        }
        if clients.len() >= MOST_CLIENTS {
            clients.retain(|_, (logged_at, _)| now < *logged_at + PAUSE_OF_A_CLIENT);
        }
        if clients.len() >= MOST_CLIENTS {
            return self.others.now();
        }
        clients.insert(client, (now, 0));
        Some(0)
    }
}

/// What fails for a while: its beginning is said rarely, and its end where its beginning was.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_said: bool,
    rarely: LogThrottle,
}

impl Outage {
    /// It fails. Whether that is to be said now.
    pub(crate) fn goes_on(&mut self) -> bool {
        let is_news = !self.is_said && self.rarely.now().is_some();
        self.is_said |= is_news;
        is_news
    }

    /// It fails no more. Whether that is to be said.
    pub(crate) fn is_over(&mut self) -> bool {
        std::mem::take(&mut self.is_said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeated_message_is_logged_once_a_second_with_the_count() {
        let rarely = LogThrottle::default();
        assert_eq!([rarely.now(), rarely.now(), rarely.now()], [Some(0), None, None]);
        tokio::time::advance(PAUSE).await;
        assert_eq!([rarely.now(), rarely.now()], [Some(2), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn retrying_client_is_logged_once_a_minute_with_the_count() {
        let throttle = ClientLogThrottle::default();
        let now = |client: &str| throttle.now(client.as_bytes().to_vec());
        assert_eq!([now("a"), now("a"), now("b"), now("a")], [Some(0), None, Some(0), None]);
        tokio::time::advance(PAUSE_OF_A_CLIENT).await;
        assert_eq!([now("a"), now("a"), now("b")], [Some(2), None, Some(0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_beyond_the_bound_are_logged_together() {
        let throttle = ClientLogThrottle::default();
        let now = |client: usize| throttle.now(client.to_be_bytes().to_vec());
        assert!((0..MOST_CLIENTS).all(|client| now(client) == Some(0)));
        assert_eq!([now(MOST_CLIENTS), now(MOST_CLIENTS + 1)], [Some(0), None]);
        assert_eq!(throttle.clients.lock().len(), MOST_CLIENTS);
        tokio::time::advance(PAUSE_OF_A_CLIENT).await;
        assert_eq!(now(MOST_CLIENTS + 2), Some(0));
        assert_eq!(throttle.clients.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn outage_end_is_logged_only_if_its_start_was_logged() {
        let mut outage = Outage::default();
        assert!(!outage.is_over(), "there was none");
        assert_eq!([outage.goes_on(), outage.goes_on()], [true, false]);
        assert_eq!([outage.is_over(), outage.is_over()], [true, false]);
        // At the edge it comes and goes.
        for _ in 0..100 {
            assert!(!outage.goes_on() && !outage.is_over());
        }
        // One that stays is said, although its beginning was kept back.
        assert!(!outage.goes_on());
        tokio::time::advance(PAUSE).await;
        assert_eq!([outage.goes_on(), outage.goes_on()], [true, false]);
        assert!(outage.is_over());
    }
}
