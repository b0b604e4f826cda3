//! Application health: reports reach the snapshot, and never the store.

use std::time::Duration;

use ironmesh_catalog::{ApplicationState, Health, HealthSource, JoinRecord, Probe, ServicePort};
use tokio::time::Instant;

use super::harness::Harness;
use crate::health_table::{Report, ReportedStates};

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
health = { tcp = {} }
"#;

fn port() -> ServicePort {
    ServicePort::new("store".parse().unwrap(), 80)
}

fn report(harness: &Harness, record: &JoinRecord, state: ApplicationState, at: Instant) {
    let states = [(port(), ReportedStates::from([(80, (state, None))]))].into();
    let (source, lifetime) = (HealthSource::Envoy, Duration::from_secs(30));
    let report = Report { source, states, probes: [(port(), Probe::Tcp)].into(), lifetime };
    harness.health.report(record.id, report, (harness.now, at)).unwrap();
}

fn health(harness: &Harness) -> Health {
    let snapshot = harness.feeds.snapshot.borrow().clone().unwrap();
    snapshot.endpoints.get(&port()).unwrap().first().unwrap().health
}

#[test]
fn flapping_application_writes_nothing_to_the_store() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["store"]);
    let mut store = harness.connect(&record);
    harness.settle(&mut [&mut store]);
    assert_eq!(health(&harness), Health::Healthy, "unknown is used");
    let file = harness.folder.path().join("state/state.redb");
    let before = fs_err::read(&file).unwrap();
    let start = Instant::now();
    for flap in 0..60 {
        let (state, expected) = if flap % 2 == 0 {
            (ApplicationState::Unhealthy, Health::Unhealthy)
        } else {
            (ApplicationState::Healthy, Health::Healthy)
        };
        report(&harness, &record, state, start + Duration::from_secs(flap));
        harness.settle(&mut [&mut store]);
        assert_eq!(health(&harness), expected);
    }
    assert!(fs_err::read(&file).unwrap() == before, "a flap was stored");
}
