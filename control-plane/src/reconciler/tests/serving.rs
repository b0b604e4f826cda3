//! Proxies with certificates of their agents: they participate by its reports.

use ironmesh_catalog::{CertificateSource, JoinRecord, Participation, ServicePort};
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::Node;
use serde_json::json;
use tokio::time::Instant;

use super::harness::{Harness, node};
use crate::reconciler::EndpointsOptions;
use crate::serving_table::ServingNames;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
"#;

/// The same service with a second port.
const TWO_PORTS: &str = r#"
[[service]]
name = "store"
ports = [
  { name = "web", port = 80, protocol = "http" },
  { name = "second", port = 81, protocol = "http" },
]
"#;

const WEB: &str = "80.store.default.mesh.internal";
const SECOND: &str = "81.store.default.mesh.internal";

fn connect(harness: &Harness, record: &JoinRecord) -> SimulatedClient {
    let node = Node { metadata: Some(json!({ "certificates": "agent" })), ..node(record) };
    SimulatedClient::connect(&harness.hub, &record.id.to_string(), node)
}

fn report(harness: &Harness, record: &JoinRecord, names: &[(&str, &str)]) {
    let names: ServingNames =
        names.iter().map(|(name, of)| ((*name).to_owned(), of.parse().unwrap())).collect();
    let starts = harness.hub.process_starts(&record.id.to_string());
    harness.serving.report(record.id, names, starts);
}

fn participation(harness: &Harness, record: &JoinRecord) -> Vec<u16> {
    let Participation(ports) = &harness.register.get(record.id).unwrap().participation;
    ports.iter().map(|(_, port)| *port).collect()
}

fn endpoints(harness: &Harness, port: u16) -> usize {
    let snapshot = harness.feeds.snapshot.borrow().clone().unwrap();
    let port = ServicePort::new("store".parse().unwrap(), port);
    snapshot.endpoints.get(&port).map_or(0, |hosts| hosts.len())
}

#[test]
fn proxy_participates_when_its_agent_reports_the_ports() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["store"]);
    let mut store = connect(&harness, &record);
    harness.settle(&mut [&mut store]);
    assert!(harness.hub.is_synced(&record.id.to_string()));
    assert_eq!(participation(&harness, &record), [0; 0], "an ACK states nothing about the port");
    assert_eq!(
        harness.register.get(record.id).unwrap().certificates,
        CertificateSource::Agent,
        "it is recorded where the certificates come from"
    );
    for (reported, why) in [
        (&[][..], "nothing is served"),
        (&[(SECOND, "store")], "another port"),
        (&[(WEB, "thief")], "the certificate of another account"),
    ] {
        report(&harness, &record, reported);
        harness.pass();
        assert_eq!(participation(&harness, &record), [0; 0], "{why}");
    }
    report(&harness, &record, &[(WEB, "store")]);
    harness.pass();
    harness.pass();
    assert_eq!(participation(&harness, &record), [80]);
    assert_eq!(endpoints(&harness, 80), 1);

    // A lost report takes no port away: the proxy may still serve it.
    report(&harness, &record, &[]);
    harness.settle(&mut [&mut store]);
    assert_eq!(participation(&harness, &record), [80]);
}

#[test]
fn new_port_waits_for_a_report_and_the_old_one_stays() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["store"]);
    let mut store = connect(&harness, &record);
    harness.settle(&mut [&mut store]);
    report(&harness, &record, &[(WEB, "store")]);
    harness.settle(&mut [&mut store]);
    harness.set_policy(TWO_PORTS);
    harness.settle(&mut [&mut store]);
    assert_eq!(
        participation(&harness, &record),
        [80],
        "the new listener may wait for a certificate"
    );
    report(&harness, &record, &[(WEB, "store"), (SECOND, "store")]);
    harness.settle(&mut [&mut store]);
    assert_eq!(participation(&harness, &record), [80, 81]);
    assert_eq!((endpoints(&harness, 80), endpoints(&harness, 81)), (1, 1));
}

#[test]
fn early_serving_report_counts_unless_of_an_earlier_envoy() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["store"]);
    let store = connect(&harness, &record);
    harness.pass();
    // It is from the first Envoy, which ends before it ACKs anything.
    report(&harness, &record, &[(WEB, "store")]);
    drop(store);
    harness.pass();
    let mut store = connect(&harness, &record);
    harness.settle(&mut [&mut store]);
    assert_eq!(participation(&harness, &record), [0; 0]);
    drop(store);
    let mut store = connect(&harness, &record);
    harness.pass();
    report(&harness, &record, &[(WEB, "store")]);
    harness.settle(&mut [&mut store]);
    assert_eq!(participation(&harness, &record), [80]);
}

#[test]
fn participation_outlasts_a_restart_and_reports_do_not() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["store"]);
    let mut store = connect(&harness, &record);
    harness.settle(&mut [&mut store]);
    report(&harness, &record, &[(WEB, "store")]);
    harness.settle(&mut [&mut store]);
    drop(store);
    let mut harness = harness.restarted(TWO_PORTS, EndpointsOptions::default());
    let mut store = connect(&harness, &record);
    harness.settle(&mut [&mut store]);
    assert_eq!(participation(&harness, &record), [80], "no report since the restart");
    report(&harness, &record, &[(WEB, "store"), (SECOND, "store")]);
    harness.settle(&mut [&mut store]);
    assert_eq!(participation(&harness, &record), [80, 81]);
}

#[tokio::test(start_paused = true)]
async fn leave_ends_when_the_new_envoy_accepts_callers() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["store"]);
    let mut store = connect(&harness, &record);
    harness.settle(&mut [&mut store]);
    report(&harness, &record, &[(WEB, "store")]);
    harness.settle(&mut [&mut store]);
    let starts = harness.hub.process_starts(&record.id.to_string());
    harness.leaves.leave(record.id, starts, true, harness.now, Instant::now());
    harness.pass();
    drop(store);
    harness.pass();
    let mut store = connect(&harness, &record);
    harness.settle(&mut [&mut store]);
    assert!(harness.leaves.since(record.id).is_some(), "its listener may wait for a certificate");
    report(&harness, &record, &[(WEB, "store")]);
    harness.pass();
    assert_eq!(harness.leaves.since(record.id), None);
}

#[test]
fn proxy_that_is_not_in_use_has_no_report() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["store"]);
    let mut store = connect(&harness, &record);
    harness.settle(&mut [&mut store]);
    report(&harness, &record, &[(WEB, "store")]);
    harness.serving.retain(|_| false);
    harness.settle(&mut [&mut store]);
    assert_eq!(participation(&harness, &record), [0; 0]);
}
