//! What the table adds up, forgets and bounds.

use ironmesh_catalog::{LatencyHistogram, LatencyQuantiles, ProxyName, TrafficCounts};
use uuid::Uuid;

use super::window::STEPS;
use super::*;

const LIFETIME: Duration = Duration::from_secs(90);

fn proxy(number: u128) -> ProxyId {
    ProxyId(Uuid::from_u128(number))
}

fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

fn flow(port: u16, requests: u64, in_flight: u64) -> ReportedFlow {
    let latency: LatencyHistogram = [(5, requests)].into_iter().collect();
    let counts = TrafficCounts { requests, latency, ..TrafficCounts::default() };
    let traffic = ReportedTraffic { in_flight, counts };
    ReportedFlow { service: service("shop/store"), port, traffic }
}

/// A table, and the second at which it is used.
struct World {
    table: TrafficTable,
    second: u64,
    batch: u64,
}

impl World {
    fn new() -> Self {
        Self { table: TrafficTable::default(), second: 0, batch: 0 }
    }

    fn now(&self) -> (Timestamp, Instant) {
        let passed = Duration::from_secs(self.second);
        (self.table.started_at + passed, self.table.start + passed)
    }

    /// Reports calls of a proxy of the buyer.
    fn report(&mut self, number: u128, outbound: Vec<ReportedFlow>) {
        self.batch += 1;
        let report =
            TrafficReport { batch: self.batch, seconds: 10, outbound, ..TrafficReport::default() };
        self.record(number, "shop/buyer", report);
    }

    fn record(&self, number: u128, caller: &str, report: TrafficReport) {
        let services = [service(caller)];
        let source =
            TrafficSource { proxy: proxy(number), services: &services, lifetime: LIFETIME };
        let is_known = |port: &ServicePort| port.port < 10_000;
        self.table.record(&source, report, is_known, |port| port.port < 100, self.now());
        self.table.sweep(self.now().1, |_| true);
    }

    /// The rows, as service port, requests, and requests in flight.
    fn rows(&self) -> Vec<(Option<u16>, u64, u64)> {
        let name = |id| Some(ProxyName::from(id));
        let view = self.table.view(None, self.now(), name);
        view.traffic.into_iter().map(|row| (row.port, row.requests, row.in_flight)).collect()
    }
}

#[test]
fn reports_of_several_proxies_add_up() {
    let mut world = World::new();
    world.report(1, vec![flow(80, 10, 2), flow(81, 5, 0)]);
    world.report(2, vec![flow(80, 20, 3)]);
    assert_eq!(world.rows(), [(Some(80), 30, 5), (Some(81), 5, 0)]);
    world.second = 10;
    world.report(1, vec![flow(80, 1, 0)]);
    assert_eq!(world.rows(), [(Some(80), 31, 3), (Some(81), 5, 0)]);
    let view = world.table.view(Some(&service("shop/buyer")), world.now(), |_| None);
    let quantiles = LatencyQuantiles { p50: 5.5, p90: 5.5, p99: 5.5 };
    assert_eq!(view.traffic.first().unwrap().latency_ms, Some(quantiles));
    assert!(view.proxies.is_empty(), "a proxy that is not in use has no name");
    assert!(
        world.table.view(Some(&service("shop/bank")), world.now(), |_| None).traffic.is_empty()
    );
}

#[test]
fn repeated_batch_counts_once() {
    let world = World::new();
    for in_flight in [2, 7] {
        let outbound = vec![flow(80, 10, in_flight)];
        let report = TrafficReport { batch: 5, seconds: 10, outbound, ..TrafficReport::default() };
        world.record(1, "shop/buyer", report);
        assert_eq!(world.rows(), [(Some(80), 10, in_flight)]);
    }
}

#[test]
fn traffic_is_forgotten_after_ten_minutes() {
    let mut world = World::new();
    world.report(1, vec![flow(80, 10, 0)]);
    world.second = STEPS * 60 - 1;
    assert_eq!(world.rows(), [(Some(80), 10, 0)]);
    world.second = STEPS * 60;
    assert_eq!(world.rows(), []);
    world.report(1, vec![flow(81, 1, 0)]);
    assert_eq!(world.rows(), [(Some(81), 1, 0)]);
    assert_eq!(world.table.state.lock().windows.len(), 1);
    let since = world.table.view(None, world.now(), |_| None).since;
    assert_eq!(since, world.table.started_at + Duration::from_secs(60));
}

