//! Revoked and expired proxies: callers no longer use them, and the hub forgets them when unused.

use std::time::Duration;

use ironmesh_catalog::{Revocation, ServiceAccount};
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::ResourceType;
use jiff::SignedDuration;
use serde_json::Value;

use super::harness::Harness;
use crate::peers::Peers;
use crate::reconciler::EndpointsOptions;

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
    harness.register.revoke(&[one.id], &Revocation::by_operator(harness.now, None)).unwrap();
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

/// The shared certificate of the buyers, by its serial number, and the number of its replacements in a cluster.
fn certificate(harness: &Harness, buyer: &SimulatedClient) -> (String, Value) {
    let snapshot = harness.feeds.snapshot.borrow().clone().unwrap();
    let account: ServiceAccount = "buyer".parse().unwrap();
    let certificate = &snapshot.certificates[&account];
    let set = buyer.set();
    let secret = set.of(ResourceType::Secret)["service-cert"].to_json().to_string();
    assert!(secret.contains("BEGIN CERTIFICATE"), "{secret}");
    let cluster = set.of(ResourceType::Cluster)["default/store|80"].to_json();
    let number = cluster["metadata"]["filterMetadata"]["ironmesh"]["certificate"].clone();
    (certificate.serial.clone(), number)
}

/// Whether the store refuses the certificate with this serial number.
fn refuses(store: &SimulatedClient, serial: &str) -> bool {
    let set = store.set();
    let routes = set.of(ResourceType::Route)["inbound|default/store|80"].to_json();
    let refused = &routes["virtualHosts"][0]["typedPerFilterConfig"]["revoked"];
    refused.to_string().contains(&format!("\"{serial}.shared.mesh.internal\""))
}

#[tokio::test(start_paused = true)]
async fn shared_certificate_is_listed_after_acks_of_its_successor() {
    for has_answer in [true, false] {
        let mut harness = Harness::open(POLICY);
        let mut store = harness.proxy(1, &["store"]);
        let revoked = harness.join(2, &["buyer"]);
        let mut thief = harness.connect(&revoked);
        let mut other = harness.proxy(3, &["buyer"]);
        harness.settle(&mut [&mut store, &mut thief, &mut other]);
        let (old, number) = certificate(&harness, &other);
        assert_eq!(number, Value::Null);
        let known = harness.register.get(revoked.id).unwrap();
        assert!(known.shared_accounts.contains(&"buyer".parse().unwrap()), "{known:?}");

        let revocation = Revocation::by_operator(harness.now, None);
        harness.register.revoke(&[revoked.id], &revocation).unwrap();
        drop(thief);
        harness.pass();
        let refused = harness.register.get(revoked.id).unwrap().refused.clone().unwrap();
        assert_eq!(refused.iter().map(|one| &one.serial).collect::<Vec<_>>(), [&old]);
        let (new, number) = certificate(&harness, &other);
        assert!(new != old && number.as_f64() == Some(1.0), "{number}");
        assert!(!refuses(&store, &old), "the other buyer has not ACKed its new certificate");
        let wait = if has_answer {
            harness.settle(&mut [&mut store, &mut other]);
            2000
        } else {
            harness.settle(&mut [&mut store]);
            15_000
        };
        tokio::time::advance(Duration::from_millis(wait - 100)).await;
        harness.pass();
        assert!(!refuses(&store, &old), "{has_answer}");
        tokio::time::advance(Duration::from_millis(200)).await;
        harness.pass();
        assert!(refuses(&store, &old) && !refuses(&store, &new), "{has_answer}");

        // A restart keeps that, and replaces nothing again.
        drop((store, other));
        let mut harness = harness.restarted(POLICY, EndpointsOptions::default());
        let (mut store, mut other) = (harness.returning(1), harness.returning(3));
        harness.settle(&mut [&mut store, &mut other]);
        assert_eq!(certificate(&harness, &other), (new, number));
        assert!(refuses(&store, &old));
    }
}

