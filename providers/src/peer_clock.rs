//! The clock of a provider's source, read from the `Date` header of its answers.
//!
//! It never reads the wall clock: the time to compare with is an argument.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use tokio::time::Instant;

/// The clock of a peer. Clones share the same observation.
#[derive(Debug, Clone, Default)]
pub struct PeerClock(Arc<Mutex<Option<Observation>>>);

#[derive(Debug)]
struct Observation {
    peer: String,
    date: Timestamp,
    at: Instant,
}

/// The difference between the local clock and that of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockDifference {
    /// The host that answered.
    pub peer: String,
    /// The time by which the local clock is ahead; negative if it is behind.
    pub ahead: SignedDuration,
}

impl PeerClock {
    /// Records that the clock of `peer` shows `date` now.
    pub fn record(&self, peer: &str, date: Timestamp) {
        *self.0.lock() = Some(Observation { peer: peer.to_owned(), date, at: Instant::now() });
    }

    /// Records the `Date` header of an answer, if it is valid.
    pub(crate) fn note(&self, peer: &str, headers: &HeaderMap) {
        let date = headers.get("Date").and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        if let Some(date) = date {
            self.record(peer, date.timestamp());
        }
    }

    /// Returns the difference between the local wall clock, which shows `now` at `instant`, and the
    /// peer's. A jump of the local clock since the last answer shows at once.
    pub fn difference(&self, now: Timestamp, instant: Instant) -> Option<ClockDifference> {
        let observed = self.0.lock();
        let Observation { peer, date, at } = observed.as_ref()?;
        let passed = SignedDuration::try_from(instant.saturating_duration_since(*at)).ok()?;
        let ahead = now.duration_since(*date).saturating_sub(passed);
        Some(ClockDifference { peer: peer.clone(), ahead })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::header::HeaderValue;

    use super::*;

    fn dated(date: &'static str) -> HeaderMap {
        [("date".parse().unwrap(), HeaderValue::from_static(date))].into_iter().collect()
    }

    #[test]
    fn date_header_shows_how_clocks_differ() {
        let (clock, now) = (PeerClock::default(), "2026-11-21T07:00:00Z".parse().unwrap());
        assert_eq!(clock.difference(now, Instant::now()), None);
        clock.note("consul-1", &dated("Sat, 21 Nov 2026 06:00:00 GMT"));
        let observed = Instant::now();
        let difference = clock.difference(now, observed).unwrap();
        assert_eq!(difference.peer, "consul-1");
        assert_eq!(difference.ahead.as_mins(), 59 + i64::from(difference.ahead.as_secs() >= 3600));
        // Ten minutes later both clocks have advanced; then the local clock is set back.
        let ten = Duration::from_secs(600);
        let ahead = |now: Timestamp| clock.difference(now, observed + ten).unwrap().ahead.as_secs();
        assert!((3599..=3600).contains(&ahead(now + ten)));
        assert!((-601..=-600).contains(&ahead(now - Duration::from_secs(3600))));
        clock.note("consul-2", &dated("yesterday"));
        assert_eq!(clock.difference(now, observed).unwrap().peer, "consul-1", "it is no date");
    }
}