#[test]
fn silent_proxy_has_nothing_in_flight() {
    let mut world = World::new();
    world.report(1, vec![flow(80, 10, 2)]);
    world.second = 90;
    assert_eq!(world.rows(), [(Some(80), 10, 0)]);
    world.table.sweep(world.now().1, |_| true);
    assert!(world.table.state.lock().proxies.is_empty());
}

#[test]
fn removed_proxy_is_forgotten() {
    let mut world = World::new();
    world.report(1, vec![flow(80, 10, 2)]);
    world.second = 60;
    world.table.sweep(world.now().1, |_| false);
    assert_eq!(world.rows(), [(Some(80), 10, 0)]);
}

/// Calls that waited while the control plane was away belong to the time in which they were counted.
#[test]
fn counts_that_waited_are_spread_over_their_time() {
    let mut world = World::new();
    world.second = 1200;
    let report = |seconds| {
        let outbound = vec![flow(80, 1200, 0)];
        TrafficReport { batch: seconds, seconds, outbound, ..TrafficReport::default() }
    };
    world.record(1, "shop/buyer", report(300));
    assert_eq!(world.rows(), [(Some(80), 1200, 0)]);
    world.second = 1200 + STEPS * 60 - 120;
    assert_eq!(world.rows(), [(Some(80), 480, 0)], "two of five minutes");
    world.second = 3600;
    world.record(1, "shop/buyer", report(1200));
    assert_eq!(world.rows(), [(Some(80), 600, 0)], "ten of twenty minutes");
    // Of very long times, only the rounding is left.
    world.record(1, "shop/buyer", report(u64::MAX));
    assert_eq!(world.rows(), [(Some(80), 601, 0)]);
}

#[test]
fn unknown_ports_add_up_and_foreign_services_are_ignored() {
    let mut world = World::new();
    world.report(1, vec![flow(80, 10, 1), flow(10_001, 3, 1), flow(10_002, 4, 1)]);
    assert_eq!(world.rows(), [(None, 7, 2), (Some(80), 10, 1)]);
    let inbound = |name: &str| {
        let own = ReportedFlow { service: service(name), ..flow(90, 5, 1) };
        TrafficReport { batch: 77, seconds: 10, inbound: vec![own], ..TrafficReport::default() }
    };
    world.record(2, "shop/store", inbound("shop/bank"));
    assert_eq!(world.rows().len(), 2);
    world.record(3, "shop/store", inbound("shop/store"));
    let view = world.table.view(None, world.now(), |_| None);
    let own = view.traffic.last().unwrap();
    assert_eq!((own.caller.clone(), own.port, own.requests), (None, Some(90), 5));
}

#[test]
fn pairs_beyond_the_bound_add_up_by_caller() {
    let mut world = World::new();
    for number in 0..120_u16 {
        let flows = (0..40).map(|index| flow(number * 40 + index, 1, 1)).collect();
        world.report(1, flows);
    }
    let pairs = world.table.state.lock().windows.len();
    assert_eq!(pairs, MAX_PAIRS + 1);
    let rows = world.rows();
    assert_eq!(rows.iter().map(|(_, requests, _)| requests).sum::<u64>(), 4800);
    assert_eq!(rows[0], (None, 4800 - MAX_PAIRS as u64, 40));
    // Old pairs make space for new ones.
    world.second = 3600;
    world.report(1, vec![flow(9_000, 1, 0)]);
    assert_eq!(world.rows(), [(Some(9_000), 1, 0)]);
}

#[test]
fn requests_since_the_start_outlast_the_window() {
    let mut world = World::new();
    world.report(1, vec![flow(80, 10, 2), flow(200, 5, 0)]);
    world.second = 3600;
    world.report(2, vec![flow(80, 1, 0)]);
    // A batch that is sent again counts once, and what servers count is counted by their callers already.
    world.batch -= 1;
    world.report(2, vec![flow(80, 1, 0)]);
    let inbound = vec![flow(80, 7, 0)];
    let report = TrafficReport { batch: 99, seconds: 10, inbound, ..TrafficReport::default() };
    world.record(3, "shop/store", report);
    let totals = |is_allowed: bool| world.table.request_totals(|_| is_allowed);
    let of_pairs: Vec<_> = totals(true).labelled.into_iter().collect();
    let pair = (service("shop/buyer"), ServicePort::new(service("shop/store"), 80));
    assert_eq!(of_pairs, [(pair, [0, 0, 0, 0, 11])]);
    // Policy does not allow the other port.
    assert_eq!(totals(true).other, [0, 0, 0, 0, 5]);
    let without = totals(false);
    assert!(without.labelled.is_empty());
    assert_eq!(without.other, [0, 0, 0, 0, 16]);
}
