//! The counts between two readings. Counters that start again never count twice, and never backwards.

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_catalog::TrafficCounts;
use tokio::time::Instant;

use super::statistics::{Flow, Statistics, Totals};

/// A hot restarted Envoy gets counts of its predecessor with its first flush of statistics, after 5 s. These include up to
/// 5 s that the predecessor has shown itself. So counting begins again behind that.
const SETTLED: Duration = Duration::from_secs(10);

/// The last reading.
#[derive(Debug)]
pub(super) struct Meter {
    began: Instant,
    last: Option<(Instant, Statistics)>,
}

impl Meter {
    /// Counts from `now` on.
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, last: None }
    }

    /// The counts since the last reading, with what is in flight.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        statistics: Statistics,
    ) -> BTreeMap<Flow, Totals> {
        let (last_at, known) = match &self.last {
            Some((at, last)) => (*at, Some(last)),
            None => (self.began, None),
        };
        let is_other_epoch = known.is_none_or(|last| last.epoch != statistics.epoch);
        let is_hot_restarted = is_other_epoch && statistics.epoch > 0;
        if is_hot_restarted && statistics.uptime < SETTLED {
            return in_flight(&statistics);
        }
        let is_reset = |(flow, totals): (&Flow, &Totals)| {
            let before = known.and_then(|last| last.flows.get(flow));
            before.is_some_and(|before| totals.counts.since(&before.counts).is_none())
        };
        // The clock of the machine may have been set: the time alone proves nothing.
        let is_new_process = (is_other_epoch || statistics.flows.iter().any(is_reset))
            && !is_hot_restarted
            && statistics.uptime <= now.saturating_duration_since(last_at);
        let difference = |(flow, totals): (&Flow, &Totals)| {
            let before = known.and_then(|last| last.flows.get(flow));
            let counts = match before {
                _ if is_new_process => totals.counts.clone(),
                // Counting begins with this reading.
                _ if is_other_epoch => TrafficCounts::default(),
                None => totals.counts.clone(),
                // A cluster that was removed and added again counts from zero.
                Some(before) => {
                    totals.counts.since(&before.counts).unwrap_or_else(|| totals.counts.clone())
                }
            };
            (flow.clone(), Totals { counts, in_flight: totals.in_flight })
        };
        let differences = statistics.flows.iter().map(difference).collect();
        self.last = Some((now, statistics));
        differences
    }
}

/// What is in flight, without counts.
fn in_flight(statistics: &Statistics) -> BTreeMap<Flow, Totals> {
    let flows = statistics.flows.iter();
    let totals = |in_flight| Totals { in_flight, ..Totals::default() };
    flows.map(|(flow, now)| (flow.clone(), totals(now.in_flight))).collect()
}
