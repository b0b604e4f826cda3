//! The budget of calls. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The time in which the hourly number of calls is refilled. The missing tenth is the burst that is
/// allowed after a quiet time.
const REFILL_TIME: Duration = Duration::from_secs(4000);
/// The time in which the burst is refilled: a tenth of the hourly number.
const BURST_REFILL_TIME: Duration = Duration::from_secs(400);

/// A budget of calls per hour. No hour exceeds it if each request waits until it is
/// [ready](Self::ready_at) and costs no more than expected. Additional cost is a debt.
#[derive(Debug)]
pub(in crate::azure) struct Budget {
    /// The time in which one call is refilled.
    step: Duration,
    /// The time at which the budget is full again.
    full_at: Instant,
    /// The number of calls since the start.
    made: u64,
}

impl Budget {
    pub(in crate::azure) fn new(per_hour: u32) -> Self {
        let step = (REFILL_TIME / per_hour.max(1)).max(Duration::from_nanos(1));
        Self { step, full_at: Instant::now(), made: 0 }
    }

    /// Returns when `calls` more calls are within the budget. A request that costs more than the
    /// burst waits until there is no debt.
    pub(in crate::azure) fn ready_at(&self, calls: usize, now: Instant) -> Instant {
        let full_at = self.full_at.max(now);
        let then = full_at + self.time(calls).min(BURST_REFILL_TIME);
        then.checked_sub(BURST_REFILL_TIME).unwrap_or(now)
    }

    /// Sets the number of calls since the start.
    pub(in crate::azure) fn made(&mut self, in_all: u64, now: Instant) {
        let more = in_all.saturating_sub(std::mem::replace(&mut self.made, in_all));
        self.full_at = self.full_at.max(now) + self.time(usize::try_from(more).unwrap_or(0));
    }

    /// Returns the number of calls since the start.
    #[cfg(test)]
    pub(super) fn made_in_all(&self) -> u64 {
        self.made
    }

    /// Returns the interval at which requests that cost `quarters` quarters of calls use the whole
    /// budget.
    pub(super) fn fair(&self, quarters: usize) -> Duration {
        self.time(quarters) / 4
    }

    /// Returns the time in which `calls` calls are refilled.
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
