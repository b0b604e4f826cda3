//! Revoked and expired proxies: callers no longer use them, and the hub forgets them when unused.

use ironmesh_catalog::Revocation;
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::ResourceType;
use jiff::SignedDuration;

use super::harness::Harness;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// Whether a client has an endpoint of the store at this address.
fn calls(client: &SimulatedClient, address: &str) -> bool {
    let set = client.set();
    let endpoints = &set.of(ResourceType::Endpoint)["default/store|80"];
    endpoints.to_json().to_string().contains(&format!("\"{address}\""))
}

#[test]
fn revoked_proxy_is_removed_from_callers_and_then_forgotten() {
    let mut harness = Harness::open(POLICY);
    let (one, two) = (harness.join(1, &["store"]), harness.join(2, &["store"]));
    let (mut first, mut second) = (harness.connect(&one), harness.connect(&two));
    let mut buyer = harness.proxy(3, &["buyer"]);
    harness.settle(&mut [&mut first, &mut second, &mut buyer]);
    assert!(calls(&buyer, "10.0.0.1") && calls(&buyer, "10.0.0.2"));

    let sets = harness.hub.counters().sets();
    harness.register.revoke(&[one.id], &Revocation { at: harness.now, reason: None }).unwrap();
    harness.settle(&mut [&mut first, &mut second, &mut buyer]);
    assert!(!calls(&buyer, "10.0.0.1") && calls(&buyer, "10.0.0.2"));
    // The revoked proxy may get a set, too, before its streams are closed.
    let given = harness.hub.counters().sets() - sets;
    assert!((1..=2).contains(&given), "only the buyer needs a new set; {given} were published");

    let known = |harness: &Harness| harness.hub.status_of(&one.id.to_string()).is_some();
    let now = harness.now;
    harness.tick(now);
    assert!(known(&harness), "its stream is still open");
    drop(first);
    harness.pass();
    harness.tick(now);
    assert!(!known(&harness));
    assert!(harness.hub.status_of(&two.id.to_string()).is_some());
}

#[test]
fn proxy_with_expired_certificate_is_removed_from_callers() {
    let mut harness = Harness::open(POLICY);
    let mut record = harness.join(1, &["store"]);
    record.certificate_expires_at = harness.now + SignedDuration::from_hours(2);
    harness.register.add(record.clone()).unwrap();
    let mut store = harness.connect(&record);
    let mut buyer = harness.proxy(3, &["buyer"]);
    harness.settle(&mut [&mut store, &mut buyer]);
    assert!(calls(&buyer, "10.0.0.1"));
    let after = |hours| harness.now + SignedDuration::from_hours(hours);
    let (before, afterwards) = (after(1), after(3));
    harness.tick(before);
    assert!(calls(&buyer, "10.0.0.1"));
    harness.tick(afterwards);
    assert!(!calls(&buyer, "10.0.0.1"));
}
