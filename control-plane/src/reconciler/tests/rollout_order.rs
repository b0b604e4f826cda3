//! The order of a rollout: callers wait for servers, servers for callers, and for how long.

use std::time::Duration;

use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::ResourceType::{Cluster, Listener, Secret};
use tokio::time::advance;

use super::harness::Harness;
use super::log::Log;
use crate::reconciler::rollout_order::{IN_FLIGHT, MAX_WAIT};

/// Policy with these services, all of the account `store`, and a `buyer` that may call them.
pub(super) fn policy(services: &[&str]) -> String {
    let service = |name: &&str| {
        format!(
            "[[service]]\nname = \"{name}\"\nservice_account = \"store\"\n\
             ports = [{{ port = 80, protocol = \"http\" }}]\n"
        )
    };
    let services: String = services.iter().map(service).collect();
    services
        + r#"
[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "store"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#
}

/// The service ports that the resource set of a proxy serves.
fn served(client: &SimulatedClient) -> Vec<String> {
    let set = client.set();
    let Some(listener) = set.of(Listener).get("inbound") else { return Vec::new() };
    let content = listener.to_json();
    let names = content["filterChains"].as_array().unwrap().iter();
    let name = |chain: &serde_json::Value| chain["name"].as_str().unwrap().to_owned();
    names.map(|chain| name(chain).trim_start_matches("inbound|").to_owned()).collect()
}

/// Whether a client's resource set has the cluster of this port.
fn calls(client: &SimulatedClient, port: &str) -> bool {
    client.set().contains(Cluster, port)
}

const PORT_NOT_SERVED: &str = "no proxy serves the port after 15 s";
const REMOVAL_NOT_ACKED: &str = "a caller has not ACKed the removal of the port";

// One edit removes one service from a proxy and adds another, and one client calls both. The client
// waits until the proxy serves the new service; the proxy waits until no caller uses the old one.
#[tokio::test(start_paused = true)]
async fn circular_rollout_wait_completes_without_a_timeout() {
    let log = Log::begin();
    let mut harness = Harness::open(&policy(&["stall"]));
    let mut server = harness.proxy(1, &["stall", "shop"]);
    let mut buyer = harness.proxy(2, &["buyer"]);
    harness.settle(&mut [&mut server, &mut buyer]);
    assert!(calls(&buyer, "default/stall|80"));

    harness.set_policy(&policy(&["shop"]));
    assert_eq!(served(&server), ["default/shop|80", "default/stall|80"]);
    assert!(server.set().contains(Cluster, "default/stall|80|local"));
    assert!(calls(&buyer, "default/stall|80") && !calls(&buyer, "default/shop|80"));
    server.ack_all();
    harness.pass();
    harness.pass();
    assert!(calls(&buyer, "default/shop|80") && !calls(&buyer, "default/stall|80"));
    buyer.ack_all();
    harness.pass();
    // The proxy keeps the old port for requests in flight.
    assert_eq!(served(&server), ["default/shop|80", "default/stall|80"]);
    advance(IN_FLIGHT).await;
    harness.pass();
    assert_eq!(served(&server), ["default/shop|80"]);
    assert!(!server.set().contains(Cluster, "default/stall|80|local"));
    assert_eq!(log.count(PORT_NOT_SERVED) + log.count(REMOVAL_NOT_ACKED), 0);
}

#[tokio::test(start_paused = true)]
async fn silent_caller_delays_removal_15_seconds_and_is_logged_once() {
    let log = Log::begin();
    let mut harness = Harness::open(&policy(&["stall", "shop"]));
    let mut server = harness.proxy(1, &["stall", "shop"]);
    let mut buyer = harness.proxy(2, &["buyer"]);
    harness.settle(&mut [&mut server, &mut buyer]);
    harness.set_policy(&policy(&["shop"]));
    server.ack_all();
    advance(Duration::from_secs(14)).await;
    harness.pass();
    assert_eq!(served(&server), ["default/shop|80", "default/stall|80"]);
    assert_eq!(log.count(REMOVAL_NOT_ACKED), 0);
    // The wait has ended, and does not begin again while the caller stays silent.
    for _ in 0..10 {
        advance(Duration::from_secs(14)).await;
        harness.pass();
        assert_eq!(served(&server), ["default/shop|80"]);
    }
    assert_eq!(log.count(REMOVAL_NOT_ACKED), 1);
    // The next removal waits anew.
    harness.set_policy(&policy(&["stall", "shop"]));
    harness.settle(&mut [&mut server, &mut buyer]);
    harness.set_policy(&policy(&["shop"]));
    assert_eq!(served(&server), ["default/shop|80", "default/stall|80"]);
}

#[tokio::test(start_paused = true)]
async fn silent_server_delays_callers_15_seconds_and_is_logged_once() {
    let log = Log::begin();
    let mut harness = Harness::open(&policy(&["stall"]));
    let mut buyer = harness.proxy(2, &["buyer"]);
    let mut server = harness.proxy(1, &["shop"]);
    harness.settle(&mut [&mut server, &mut buyer]);
    harness.set_policy(&policy(&["stall", "shop"]));
    advance(Duration::from_secs(14)).await;
    harness.pass();
    assert!(!calls(&buyer, "default/shop|80"), "no proxy has ACKed the port");
    for _ in 0..10 {
        advance(Duration::from_secs(14)).await;
        buyer.ack_all();
        harness.pass();
        assert!(calls(&buyer, "default/shop|80"));
    }
    assert_eq!(log.count(PORT_NOT_SERVED), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_are_revisited_only_after_the_server_acks() {
    let mut harness = Harness::open(&policy(&["stall"]));
    let mut buyers: Vec<_> = (10..40).map(|number| harness.proxy(number, &["buyer"])).collect();
    let mut server = harness.proxy(1, &["shop"]);
    let mut all: Vec<_> = buyers.iter_mut().chain([&mut server]).collect();
    harness.settle(&mut all);
    harness.set_policy(&policy(&["stall", "shop"]));
    assert_eq!(harness.reconciler.published_to.len(), 31);
    for number in [2, 3] {
        let _bystander = harness.proxy(number, &["buyer"]);
        harness.pass();
        assert_eq!(harness.reconciler.published_to.len(), 1, "only the new proxy gets resources");
    }
    assert!(buyers.iter().all(|buyer| !calls(buyer, "default/shop|80")), "no ACK of the port");
    server.ack_all();
    harness.pass();
    harness.pass();
    assert!(buyers.iter().all(|buyer| calls(buyer, "default/shop|80")));
}

#[tokio::test(start_paused = true)]
async fn waiting_servers_are_revisited_only_after_the_last_caller_acks() {
    let mut harness = Harness::open(&policy(&["stall", "shop"]));
    let mut servers: Vec<_> =
        (10..40).map(|number| harness.proxy(number, &["stall", "shop"])).collect();
    let mut buyers = [1, 2, 3].map(|number| harness.proxy(number, &["buyer"]));
    harness.settle(&mut servers.iter_mut().chain(&mut buyers).collect::<Vec<_>>());
    harness.set_policy(&policy(&["shop"]));
    harness.settle(&mut servers.iter_mut().collect::<Vec<_>>());
    let all_serve_the_stall = |servers: &[SimulatedClient]| {
        servers.iter().all(|server| served(server).contains(&"default/stall|80".to_owned()))
    };
    for (caller, revisited) in buyers.iter_mut().zip([0, 0, 30]) {
        caller.ack_all();
        harness.pass();
        assert_eq!(harness.reconciler.published_to.len(), revisited);
        assert!(all_serve_the_stall(&servers));
    }
    advance(IN_FLIGHT).await;
    harness.pass();
    assert!(servers.iter().all(|server| served(server) == ["default/shop|80"]));
}

/// Policy with a `ledger` that these callers may connect to, and with services as in [`policy`].
fn ledger(callers: &[&str], stalls: &[&str]) -> String {
    let ledger = r#"
[[service]]
name = "ledger"
ports = [{ port = 3306, protocol = "tcp" }]

[[service]]
name = "auditor"

[[tcp_route]]
name = "all"
"#;
    let target = |caller: &&str| {
        format!(
            "[[traffic_target]]\nname = \"{caller}\"\ndestination = {{ name = \"ledger\" }}\n\
             sources = [{{ name = \"{caller}\" }}]\nrules = [{{ kind = \"TCPRoute\", name = \"all\" }}]\n"
        )
    };
    let targets: String = callers.iter().map(target).collect();
    [&policy(stalls), ledger, &targets].concat()
}

#[tokio::test(start_paused = true)]
async fn grant_removal_applies_at_once_while_another_port_waits() {
    let mut harness = Harness::open(&ledger(&["buyer", "auditor"], &["shop", "stall"]));
    let mut server = harness.proxy(1, &["ledger", "stall"]);
    let mut buyer = harness.proxy(2, &["buyer"]);
    harness.settle(&mut [&mut server, &mut buyer]);
    let before = served(&server);
    assert_eq!(before, ["default/ledger|3306|0", "default/stall|80"]);

    harness.set_policy(&ledger(&["buyer"], &["shop"]));
    // The chain gets a new name: Envoy closes the connections of a filter chain that is removed.
    assert_eq!(served(&server), ["default/ledger|3306|1", "default/stall|80"]);
    let set = server.set();
    let callers = set.of(Secret)["authz:default/ledger|3306"].to_json().to_string();
    assert!(callers.contains("sa/buyer") && !callers.contains("sa/auditor"), "{callers}");
    assert!(
        set.contains(Secret, "service-cert:default/store"),
        "the stall still needs its certificate"
    );

    // Without any grant the port is closed at once. The stall is still served.
    harness.set_policy(&ledger(&[], &["shop"]));
    assert_eq!(served(&server), ["default/stall|80"]);
}

// Envoy NACKs a listener whose access log refers to a missing cluster, and applies no rate limit if
// the cluster of the rate limit service is missing.
#[tokio::test(start_paused = true)]
async fn dropped_port_keeps_rate_limit_and_log_clusters_until_drained() {
    let requests = policy(&["shop", "stall"]);
    let connections = ledger(&["buyer"], &["shop"]);
    let stories = [
        (requests, "stall", "http", "generic_key = { value = \"any\" }", "default/stall|80"),
        (connections, "ledger", "tcp", "key = \"any\", value = \"any\"", "default/ledger|3306|0"),
    ];
    for (before, service, kind, entry, chain) in stories {
        let settings = format!(
            r#"
[[upstream_traffic_setting]]
name = "counted"
service = "{service}"
[upstream_traffic_setting.rate_limit.global.{kind}]
domain = "shop"
rate_limit_service = {{ host = "limits.example.com", port = 8081 }}
descriptors = [{{ entries = [{{ {entry} }}] }}]

[[telemetry]]
name = "logged"
service = "{service}"
access_log.sink.open_telemetry = {{ host = "logs.example.com" }}
"#
        );
        let mut harness = Harness::open(&[before, settings].concat());
        let mut server = harness.proxy(1, &["shop", service]);
        let mut buyer = harness.proxy(2, &["buyer"]);
        harness.settle(&mut [&mut server, &mut buyer]);
        let others = |server: &SimulatedClient| {
            let set = server.set();
            set.of(Cluster).keys().filter(|name| name.contains("example.com")).count()
        };
        assert_eq!(others(&server), 2, "{service}");
        harness.set_policy(&policy(&["shop"]));
        assert!(served(&server).contains(&chain.to_owned()), "{:?}", served(&server));
        assert_eq!(others(&server), 2, "{service}");
        harness.settle(&mut [&mut server, &mut buyer]);
        advance(IN_FLIGHT).await;
        harness.settle(&mut [&mut server, &mut buyer]);
        assert_eq!(others(&server), 0, "{service}");
    }
}

/// Whether the mesh findings include an outage (IM0732).
fn has_outage(harness: &Harness) -> bool {
    harness.feeds.mesh_findings.borrow().iter().any(|finding| finding.code.0 == 732)
}

#[tokio::test(start_paused = true)]
async fn rollout_is_an_outage_only_after_callers_stop_waiting() {
    let mut harness = Harness::open(&policy(&["stall"]));
    let mut server = harness.proxy(1, &["stall", "shop"]);
    let mut buyer = harness.proxy(2, &["buyer"]);
    harness.settle(&mut [&mut server, &mut buyer]);
    harness.set_policy(&policy(&["shop"]));
    assert!(!has_outage(&harness), "the buyer still calls the stall");
    advance(Duration::from_secs(14)).await;
    harness.pass();
    assert!(!has_outage(&harness));
    advance(Duration::from_secs(1)).await;
    assert!(harness.reconciler.deadline() <= tokio::time::Instant::now());
    harness.pass();
    assert!(calls(&buyer, "default/shop|80") && has_outage(&harness));
    server.ack_all();
    harness.pass();
    harness.pass();
    assert!(!has_outage(&harness));
}

// The callers of a port may be connected to a peer. They drop the port first, as if they were here.
#[tokio::test(start_paused = true)]
async fn dropped_port_is_served_until_callers_at_peers_drop_it() {
    let log = Log::begin();
    let mut harness = Harness::open(&policy(&["stall", "shop"]));
    let mut server = harness.proxy(1, &["stall", "shop"]);
    let peers = harness.follow_peers();
    peers.learn(&harness.revision(), &[], &[]);
    harness.settle(&mut [&mut server]);
    assert_eq!(sorted(served(&server)), ["default/shop|80", "default/stall|80"]);

    // The peer does not have the policy yet, and then its callers have not ACKed it.
    harness.set_policy(&policy(&["shop"]));
    let revision = harness.revision();
    for called in [None, Some("default/stall|80")] {
        if let Some(port) = called {
            peers.learn(&revision, &[port], &[]);
        }
        harness.settle(&mut [&mut server]);
        assert_eq!(sorted(served(&server)), ["default/shop|80", "default/stall|80"], "{called:?}");
    }
    peers.learn(&revision, &[], &[]);
    harness.settle(&mut [&mut server]);
    assert_eq!(
        sorted(served(&server)),
        ["default/shop|80", "default/stall|80"],
        "for requests in flight"
    );
    // Another revision, which the peer does not have yet, does not begin the wait again.
    harness.set_policy(&policy(&["shop", "more"]));
    advance(IN_FLIGHT).await;
    harness.settle(&mut [&mut server]);
    assert_eq!(sorted(served(&server)), ["default/shop|80"]);
    assert_eq!(log.count(REMOVAL_NOT_ACKED), 0);

    // A peer that never follows is waited for only so long.
    harness.set_policy(&policy(&["other"]));
    harness.settle(&mut [&mut server]);
    assert_eq!(sorted(served(&server)), ["default/shop|80"]);
    advance(MAX_WAIT).await;
    harness.settle(&mut [&mut server]);
    assert_eq!(sorted(served(&server)), [""; 0]);
    assert_eq!(log.count(REMOVAL_NOT_ACKED), 1);
}

#[tokio::test(start_paused = true)]
async fn peers_learn_which_dropped_ports_proxies_may_still_call() {
    let mut harness = Harness::open(&policy(&["stall"]));
    let peers = harness.follow_peers();
    peers.learn("another", &[], &[]);
    let mut server = harness.proxy(1, &["stall"]);
    let mut buyer = harness.proxy(2, &["buyer"]);
    harness.settle(&mut [&mut server, &mut buyer]);
    assert!(calls(&buyer, "default/stall|80"));
    assert_eq!(peers.called(), [].into());
    harness.set_policy(&policy(&["other"]));
    assert_eq!(peers.called(), ["default/stall|80".to_owned()].into());
    buyer.ack_all();
    harness.pass();
    assert_eq!(peers.called(), [].into());
    // A port that policy has again is not a dropped one.
    harness.set_policy(&policy(&["stall"]));
    harness.settle(&mut [&mut server, &mut buyer]);
    assert_eq!(peers.called(), [].into());
}

// The only server of a new port is connected to a peer: its join record shows when it serves the port.
#[tokio::test(start_paused = true)]
async fn caller_waits_for_a_server_that_is_connected_to_a_peer() {
    let log = Log::begin();
    let mut harness = Harness::open(&policy(&["other"]));
    let server = harness.join(1, &["stall"]);
    let mut buyer = harness.proxy(2, &["buyer"]);
    let peers = harness.follow_peers();
    peers.learn(&harness.revision(), &[], &[server.id]);
    harness.settle(&mut [&mut buyer]);
    harness.set_policy(&policy(&["stall"]));
    harness.settle(&mut [&mut buyer]);
    assert!(!calls(&buyer, "default/stall|80"));

    let mut served = server;
    served.participation.0.insert(("default/stall".parse().unwrap(), 80));
    harness.register.add(served).unwrap();
    harness.settle(&mut [&mut buyer]);
    assert!(calls(&buyer, "default/stall|80"));
    assert_eq!(log.count(PORT_NOT_SERVED), 0);
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
