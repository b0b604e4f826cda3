//! The traffic that the control plane has not recorded yet.

use std::collections::BTreeMap;

use ironmesh_catalog::{ServicePort, TrafficCounts};
use ironmesh_enrollment::{
    MAX_REPORTED_BUCKETS, MAX_REPORTED_COUNT, MAX_REPORTED_FLOWS, ReportedFlow, ReportedTraffic,
    TrafficReport,
};
use tokio::time::Instant;

use super::statistics::{Flow, Totals};

/// The most flows whose counts wait. Calls to further service ports add up in one.
const MAX_FLOWS: usize = 1024;

/// The buckets that the calls to other service ports may need: all that there are.
const BUCKETS_OF_OTHER: usize = 204;

/// Counts and requests in flight.
#[derive(Debug)]
pub(super) struct PendingTraffic {
    /// Since when `counts` are counted.
    since: Instant,
    counts: BTreeMap<Flow, TrafficCounts>,
    in_flight: BTreeMap<Flow, u64>,
    /// What was sent last, until it is recorded.
    sent: Option<Batch>,
    reported_in_flight: BTreeMap<Flow, u64>,
}

/// Counts that are sent, and sent again with the same number.
#[derive(Debug, Clone)]
struct Batch {
    number: u64,
    seconds: u64,
    counts: BTreeMap<Flow, TrafficCounts>,
}

impl PendingTraffic {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            counts: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            sent: None,
            reported_in_flight: BTreeMap::new(),
        }
    }

    /// Adds the counts of a reading, and replaces what is in flight.
    pub(super) fn add(&mut self, reading: BTreeMap<Flow, Totals>) {
        self.in_flight.clear();
        for (flow, Totals { counts, in_flight }) in reading {
            if in_flight > 0 {
                self.in_flight.insert(flow.clone(), in_flight);
            }
            if counts.is_empty() {
                continue;
            }
            let is_beyond = self.counts.len() >= MAX_FLOWS && !self.counts.contains_key(&flow);
            let flow = if is_beyond { Flow::OutboundOther } else { flow };
            self.counts.entry(flow).or_default().add(&counts);
        }
    }

    /// There is no Envoy, or it does not answer.
    pub(super) fn nothing_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// Whether there is something that the control plane does not know.
    pub(super) fn is_due(&self) -> bool {
        self.sent.is_some() || !self.counts.is_empty() || self.in_flight != self.reported_in_flight
    }

    /// The next report: the counts of the last one, if they are not recorded yet.
    pub(super) fn report(&mut self, now: Instant) -> TrafficReport {
        let batch = self.sent.get_or_insert_with(|| {
            let seconds = now.saturating_duration_since(self.since).as_secs();
            self.since = now;
            let counts = std::mem::take(&mut self.counts);
            Batch { number: fastrand::u64(..), seconds, counts: within_bounds(counts) }
        });
        self.reported_in_flight.clone_from(&self.in_flight);
        message(batch.clone(), &self.in_flight)
    }

    /// The last report is recorded.
    pub(super) fn acknowledged(&mut self) {
        self.sent = None;
    }
}

/// The flows of a report: the busiest ones, and the sum of the others.
fn within_bounds(counts: BTreeMap<Flow, TrafficCounts>) -> BTreeMap<Flow, TrafficCounts> {
    let mut flows: Vec<_> = counts.into_iter().collect();
    let size = |counts: &TrafficCounts| counts.requests.saturating_add(counts.connections);
    flows.sort_by_key(|(flow, counts)| {
        (matches!(flow, Flow::Outbound(_)), std::cmp::Reverse(size(counts)))
    });
    let mut left = MAX_REPORTED_BUCKETS.saturating_sub(BUCKETS_OF_OTHER);
    let (mut inbound, mut outbound) = (MAX_REPORTED_FLOWS, MAX_REPORTED_FLOWS);
    let mut kept = BTreeMap::new();
    let mut other = TrafficCounts::default();
    for (flow, counts) in flows {
        let counts = with_largest_count(&counts);
        let flows_left = match flow {
            Flow::Inbound(_) => &mut inbound,
            Flow::Outbound(_) => &mut outbound,
            Flow::OutboundOther => {
                other.add(&counts);
                continue;
            }
        };
        let buckets = counts.latency.bucket_count();
        if *flows_left > 0 && buckets <= left {
            *flows_left -= 1;
            left -= buckets;
            kept.insert(flow, counts);
        } else if let Flow::Outbound(_) = flow {
            other.add(&counts);
        } else {
            tracing::debug!(?flow, "too many service ports in a report of traffic");
        }
    }
    if !other.is_empty() {
        kept.insert(Flow::OutboundOther, with_largest_count(&other));
    }
    kept
}

/// The counts, none of them larger than a report may have.
fn with_largest_count(counts: &TrafficCounts) -> TrafficCounts {
    let numbers = counts.numbers().map(|count| count.min(MAX_REPORTED_COUNT));
    TrafficCounts::new(numbers, counts.latency.clone())
}

/// The report of a batch, with what is in flight now.
fn message(batch: Batch, in_flight: &BTreeMap<Flow, u64>) -> TrafficReport {
    let Batch { number, seconds, counts } = batch;
    let mut report = TrafficReport { batch: number, seconds, ..TrafficReport::default() };
    let mut flows: BTreeMap<Flow, ReportedTraffic> = counts
        .into_iter()
        .map(|(flow, counts)| (flow, ReportedTraffic { in_flight: 0, counts }))
        .collect();
    let is_outbound = |flow: &Flow| matches!(flow, Flow::Outbound(_));
    let outbound = flows.keys().filter(|flow| is_outbound(flow)).count();
    let mut left = MAX_REPORTED_FLOWS.saturating_sub(outbound);
    for (flow, count) in in_flight {
        let is_new = is_outbound(flow) && !flows.contains_key(flow);
        let flow = if is_new && left == 0 { &Flow::OutboundOther } else { flow };
        left -= usize::from(is_new && left > 0);
        let known = &mut flows.entry(flow.clone()).or_default().in_flight;
        *known = known.saturating_add(*count).min(MAX_REPORTED_COUNT);
    }
    let of_port = |ServicePort { service, port }, traffic| ReportedFlow { service, port, traffic };
    for (flow, traffic) in flows {
        match flow {
            Flow::Inbound(port) => report.inbound.push(of_port(port, traffic)),
            Flow::Outbound(port) => report.outbound.push(of_port(port, traffic)),
            Flow::OutboundOther => report.outbound_other = Some(traffic),
        }
    }
    report.inbound.truncate(MAX_REPORTED_FLOWS);
    report
}
