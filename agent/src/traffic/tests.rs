//! Readings of Envoy 1.40, their differences around restarts, and reports within their bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_catalog::{ServicePort, TrafficCounts};
use ironmesh_enrollment::{MAX_BODY, MAX_REPORTED_COUNT, MAX_REPORTED_FLOWS};
use tokio::time::Instant;

use super::meter::Meter;
use super::pending::PendingTraffic;
use super::statistics::{Flow, Statistics, Totals, parse};

/// A response of Envoy 1.40 after six requests, with one open TCP connection.
const STATISTICS: &str = include_str!("tests/envoy-1.40.json");

fn port(number: u16) -> ServicePort {
    ServicePort::new("shop/store".parse().unwrap(), number)
}

fn store() -> Flow {
    Flow::Outbound(port(80))
}

fn counts(requests: u64, latency: &[(u64, u64)]) -> TrafficCounts {
    let latency = latency.iter().copied().collect();
    TrafficCounts { requests, latency, ..TrafficCounts::default() }
}

#[test]
fn statistics_of_envoy_are_totals_of_service_ports() {
    let flows = parse(STATISTICS.as_bytes()).unwrap();
    let flow = |text: &str| Flow::Outbound(text.parse().unwrap());
    let store = TrafficCounts {
        requests: 6,
        responses_2xx: 3,
        responses_3xx: 1,
        responses_4xx: 1,
        responses_5xx: 1,
        connections: 2,
        connect_failures: 0,
        bytes_sent: 1173,
        bytes_received: 707,
        latency: [(8, 1), (12, 1), (16, 1), (29, 1), (48, 1), (61, 1)].into_iter().collect(),
    };
    let ledger = TrafficCounts { connections: 1, bytes_sent: 16, ..TrafficCounts::default() };
    let expected = [
        (flow("default/store|14001"), Totals { counts: store, in_flight: 0 }),
        (flow("default/sql|5432"), Totals { counts: ledger, in_flight: 1 }),
    ];
    assert_eq!(flows, expected.into());
}

#[test]
fn statistics_of_other_clusters_are_ignored() {
    let response = r#"{"stats":[
        {"name":"cluster.shop/store|80|local.upstream_rq_completed","value":3},
        {"name":"cluster.ironmesh-control-plane.upstream_cx_total","value":3},
        {"name":"cluster.shop/store|80|callers.upstream_cx_total","value":3},
        {"name":"cluster.shop/store|80.statistic_of_a_later_version","value":3},
        {"name":"http.outbound.downstream_rq_completed","value":3},
        {"histograms":{"details":[{"name":"cluster.shop/store|80|local.of_a_later_version","totals":[]}]}}
    ]}"#;
    let flows = parse(response.as_bytes()).unwrap();
    assert_eq!(flows.get(&Flow::Inbound(port(80))).map(|one| one.counts.requests), Some(3));
    assert_eq!(flows.get(&store()), Some(&Totals::default()));
    assert_eq!(flows.len(), 2);
    for malformed in ["", "{", r#"{"stats":1}"#, r#"{"stats":[{"name":"a","value":-1}]}"#] {
        assert!(parse(malformed.as_bytes()).is_err(), "{malformed}");
    }
}

/// The readings of one meter, by the second.
struct Readings {
    start: Instant,
    meter: Meter,
}

impl Readings {
    fn new() -> Self {
        let start = Instant::now();
        Self { start, meter: Meter::new(start) }
    }

    /// The requests since the last reading, by an Envoy of this epoch and uptime with this total.
    fn read(&mut self, second: u64, (epoch, uptime): (u32, u64), total: u64) -> u64 {
        self.read_flows(second, (epoch, uptime), &[(store(), total)]).values().sum()
    }

    fn read_flows(
        &mut self,
        second: u64,
        (epoch, uptime): (u32, u64),
        totals: &[(Flow, u64)],
    ) -> BTreeMap<Flow, u64> {
        let totals = totals.iter().map(|(flow, total)| {
            let counts = counts(*total, &[(5, *total)]);
            (flow.clone(), Totals { counts, in_flight: 1 })
        });
        let uptime = Duration::from_secs(uptime);
        let statistics = Statistics { epoch, uptime, flows: totals.collect() };
        let differences = self.meter.advance(self.start + Duration::from_secs(second), statistics);
        assert!(differences.values().all(|one| one.in_flight == 1));
        let requests = differences.into_iter().map(|(flow, one)| {
            assert_eq!(one.counts.latency.count(), one.counts.requests);
            (flow, one.counts.requests)
        });
        requests.collect()
    }
}

#[test]
fn differences_count_each_request_once() {
    let mut readings = Readings::new();
    assert_eq!(readings.read(10, (0, 5000), 1_000_000), 0, "Envoy was there before the agent");
    assert_eq!(readings.read(20, (0, 5010), 1_000_250), 250);
    assert_eq!(readings.read(30, (0, 5020), 1_000_250), 0);
}

#[test]
fn envoy_that_starts_after_the_agent_counts_from_zero() {
    let mut readings = Readings::new();
    assert_eq!(readings.read(10, (0, 9), 70), 70);
    assert_eq!(readings.read(20, (0, 19), 80), 10);
}

