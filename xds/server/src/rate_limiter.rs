//! The request rate limit of a client. It is not a library's, because it is an addition and a
//! comparison, and must use tokio's clock, which tests move.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket, stored as the time until which past actions are paid for.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    interval: Duration,
    burst: Duration,
    paid_until: Instant,
    /// Since when the bucket has been empty, or nearly so.
    empty_since: Option<Instant>,
}

impl RateLimiter {
    /// Allows one action per `interval`, and `burst` at once.
    pub(crate) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: interval * burst, paid_until: Instant::now(), empty_since: None }
    }

    /// Takes tokens for `count` actions. Returns how long the bucket has been empty.
    pub(crate) fn take(&mut self, count: u32, now: Instant) -> Duration {
        self.paid_until = self.paid_until.max(now) + self.interval * count;
        let debt = self.paid_until - now;
        if debt >= self.burst {
            self.empty_since.get_or_insert(now);
        } else if debt < self.burst / 10 * 9 {
            self.empty_since = None;
        }
        self.empty_since.map_or(Duration::ZERO, |since| now - since)
    }

    /// The time from which a token is available.
    pub(crate) fn ready_at(&self) -> Instant {
        self.paid_until.checked_sub(self.burst).unwrap_or(self.paid_until)
    }

    /// Whether a token is available.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready_at() <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn burst_is_free_and_later_requests_are_delayed() {
        let mut limiter = RateLimiter::new(SECOND, 10);
        let now = Instant::now();
        for _ in 0..10 {
            assert!(limiter.is_ready(now));
            limiter.take(1, now);
        }
        assert!(limiter.is_ready(now), "the last action may exceed the tokens");
        limiter.take(3, now);
        assert_eq!(limiter.ready_at(), now + 3 * SECOND);
        assert!(limiter.is_ready(now + 13 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn client_within_the_rate_is_never_delayed() {
        let mut limiter = RateLimiter::new(SECOND, 10);
        let mut now = Instant::now();
        for _ in 0..1000 {
            assert!(limiter.is_ready(now));
            assert_eq!(limiter.take(1, now), Duration::ZERO);
            now += SECOND;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_over_the_rate_is_measured_until_a_pause() {
        let mut limiter = RateLimiter::new(SECOND, 10);
        let mut now = Instant::now();
        limiter.take(10, now);
        for seconds in 1..30 {
            now += SECOND;
            assert_eq!(limiter.take(1, now), seconds * SECOND);
        }
        // A pause of a tenth of the burst resets it.
        now += 3 * SECOND;
        assert_eq!(limiter.take(1, now), Duration::ZERO);
    }
}