#[tokio::test(start_paused = true)]
async fn shared_certificate_is_listed_after_acks_at_peers() {
    for has_answer in [true, false] {
        let mut harness = Harness::open(POLICY);
        let (peers, at_peer) = (harness.follow_peers(), Peers::default());
        peers.learn_from(&at_peer);
        let mut store = harness.proxy(1, &["store"]);
        let revoked = harness.join(2, &["buyer"]);
        let mut thief = harness.connect(&revoked);
        let mut other = harness.proxy(3, &["buyer"]);
        harness.settle(&mut [&mut store, &mut thief, &mut other]);
        let (old, _) = certificate(&harness, &other);
        let revocation = Revocation::by_operator(harness.now, None);
        harness.register.revoke(&[revoked.id], &revocation).unwrap();
        drop(thief);
        harness.settle(&mut [&mut store, &mut other]);
        // What peers learn of the proxies here.
        at_peer.learn_from(&peers);
        assert!(at_peer.have_replaced(&old) && !at_peer.have_replaced("7"));
        let before = if has_answer { 3000 } else { 14_900 };
        tokio::time::advance(Duration::from_millis(before)).await;
        harness.pass();
        assert!(!refuses(&store, &old), "proxies at the peer have not ACKed their new certificate");
        if has_answer {
            at_peer.note_replaced([old.clone()].into());
            peers.learn_from(&at_peer);
            harness.pass();
            assert!(!refuses(&store, &old));
        }
        tokio::time::advance(Duration::from_millis(2100)).await;
        harness.pass();
        assert!(refuses(&store, &old), "{has_answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn left_proxy_is_refused_only_after_an_operators_revocation() {
    let mut harness = Harness::open(POLICY);
    let mut store = harness.proxy(1, &["store"]);
    let leaving = harness.join(2, &["buyer"]);
    let mut client = harness.connect(&leaving);
    let mut other = harness.proxy(3, &["buyer"]);
    harness.settle(&mut [&mut store, &mut client, &mut other]);
    let (serial, _) = certificate(&harness, &other);
    drop(client);
    let now = harness.now;
    let by_operator = |reason: &str| Revocation::by_operator(now, Some(reason.to_owned()));
    let mut revoke = |revocation: Revocation| {
        harness.register.revoke(&[leaving.id], &revocation).unwrap();
        harness.settle(&mut [&mut store, &mut other]);
        certificate(&harness, &other).0
    };
    assert_eq!(revoke(Revocation::left(now)), serial);
    // Nor does its reimaged machine, once it is revoked.
    assert_eq!(revoke(Revocation::reimaged(now)), serial);
    assert_ne!(revoke(by_operator("stolen")), serial);
    // The first reason of an operator stays.
    revoke(by_operator("sold"));
    let kept = harness.register.get(leaving.id).unwrap().revoked.clone().unwrap();
    assert_eq!(kept.reason.as_deref(), Some("stolen"));
}

/// The findings with this code, as text.
fn findings(harness: &Harness, code: &str) -> Vec<String> {
    let all = harness.feeds.mesh_findings.borrow();
    all.iter().map(ToString::to_string).filter(|text| text.contains(code)).collect()
}

#[test]
fn shared_certificate_is_withheld_until_its_account_is_recorded() {
    let mut harness = Harness::open(POLICY);
    let mut store = harness.proxy(1, &["store"]);
    harness.settle(&mut [&mut store]);
    let record = harness.join(2, &["buyer"]);
    harness.disk.fail_after(Some(0));
    let mut buyer = harness.connect(&record);
    harness.settle(&mut [&mut store, &mut buyer]);
    let has_secret = |buyer: &SimulatedClient| !buyer.set().of(ResourceType::Secret).is_empty();
    assert!(!has_secret(&buyer), "no server would refuse it after a revocation");
    let [finding] = &findings(&harness, "IM0737")[..] else { panic!("no finding") };
    assert!(finding.contains("no space left") && finding.contains("no configuration"), "{finding}");

    harness.disk.fail_after(None);
    harness.settle(&mut [&mut store, &mut buyer]);
    assert!(has_secret(&buyer));
    assert!(findings(&harness, "IM0737").is_empty());
    let accounts = &harness.register.get(record.id).unwrap().shared_accounts;
    assert!(accounts.contains(&"buyer".parse().unwrap()));
}

#[test]
fn revocation_that_is_not_enforced_is_a_finding_until_it_is() {
    let mut harness = Harness::open(POLICY);
    let mut store = harness.proxy(1, &["store"]);
    let revoked = harness.join(2, &["buyer"]);
    let mut thief = harness.connect(&revoked);
    harness.settle(&mut [&mut store, &mut thief]);
    // The revocation itself is stored. What follows from it is not.
    harness.disk.fail_after(Some(1));
    let revocation = Revocation::by_operator(harness.now, None);
    harness.register.revoke(&[revoked.id], &revocation).unwrap();
    harness.pass();
    let [finding] = &findings(&harness, "IM0736")[..] else { panic!("no finding") };
    assert!(finding.contains(&revoked.display_name().to_string()), "{finding}");
    assert!(harness.register.get(revoked.id).unwrap().refused.is_none());

    harness.disk.fail_after(None);
    let now = harness.now;
    harness.tick(now);
    assert!(findings(&harness, "IM0736").is_empty());
    assert!(harness.register.get(revoked.id).unwrap().refused.is_some());
}

#[test]
fn earlier_versions_record_is_refused_by_its_services_accounts() {
    let mut harness = Harness::open(POLICY);
    let mut store = harness.proxy(1, &["store"]);
    let mut other = harness.proxy(3, &["buyer"]);
    // It has not connected to this version, so its accounts were never recorded.
    let revoked = harness.join(2, &["buyer"]);
    harness.settle(&mut [&mut store, &mut other]);
    let (serial, _) = certificate(&harness, &other);
    let revocation = Revocation::by_operator(harness.now, None);
    harness.register.revoke(&[revoked.id], &revocation).unwrap();
    harness.settle(&mut [&mut store, &mut other]);
    let refused = harness.register.get(revoked.id).unwrap().refused.clone().unwrap();
    assert_eq!(refused.iter().map(|one| &one.serial).collect::<Vec<_>>(), [&serial]);
    assert_ne!(certificate(&harness, &other).0, serial);
}
