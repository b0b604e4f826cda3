//! Endpoints that providers report: readiness, holds, storage, and when callers get a change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{Endpoint, MeshSpecification, Provider, ProxyId, ServicePort, codes};
use ironmesh_providers::{EndpointsProvider, PeerClock, ProviderReport, ServiceReport, Stale};
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::ResourceType::{self, Cluster};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, advance};
use uuid::Uuid;

use super::harness::Harness;
use crate::reconciler::EndpointsOptions;
use crate::reconciler::liveness::UNREACHABLE_AFTER;

const POLICY: &str = r#"
[[service]]
name = "store"
mode = "permissive"
ports = [{ port = 80, protocol = "http", allowed_target_ports = ["9000-9009"] }]
[service.endpoints.consul]
"#;

/// A provider whose reports the test sets.
#[derive(Debug, Default)]
struct ByHand {
    reports: watch::Sender<ProviderReport>,
    followed: Mutex<Vec<Arc<MeshSpecification>>>,
    clock: PeerClock,
}

impl EndpointsProvider for ByHand {
    fn provider(&self) -> Provider {
        Provider::Consul
    }

    fn follow(&self, specification: &Arc<MeshSpecification>) {
        self.followed.lock().push(Arc::clone(specification));
    }

    fn peer_clock(&self) -> Option<PeerClock> {
        Some(self.clock.clone())
    }

    fn reports(&self) -> watch::Receiver<ProviderReport> {
        self.reports.subscribe()
    }
}

impl ByHand {
    /// Reports the endpoints of the store by the last bytes of their addresses, and no others.
    fn report(&self, last: &[u8]) {
        let one = |last: &u8| Endpoint::new(Provider::Consul, [10, 9, 0, *last].into());
        self.report_all(last.iter().map(one).collect());
    }

    /// Reports these endpoints as all endpoints of the store.
    fn report_all(&self, endpoints: Vec<Endpoint>) {
        let service_report = ServiceReport {
            endpoints: Arc::new(endpoints),
            index: 1,
            learned_at: Timestamp::now(),
            is_authoritative: true,
            problems: Arc::default(),
            stale: None,
        };
        self.reports.send_modify(|report| {
            report.services.insert("store".parse().unwrap(), Arc::new(service_report));
            (report.is_complete, report.has_discovered_services) = (true, true);
        });
    }
}

impl Harness {
    fn with(provider: &Arc<ByHand>) -> Self {
        Self::open_with(POLICY, options(provider))
    }

    /// The number of addresses at which callers reach the store.
    fn called(&self) -> usize {
        let port = ServicePort::new("store".parse().unwrap(), 80);
        let snapshot = self.reconciler.snapshot_builder.snapshot().unwrap();
        snapshot.endpoints.get(&port).map_or(0, |all| all.len())
    }

    fn is_ready(&self) -> bool {
        *self.feeds.ready.borrow()
    }

    fn waits_for(&self) -> String {
        self.feeds.endpoints.borrow().waiting_for.join("; ")
    }
}

