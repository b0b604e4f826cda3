//! The traffic in a report of an agent, and its bounds.

use ironmesh_catalog::{ServiceName, TrafficCounts};
use serde::{Deserialize, Serialize};

/// The most service ports of each direction in a [`TrafficReport`].
pub const MAX_REPORTED_FLOWS: usize = 40;

/// The most buckets of latencies in a [`TrafficReport`].
pub const MAX_REPORTED_BUCKETS: usize = 1_000;

/// The largest count in a [`TrafficReport`]: JSON of other languages has no larger exact number.
pub const MAX_REPORTED_COUNT: u64 = 1 << 53;

/// The traffic of a proxy since its last report, in a [`crate::HealthReport`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficReport {
    /// A random number. A report that is repeated after a lost answer has the same, and counts once.
    pub batch: u64,
    /// In how many seconds this was counted.
    pub seconds: u64,
    /// The calls of the proxy, by the service port that the calls went to: at most [`MAX_REPORTED_FLOWS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbound: Vec<ReportedFlow>,
    /// The calls of the proxy to further service ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_other: Option<ReportedTraffic>,
    /// The calls that the proxy received, of all callers, by its own service ports: at most [`MAX_REPORTED_FLOWS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inbound: Vec<ReportedFlow>,
}

/// The traffic of one service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedFlow {
    /// The service.
    pub service: ServiceName,
    /// The service port.
    pub port: u16,
    /// Its traffic.
    #[serde(flatten)]
    pub traffic: ReportedTraffic,
}

/// Traffic since the last report, and what is under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedTraffic {
    /// The requests that wait for their response; for TCP, the open connections.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_flight: u64,
    /// The counts since the last report.
    #[serde(flatten)]
    pub counts: TrafficCounts,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TrafficReport {
    /// Whether it has at most so much as a report may have.
    pub fn is_within_bounds(&self) -> bool {
        let flows = self.outbound.iter().chain(&self.inbound).map(|flow| &flow.traffic);
        let all: Vec<&ReportedTraffic> = flows.chain(&self.outbound_other).collect();
        let buckets: usize = all.iter().map(|one| one.counts.latency.bucket_count()).sum();
        let largest = |one: &&ReportedTraffic| {
            let counts = one.counts.numbers().into_iter();
            counts.chain([one.in_flight, one.counts.latency.largest_count()]).max()
        };
        self.outbound.len() <= MAX_REPORTED_FLOWS
            && self.inbound.len() <= MAX_REPORTED_FLOWS
            && buckets <= MAX_REPORTED_BUCKETS
            && all.iter().filter_map(largest).all(|count| count <= MAX_REPORTED_COUNT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16, traffic: ReportedTraffic) -> ReportedFlow {
        ReportedFlow { service: "shop/store".parse().unwrap(), port, traffic }
    }

    #[test]
    fn traffic_in_json_is_flat_and_short() {
        let counts = TrafficCounts { requests: 3, responses_2xx: 3, ..TrafficCounts::default() };
        let traffic = ReportedTraffic { in_flight: 1, counts };
        let report = TrafficReport {
            batch: u64::MAX,
            seconds: 10,
            outbound: vec![flow(80, traffic)],
            ..TrafficReport::default()
        };
        let json = serde_json::to_string(&report).unwrap();
        let expected = r#"{"batch":18446744073709551615,"seconds":10,"outbound":[{"service":"shop/store","port":80,"in_flight":1,"requests":3,"responses_2xx":3}]}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<TrafficReport>(&json).unwrap(), report);
    }

    #[test]
    fn report_beyond_a_bound_is_recognized() {
        let with = |flows: u16, traffic: &ReportedTraffic| TrafficReport {
            outbound: (0..flows).map(|port| flow(port, traffic.clone())).collect(),
            ..TrafficReport::default()
        };
        let of_buckets = |count| ReportedTraffic {
            counts: TrafficCounts {
                latency: (0..count).map(|bucket| (bucket, 1)).collect(),
                ..TrafficCounts::default()
            },
            ..ReportedTraffic::default()
        };
        let many = ReportedTraffic { in_flight: MAX_REPORTED_COUNT, ..ReportedTraffic::default() };
        assert!(with(40, &many).is_within_bounds());
        assert!(!with(41, &many).is_within_bounds());
        assert!(with(40, &of_buckets(20)).is_within_bounds());
        assert!(!with(40, &of_buckets(40)).is_within_bounds());
        let more = ReportedTraffic { in_flight: MAX_REPORTED_COUNT + 1, ..many };
        assert!(!with(1, &more).is_within_bounds());
    }
}
