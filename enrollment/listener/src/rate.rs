//! A rate limit: a token bucket, stored as the time until which past actions are paid for.

use std::time::Duration;

use tokio::time::Instant;

/// A limit of actions per second, of which a second's worth may come at once.
#[derive(Debug)]
pub(crate) struct Rate {
    interval: Duration,
    paid_until: Instant,
}

/// The time whose actions may come at once.
const BURST: Duration = Duration::from_secs(1);

impl Rate {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.max(1), paid_until: Instant::now() }
    }

    /// Takes the token of an action.
    pub(crate) fn take(&mut self, now: Instant) {
        self.paid_until = self.paid_until.max(now) + self.interval;
    }

    /// The time from which a token is available.
    pub(crate) fn ready_at(&self) -> Instant {
        self.paid_until.checked_sub(BURST).unwrap_or(self.paid_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rate_allows_one_second_at_once_and_then_the_rate() {
        let mut rate = Rate::new(10);
        let begin = Instant::now();
        for _ in 0..10 {
            assert!(rate.ready_at() <= begin);
            rate.take(begin);
        }
        rate.take(begin);
        assert_eq!(rate.ready_at(), begin + Duration::from_millis(100));
    }
}