fn options(provider: &Arc<ByHand>) -> EndpointsOptions {
    let providers: Vec<Arc<dyn EndpointsProvider>> = vec![Arc::<ByHand>::clone(provider)];
    EndpointsOptions { providers, ..EndpointsOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn control_plane_is_not_ready_before_the_provider_answers() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    harness.pass();
    assert!(!harness.is_ready());
    assert_eq!(provider.followed.lock().len(), 1, "the provider has the services to look up");
    // A first start has no stored endpoints, so readiness waits for the provider without a limit.
    advance(Duration::from_secs(3600)).await;
    let stale = Stale { since: Timestamp::now(), reason: "no agent answers".to_owned() };
    provider.reports.send_modify(|report| report.stale = Some(stale));
    harness.pass();
    assert!(!harness.is_ready());
    assert!(harness.reconciler.deadline() > Instant::now(), "no pass is due without a new report");
    let words = harness.waits_for();
    for part in ["default/store", "consul", "no agent answers", "--without consul"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    provider.report(&[]);
    harness.pass();
    assert!(harness.is_ready(), "an empty report is an answer");
    assert_eq!((harness.waits_for(), harness.called()), (String::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn provider_clock_skew_is_reported_until_the_clocks_agree() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    provider.report(&[1]);
    let now = harness.now;
    let days = SignedDuration::from_hours(72);
    let mut reported = |date: Timestamp| {
        provider.clock.record("consul-1", date);
        harness.tick(now);
        let findings = harness.feeds.mesh_findings.borrow();
        // The endpoint without a proxy causes a finding of its own.
        let of_clock = findings.iter().filter(|finding| finding.code == codes::CLOCK_DIFFERS);
        of_clock.map(ToString::to_string).collect::<Vec<_>>()
    };
    let words = reported(now - days);
    let expected = "the clock of the control plane is 72h ahead of that of consul at `consul-1`";
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(words[0].contains("IM0714") && words[0].contains(expected), "{words:?}");
    assert_eq!(reported(now - days + SignedDuration::from_secs(20)), words, "reported once");
    assert!(reported(now + days)[0].contains("72h behind that of consul"));
    assert_eq!(reported(now), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn start_without_the_provider_serves_stored_endpoints() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    provider.report(&[1, 2, 3]);
    harness.pass();
    assert!(harness.is_ready());

    let silent = Arc::<ByHand>::default();
    let mut harness = harness.restarted(POLICY, options(&silent));
    harness.pass();
    assert!(!harness.is_ready(), "the provider has five seconds to answer");
    assert_eq!(harness.reconciler.deadline(), Instant::now() + Duration::from_secs(5));
    advance(Duration::from_secs(5)).await;
    harness.pass();
    assert!(harness.is_ready());
    assert_eq!(harness.called(), 3);
    // The reports of the recovered provider count again. The guards hold back a sudden loss as if
    // the provider had never been away.
    silent.report(&[]);
    harness.pass();
    assert_eq!(harness.called(), 3);
    silent.report(&[1, 2, 3, 4]);
    harness.pass();
    assert_eq!(harness.called(), 4);
}

// The reconciler stores endpoints once a second, so a shutdown may find the last change unstored.
#[tokio::test(start_paused = true)]
async fn clean_shutdown_stores_the_newest_endpoints() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    for reported in [&[1][..], &[1, 2, 3]] {
        provider.report(reported);
        harness.pass();
    }
    let silent = Arc::<ByHand>::default();
    let mut harness = harness.restarted_cleanly(POLICY, options(&silent));
    harness.pass();
    advance(Duration::from_secs(5)).await;
    harness.pass();
    assert_eq!(harness.called(), 3);
}

#[tokio::test(start_paused = true)]
async fn provider_excluded_by_option_does_not_delay_readiness() {
    let provider = Arc::<ByHand>::default();
    let without = BTreeSet::from([Provider::Consul]);
    let mut harness =
        Harness::open_with(POLICY, EndpointsOptions { without, ..options(&provider) });
    harness.pass();
    assert!(harness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn held_back_loss_is_reported_and_ends_after_its_deadline() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    provider.report(&[1, 2, 3]);
    harness.pass();
    provider.report(&[]);
    harness.pass();
    assert_eq!(harness.called(), 3);
    let removal_is_reported = |harness: &Harness| {
        let findings = harness.feeds.mesh_findings.borrow();
        findings.iter().any(|finding| finding.code.to_string() == "IM0502")
    };
    assert!(removal_is_reported(&harness));
    let due = harness.reconciler.deadline();
    advance(due - Instant::now()).await;
    for _ in 0..3 {
        harness.pass();
        let due = harness.reconciler.deadline();
        advance(due - Instant::now()).await;
    }
    harness.pass();
    assert_eq!((harness.called(), removal_is_reported(&harness)), (0, false));
}

#[tokio::test(start_paused = true)]
async fn endpoint_change_encodes_the_endpoints_of_one_service() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    provider.report(&[1, 2, 3]);
    let mut caller = harness.proxy(1, &["store"]);
    harness.settle(&mut [&mut caller]);
    let before = harness.reconciler.snapshot_builder.compiler().unwrap().encoded();
    provider.report(&[1, 2]);
    harness.settle(&mut [&mut caller]);
    let encoded = harness.reconciler.snapshot_builder.compiler().unwrap().encoded() - before;
    assert_eq!((harness.called(), encoded), (2, 1));
}

// Callers get the removal at the same time as the proxy. Requests that they have already sent still
// need the application.
#[tokio::test(start_paused = true)]
async fn proxy_keeps_a_removed_local_endpoint_for_15_seconds() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    let other = Endpoint::new(Provider::Consul, [10, 9, 0, 2].into());
    let behind = |port| {
        let own = Endpoint::new(Provider::Consul, [10, 9, 0, 1].into());
        Endpoint { port: Some(port), proxy: Some(ProxyId(Uuid::from_u128(1))), ..own }
    };
    let leads_to = |server: &SimulatedClient| {
        let set = server.set();
        let cluster = set.of(Cluster).get("default/store|80|local").unwrap().to_json();
        let port =
            "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/socketAddress/portValue";
        cluster.pointer(port).unwrap().as_u64().unwrap()
    };
    let mut server = harness.proxy(1, &["store"]);
    provider.report_all(vec![behind(9000), other.clone()]);
    harness.settle(&mut [&mut server]);
    assert_eq!((leads_to(&server), harness.called()), (9000, 2));

    provider.report_all(vec![other.clone()]);
    harness.settle(&mut [&mut server]);
    assert_eq!((leads_to(&server), harness.called()), (9000, 1));
    // A new local endpoint is not delayed.
    provider.report_all(vec![behind(9001), other.clone()]);
    harness.settle(&mut [&mut server]);
    assert_eq!((leads_to(&server), harness.called()), (9001, 2));

    provider.report_all(vec![other]);
    harness.settle(&mut [&mut server]);
    assert_eq!((leads_to(&server), harness.called()), (9001, 1));
    advance(Duration::from_secs(15)).await;
    harness.settle(&mut [&mut server]);
    assert_eq!(leads_to(&server), 80);
}

// Before the ACK, the proxy would lead a call to a port without a listener, and no one retries it.
#[tokio::test(start_paused = true)]
async fn endpoint_is_called_after_its_proxy_acks_the_local_cluster() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    let other = Endpoint::new(Provider::Consul, [10, 9, 0, 2].into());
    provider.report_all(vec![other.clone()]);
    let behind = |port| {
        let own = Endpoint::new(Provider::Consul, [10, 9, 0, 1].into());
        Endpoint { port: Some(port), proxy: Some(ProxyId(Uuid::from_u128(1))), ..own }
    };
    let mut server = harness.proxy(1, &["store"]);
    harness.settle(&mut [&mut server]);
    let lacks_backend = |harness: &Harness| {
        let records = harness.register.records();
        records.values().any(|record| !record.ports_without_backend.is_empty())
    };
    assert!(lacks_backend(&harness));

    provider.report_all(vec![behind(9000), other.clone()]);
    harness.settle(&mut []);
    // Callers do not use the application in plaintext either, since its proxy participates.
    assert_eq!(harness.called(), 1);
    server.ack(Cluster);
    harness.settle(&mut []);
    assert_eq!((harness.called(), lacks_backend(&harness)), (2, false));
    // The endpoint moves to another port. Its proxy has a local endpoint, so callers keep it.
    provider.report_all(vec![behind(9001), other.clone()]);
    harness.settle(&mut []);
    assert_eq!(harness.called(), 2);

    // The application goes and returns while its proxy has not ACKed everything.
    harness.set_policy(
        &POLICY.replace("name = \"store\"", "name = \"store\"\nservice_account = \"other\""),
    );
    harness.settle(&mut []);
    assert_eq!(harness.called(), 2);
    provider.report_all(vec![other.clone()]);
    harness.settle(&mut []);
    server.ack(Cluster);
    harness.settle(&mut []);
    assert!(lacks_backend(&harness));
    provider.report_all(vec![behind(9002), other]);
    harness.settle(&mut []);
    assert_eq!(harness.called(), 1);
    server.ack(Cluster);
    harness.settle(&mut []);
    assert_eq!((harness.called(), lacks_backend(&harness)), (2, false));
}

#[tokio::test(start_paused = true)]
async fn port_without_backend_survives_a_restart() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    provider.report(&[2]);
    let mut server = harness.proxy(1, &["store"]);
    harness.settle(&mut [&mut server]);

    let provider = Arc::<ByHand>::default();
    let mut harness = harness.restarted(POLICY, options(&provider));
    let own = Endpoint::new(Provider::Consul, [10, 9, 0, 1].into());
    let proxy = Some(ProxyId(Uuid::from_u128(1)));
    let behind = Endpoint { port: Some(9000), proxy, ..own };
    provider.report_all(vec![behind, Endpoint::new(Provider::Consul, [10, 9, 0, 2].into())]);
    harness.settle(&mut []);
    assert_eq!(
        harness.called(),
        1,
        "the proxy is not connected and has not ACKed the new endpoint"
    );
    let mut server = harness.returning(1);
    harness.settle(&mut [&mut server]);
    assert_eq!(harness.called(), 2);
}

// All endpoints are replaced at once. Without the old ones, callers would briefly have no endpoint.
#[tokio::test(start_paused = true)]
async fn callers_keep_old_endpoints_until_the_new_server_acks() {
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::with(&provider);
    let behind = |number: u8, port| {
        let own = Endpoint::new(Provider::Consul, [10, 9, 0, number].into());
        let proxy = Some(ProxyId(Uuid::from_u128(number.into())));
        Endpoint { port: Some(port), proxy, ..own }
    };
    let (mut one, mut other) = (harness.proxy(1, &["store"]), harness.proxy(2, &["store"]));
    provider.report_all(vec![behind(1, 9000)]);
    harness.settle(&mut [&mut one, &mut other]);
    let has_endpoints = |client: &SimulatedClient| {
        let set = client.set();
        let endpoints = set.of(ResourceType::Endpoint).get("default/store|80").unwrap().to_json();
        endpoints["endpoints"].as_array().is_some_and(|all| !all.is_empty())
    };
    assert!(has_endpoints(&one), "the store is one of its own callers");
    provider.report_all(vec![behind(2, 9001)]);
    harness.pass();
    assert_eq!(harness.called(), 0);
    assert!(has_endpoints(&one));
    other.ack_all();
    harness.settle(&mut [&mut one]);
    assert_eq!(harness.called(), 1);
    assert!(has_endpoints(&one));
}

#[tokio::test(start_paused = true)]
async fn disconnected_proxy_is_unreachable_until_it_reconnects() {
    let mut harness = Harness::open(POLICY);
    let (mut one, mut other) = (harness.proxy(1, &["store"]), harness.proxy(2, &["store"]));
    harness.settle(&mut [&mut one, &mut other]);
    drop(one);
    harness.pass();
    advance(UNREACHABLE_AFTER).await;
    harness.pass();
    let suspects = |harness: &Harness| {
        let records = harness.register.records();
        records.values().filter(|record| record.unreachable_since.is_some()).count()
    };
    assert_eq!(suspects(&harness), 1);
    let mut one = harness.returning(1);
    harness.settle(&mut [&mut one, &mut other]);
    assert_eq!(suspects(&harness), 0);
}

#[tokio::test(start_paused = true)]
async fn rejected_provider_query_delays_readiness_only_briefly() {
    let both = format!("{POLICY}{}", POLICY.replace("store", "till"));
    let refused = |provider: &ByHand| {
        let stale = Stale { since: Timestamp::now(), reason: "mend the filter".to_owned() };
        provider.reports.send_modify(|report| {
            report.troubles.insert("till".parse().unwrap(), stale);
        });
    };
    let provider = Arc::<ByHand>::default();
    refused(&provider);
    provider.report(&[1]);
    let mut harness = Harness::open_with(&both, options(&provider));
    harness.pass();
    assert!(!harness.is_ready());
    assert!(harness.waits_for().contains("mend the filter"), "{}", harness.waits_for());
    advance(Duration::from_secs(5)).await;
    harness.pass();
    assert!(harness.is_ready());

    // The provider reports no service at all, so the provider may be at fault and not the query.
    let provider = Arc::<ByHand>::default();
    refused(&provider);
    let mut harness = Harness::open_with(&both, options(&provider));
    advance(Duration::from_secs(3600)).await;
    harness.pass();
    assert!(!harness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn readiness_waits_for_discovery_of_tagged_services() {
    let policy = POLICY.replace("[service.endpoints.consul]", "");
    let provider = Arc::<ByHand>::default();
    let mut harness = Harness::open_with(&policy, options(&provider));
    harness.pass();
    assert!(!harness.is_ready());
    assert!(harness.waits_for().contains("discovered by tag"), "{}", harness.waits_for());
    provider.reports.send_modify(|report| report.has_discovered_services = true);
    harness.pass();
    assert!(harness.is_ready());
}