#[test]
fn killed_envoy_counts_from_zero_again() {
    let mut readings = Readings::new();
    readings.read(10, (0, 9), 100);
    assert_eq!(readings.read(20, (0, 3), 60), 60);
    assert_eq!(readings.read(30, (0, 13), 90), 30);
    // A second service port shows the restart of the first one, whose counter is ahead already.
    let (store, other) = (store(), Flow::Outbound(port(81)));
    readings.read_flows(40, (0, 23), &[(store.clone(), 90), (other.clone(), 50)]);
    let after = readings.read_flows(50, (0, 4), &[(store.clone(), 95), (other.clone(), 20)]);
    assert_eq!(after, [(store, 95), (other, 20)].into());
}

#[test]
fn hot_restart_counts_nothing_twice() {
    let mut readings = Readings::new();
    readings.read(10, (0, 9), 1000);
    assert_eq!(readings.read(20, (1, 2), 30), 0);
    // The first flush has brought counts of the predecessor.
    assert_eq!(readings.read(30, (1, 12), 500), 0);
    assert_eq!(readings.read(40, (1, 22), 600), 100);
    // A cold start behind it.
    assert_eq!(readings.read(50, (0, 3), 40), 40);
}

#[test]
fn cluster_that_was_added_again_counts_from_zero() {
    let mut readings = Readings::new();
    let (store, other) = (store(), Flow::Outbound(port(81)));
    let at = (0, 5000);
    readings.read_flows(10, at, &[(store.clone(), 1000), (other.clone(), 1000)]);
    let after = readings.read_flows(20, at, &[(store.clone(), 3), (other.clone(), 1001)]);
    assert_eq!(after, [(store.clone(), 3), (other.clone(), 1)].into());
    readings.read_flows(30, at, &[(other.clone(), 1001)]);
    let back = readings.read_flows(40, at, &[(store.clone(), 7), (other.clone(), 1001)]);
    assert_eq!(back, [(store, 7), (other, 0)].into());
}

#[test]
fn clock_that_is_set_back_counts_nothing_twice() {
    let mut readings = Readings::new();
    readings.read(10, (0, 5000), 1_000_000);
    assert_eq!(readings.read(20, (0, 0), 1_000_010), 10);
}

fn pending(flows: impl IntoIterator<Item = (Flow, u64, u64)>) -> PendingTraffic {
    let mut pending = PendingTraffic::new(Instant::now());
    let totals = flows.into_iter().map(|(flow, requests, in_flight)| {
        (flow, Totals { counts: counts(requests, &[(5, requests)]), in_flight })
    });
    pending.add(totals.collect());
    pending
}

#[test]
fn report_without_an_answer_is_repeated_with_its_number() {
    let mut pending = pending([(store(), 3, 2)]);
    assert!(pending.is_due());
    let first = pending.report(Instant::now());
    assert_eq!(
        (first.outbound[0].traffic.counts.requests, first.outbound[0].traffic.in_flight),
        (3, 2)
    );
    let more = Totals { counts: counts(4, &[(5, 4)]), in_flight: 7 };
    pending.add([(store(), more)].into());
    let again = pending.report(Instant::now());
    let (counts, in_flight) =
        (&again.outbound[0].traffic.counts, again.outbound[0].traffic.in_flight);
    assert_eq!((again.batch, counts.requests, in_flight), (first.batch, 3, 7));
    pending.acknowledged();
    assert!(pending.is_due());
    let next = pending.report(Instant::now());
    assert_ne!(next.batch, first.batch);
    assert_eq!(next.outbound[0].traffic.counts.requests, 4);
    pending.acknowledged();
    assert!(!pending.is_due(), "the same is in flight");
    pending.nothing_in_flight();
    assert!(pending.is_due());
    assert!(pending.report(Instant::now()).outbound.is_empty());
}

#[test]
fn report_has_the_busiest_ports_and_the_sum_of_the_others() {
    let flows = (1..=2000).map(|number| (Flow::Outbound(port(number)), u64::from(number), 1));
    let own = (1..=3).map(|number| (Flow::Inbound(port(number)), 1, 1));
    let mut pending = pending(flows.chain(own));
    let report = pending.report(Instant::now());
    assert!(report.is_within_bounds());
    assert_eq!((report.outbound.len(), report.inbound.len()), (MAX_REPORTED_FLOWS, 3));
    let other = report.outbound_other.as_ref().unwrap();
    let requests: u64 = report.outbound.iter().map(|one| one.traffic.counts.requests).sum();
    assert_eq!(requests + other.counts.requests, 2000 * 2001 / 2);
    let in_flight: u64 = report.outbound.iter().map(|one| one.traffic.in_flight).sum();
    assert_eq!(in_flight + other.in_flight, 2000);
}

#[test]
fn largest_report_fits_into_a_request() {
    let latency: Vec<_> = (100_000..1_000_000)
        .step_by(5_000)
        .map(|milliseconds| (milliseconds, MAX_REPORTED_COUNT / 10_000))
        .collect();
    let totals = |latency: &[(u64, u64)]| Totals {
        counts: TrafficCounts::new([u64::MAX; 9], latency.iter().copied().collect()),
        in_flight: u64::MAX,
    };
    let mut pending = PendingTraffic::new(Instant::now());
    let flows = (1..=500).map(|number| (Flow::Outbound(port(number)), totals(&latency)));
    let own = (1..=500).map(|number| (Flow::Inbound(port(number)), totals(&[])));
    pending.add(flows.chain(own).collect());
    let report = pending.report(Instant::now());
    assert!(report.is_within_bounds());
    assert!(report.outbound_other.is_some());
    let json = serde_json::to_vec(&report).unwrap();
    assert!(json.len() < MAX_BODY, "{} bytes", json.len());
}
