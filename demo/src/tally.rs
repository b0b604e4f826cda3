//! Counts of the outcomes of a repeated call.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The outcome of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// An HTTP answer with this status.
    Status(u16),
    /// The warehouse recorded a sale.
    Recorded,
    /// The connection was refused: there is no listener.
    Refused,
    /// The connection ended before the first byte.
    Closed,
    /// Any other failure.
    Failed,
}

/// The meaning of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    Denied,
    Failed,
}

impl Outcome {
    pub(crate) fn verdict(self) -> Verdict {
        match self {
            Self::Status(200..=399) | Self::Recorded => Verdict::Ok,
            Self::Status(403) | Self::Refused | Self::Closed => Verdict::Denied,
            Self::Status(_) | Self::Failed => Verdict::Failed,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => return status.fmt(f),
            Self::Recorded => "ok",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::Failed => "failed",
        }
        .fmt(f)
    }
}

/// The counts of outcomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) ok: u64,
    pub(crate) denied: u64,
    pub(crate) failed: u64,
    /// The calls in the last second.
    pub(crate) per_second: usize,
    /// The last outcome.
    pub(crate) last: Option<Outcome>,
}

/// A running count, shared by the caller and the display.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Counting>);

#[derive(Debug, Default)]
struct Counting {
    count: Count,
    recent: VecDeque<Instant>,
}

impl Tally {
    pub(crate) fn record(&self, outcome: Outcome) {
        let mut counting = self.0.lock();
        let count = &mut counting.count;
        match outcome.verdict() {
            Verdict::Ok => count.ok += 1,
            Verdict::Denied => count.denied += 1,
            Verdict::Failed => count.failed += 1,
        }
        count.last = Some(outcome);
        counting.recent.push_back(Instant::now());
        counting.forget();
    }

    /// Resets all counts.
    pub(crate) fn reset(&self) {
        *self.0.lock() = Counting::default();
    }

    pub(crate) fn count(&self) -> Count {
        let mut counting = self.0.lock();
        counting.forget();
        Count { per_second: counting.recent.len(), ..counting.count }
    }
}

impl Counting {
    fn forget(&mut self) {
        while self.recent.front().is_some_and(|at| at.elapsed() > Duration::from_secs(1)) {
            self.recent.pop_front();
        }
    }
}

/// The recent answers of a split service, by version.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<VecDeque<(Instant, bool)>>);

impl Shares {
    /// Records an answer of the second version, or of the first.
    pub(crate) fn record(&self, is_second: bool) {
        let mut answers = self.0.lock();
        answers.push_back((Instant::now(), is_second));
        forget(&mut answers);
    }

    /// The share of the second version, from 0 to 1; `None` without recent answers.
    pub(crate) fn second(&self) -> Option<f64> {
        let mut answers = self.0.lock();
        forget(&mut answers);
        let second = answers.iter().filter(|(_, is_second)| *is_second).count();
        share(second, answers.len())
    }
}

fn forget(answers: &mut VecDeque<(Instant, bool)>) {
    while answers.front().is_some_and(|(at, _)| at.elapsed() > SHARES_OF) {
        answers.pop_front();
    }
}

/// The quotient of `part` and `all`; `None` if `all` is 0.
pub(crate) fn share(part: usize, all: usize) -> Option<f64> {
    let number = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
    (all > 0).then(|| number(part) / number(all))
}

/// The window of shares. It is long enough for a steady value at 50 calls per second.
pub(crate) const SHARES_OF: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tally_counts_outcomes_and_its_rate_covers_one_second() {
        let tally = Tally::default();
        for outcome in [Outcome::Status(200), Outcome::Status(503), Outcome::Status(403)] {
            tally.record(outcome);
        }
        let count = tally.count();
        assert_eq!((count.ok, count.denied, count.failed, count.per_second), (1, 1, 1, 3));
        assert_eq!(count.last, Some(Outcome::Status(403)));
        advance(Duration::from_millis(1001)).await;
        tally.record(Outcome::Refused);
        let count = tally.count();
        assert_eq!((count.ok, count.denied, count.failed, count.per_second), (1, 2, 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn shares_cover_only_the_recent_window() {
        let shares = Shares::default();
        assert_eq!(shares.second(), None);
        for index in 0..10 {
            shares.record(index == 0);
        }
        assert_eq!(shares.second(), Some(0.1));
        advance(SHARES_OF + Duration::from_millis(1)).await;
        shares.record(true);
        assert_eq!(shares.second(), Some(1.0));
    }
}
