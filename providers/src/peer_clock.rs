//! The clock of whoever answers a provider, by the `Date` header of its answers.
//!
//! It never reads the wall clock: the time to compare with is an argument.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use tokio::time::Instant;

/// The clock of a peer. Copies are of the same peer.
#[derive(Debug, Clone, Default)]
pub struct PeerClock(Arc<Mutex<Option<Heard>>>);

#[derive(Debug)]
struct Heard {
    peer: String,
    date: Timestamp,
    at: Instant,
}

/// How our clock differs from that of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockDifference {
    /// The host that answered.
    pub peer: String,
    /// By how much our clock is ahead; negative where it is behind.
    pub ahead: SignedDuration,
}

impl PeerClock {
    /// Keeps that `peer` said just now that it is `date`.
    pub fn heard(&self, peer: &str, date: Timestamp) {
        *self.0.lock() = Some(Heard { peer: peer.to_owned(), date, at: Instant::now() });
    }

    /// The same by the headers of an answer, if they say so.
    pub(crate) fn note(&self, peer: &str, headers: &HeaderMap) {
        let date = headers.get("Date").and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        if let Some(date) = date {
            self.heard(peer, date.timestamp());
        }
    }

    /// How the wall clock, which shows `now` at `instant`, differs from the peer's. A jump of ours since
    /// the last answer counts at once.
    pub fn difference(&self, now: Timestamp, instant: Instant) -> Option<ClockDifference> {
        let heard = self.0.lock();
        let Heard { peer, date, at } = heard.as_ref()?;
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
        let heard = Instant::now();
        let difference = clock.difference(now, heard).unwrap();
        assert_eq!(difference.peer, "consul-1");
        assert_eq!(difference.ahead.as_mins(), 59 + i64::from(difference.ahead.as_secs() >= 3600));
        // Ten minutes later both have moved on; then ours is set back.
        let ten = Duration::from_secs(600);
        let ahead = |now: Timestamp| clock.difference(now, heard + ten).unwrap().ahead.as_secs();
        assert!((3599..=3600).contains(&ahead(now + ten)));
        assert!((-601..=-600).contains(&ahead(now - Duration::from_secs(3600))));
        clock.note("consul-2", &dated("yesterday"));
        assert_eq!(clock.difference(now, heard).unwrap().peer, "consul-1", "it is no date");
    }
}
