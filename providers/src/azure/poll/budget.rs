//! How many calls may be made. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// All that may be made within an hour comes back in so long: the tenth that is missing is what may be made at
/// once after a while in which nothing was.
const COMES_BACK: Duration = Duration::from_secs(4000);
/// The time in which what may be made at once comes back: a tenth of what may be made within an hour.
const AT_ONCE: Duration = Duration::from_secs(400);

/// What may be made, of so many calls an hour: never more within any hour, if each waits until it is
/// [ready](Self::ready_at) and takes no more than it was thought to. What it takes more is owed.
#[derive(Debug)]
pub(super) struct Budget {
    /// A call comes back after so long.
    step: Duration,
    /// When all that was made has come back.
    full_at: Instant,
    /// How many were made in all.
    made: u64,
}

impl Budget {
    pub(super) fn new(per_hour: u32) -> Self {
        let step = (COMES_BACK / per_hour.max(1)).max(Duration::from_nanos(1));
        Self { step, full_at: Instant::now(), made: 0 }
    }

    /// When so many more calls may be made. One that takes more than may ever be made at once is made when
    /// nothing else is owed.
    pub(super) fn ready_at(&self, calls: usize, now: Instant) -> Instant {
        let full_at = self.full_at.max(now);
        let then = full_at + self.time(calls).min(AT_ONCE);
        then.checked_sub(AT_ONCE).unwrap_or(now)
    }

    /// So many were made in all since the start.
    pub(super) fn made(&mut self, in_all: u64, now: Instant) {
        let more = in_all.saturating_sub(std::mem::replace(&mut self.made, in_all));
        self.full_at = self.full_at.max(now) + self.time(usize::try_from(more).unwrap_or(0));
    }

    /// How many were made in all since the start.
    #[cfg(test)]
    pub(super) fn made_in_all(&self) -> u64 {
        self.made
    }

    /// In how long so many calls come back, if so many quarters of calls are made again and again.
    pub(super) fn fair(&self, quarters: usize) -> Duration {
        self.time(quarters) / 4
    }

    /// In how long so many calls come back.
    pub(super) fn time(&self, calls: usize) -> Duration {
        self.step.saturating_mul(u32::try_from(calls).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn budget_never_exceeds_its_calls_per_hour() {
        let hour = Duration::from_secs(3600);
        for (per_hour, cost) in [(100, 1), (1000, 1), (1000, 7), (12_000, 3)] {
            let mut budget = Budget::new(per_hour);
            let (mut now, mut made) = (Instant::now(), Vec::new());
            let end = now + hour * 5;
            while now < end {
                now = budget.ready_at(cost, now).max(now);
                made.extend(std::iter::repeat_n(now, cost));
                budget.made(u64::try_from(made.len()).unwrap(), now);
            }
            let within =
                |(n, from): (usize, &Instant)| made.partition_point(|at| *at < *from + hour) - n;
            let most = made.iter().enumerate().map(within).max().unwrap();
            let per_hour = usize::try_from(per_hour).unwrap();
            assert!(most <= per_hour, "{most} of {per_hour}");
            assert!(made.len() > per_hour * 4, "{} of {per_hour} an hour", made.len());
        }
    }
}
