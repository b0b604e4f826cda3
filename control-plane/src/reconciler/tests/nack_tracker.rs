//! What clients refuse, and what others are given.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::ServicePort;
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::Node;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route};
use tokio::time::advance;

use super::harness::Harness;
use crate::reconciler::nack_tracker::Fallback;

/// Two accounts that may call a service each, `one` and `two`, which have this port besides 80.
fn policy(port: u16) -> String {
    let pair = |caller: &str, called: &str| {
        format!(
            r#"
[[service]]
name = "{caller}"

[[service]]
name = "{called}"
ports = [{{ name = "web", port = 80, protocol = "http" }}, {{ name = "other", port = {port}, protocol = "http" }}]

[[traffic_target]]
name = "{called}"
destination = {{ name = "{called}" }}
sources = [{{ name = "{caller}" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "all" }}]
"#
        )
    };
    let groups = "[[http_route_group]]\nname = \"all\"\nmatches = [{ name = \"all\" }]\n";
    [groups, &pair("x", "one"), &pair("y", "two")].concat()
}

/// Proxies of one account, by number, that NACK the table by host of this policy before any other answers.
fn nacking(
    harness: &mut Harness,
    policy: &str,
    numbers: std::ops::Range<u8>,
) -> Vec<SimulatedClient> {
    harness.set_policy(policy);
    let clients: Vec<_> = numbers.map(|number| harness.proxy(number, &["x"])).collect();
    harness.pass();
    for client in &clients {
        client.nack(Route, "outbound-http", "no such thing");
    }
    harness.pass();
    clients
}

/// From how many proxies something is withheld.
fn withheld(harness: &Harness) -> usize {
    let inactive_resources = harness.feeds.inactive_resources.borrow();
    inactive_resources.values().filter(|one| !one.withheld.is_empty()).count()
}

// Invariant 7.
#[test]
fn version_nacked_by_two_proxies_is_sent_to_a_new_proxy() {
    let mut harness = Harness::open(&policy(8080));
    let _two = nacking(&mut harness, &policy(8080), 1..3);
    let newcomer = harness.proxy(9, &["x"]);
    harness.pass();
    assert_eq!(withheld(&harness), 0);
    assert!(newcomer.set().contains(Route, "outbound-http"));
}

// Invariant 7: the fleet of the policy before.
#[test]
fn version_is_not_withheld_while_one_proxy_has_not_answered() {
    let mut harness = Harness::open(&policy(8080));
    let mut clients: Vec<_> = (1..=8).map(|number| harness.proxy(number, &["x"])).collect();
    harness.settle(&mut clients.iter_mut().collect::<Vec<_>>());
    harness.set_policy(&policy(8081));
    for client in &clients[..7] {
        client.nack(Route, "outbound-http", "no such thing");
        harness.pass();
        let newcomer = harness.proxy(20, &["x"]);
        harness.pass();
        assert_eq!(withheld(&harness), 0);
        drop(newcomer);
        harness.pass();
    }
    clients[7].nack(Route, "outbound-http", "no such thing");
    harness.pass();
    let newcomer = harness.proxy(21, &["x"]);
    harness.pass();
    assert_eq!(withheld(&harness), 1, "every proxy NACKs it that was sent it");
    clients[7].ack_all();
    harness.pass();
    assert_eq!(withheld(&harness), 0, "an ACK lifts it");
    assert!(newcomer.set().contains(Route, "outbound-http"));
}

// Invariant 7: whoever NACKs it first never decides for a larger number.
#[test]
fn version_is_withheld_from_fewer_proxies_than_nack_it() {
    let mut harness = Harness::open(&policy(8080));
    let mut clients = nacking(&mut harness, &policy(8080), 1..5);
    for number in 10..13 {
        clients.push(harness.proxy(number, &["x"]));
        harness.pass();
    }
    assert_eq!(withheld(&harness), 3);
    let mut one_more = harness.proxy(13, &["x"]);
    harness.pass();
    assert!(one_more.set().contains(Route, "outbound-http"), "it is sent the version");
    harness.pass();
    assert_eq!(withheld(&harness), 0, "and so are the others, while it has still to answer");
    one_more.ack_all();
    for number in 14..20 {
        clients.push(harness.proxy(number, &["x"]));
        harness.pass();
        assert_eq!(withheld(&harness), 0);
    }
}

// The table by host goes by one name for everybody, and is another for each account.
#[test]
fn new_proxy_never_gets_the_last_good_table_of_another_account() {
    let mut harness = Harness::open(&policy(8080));
    let mut x = harness.proxy(1, &["x"]);
    harness.settle(&mut [&mut x]);
    // Of this account the last good table is known, and none of the other, which comes now.
    harness.set_policy(&policy(8081));
    x.ack_all();
    let ys: Vec<_> = (2..5).map(|number| harness.proxy(number, &["y"])).collect();
    harness.pass();
    for y in &ys {
        y.nack(Route, "outbound-http", "no such thing");
    }
    let newcomer = harness.proxy(9, &["y"]);
    harness.pass();
    let set = newcomer.set();
    assert_eq!(
        harness.feeds.inactive_resources.borrow().len(),
        4,
        "three refuse, one was not asked"
    );
    assert!(set.contains(Cluster, "default/two|80"), "it has come and is served");
    let table = set.of(Route).get("outbound-http");
    assert!(table.is_none(), "{:#}", table.unwrap().to_json());
}

#[test]
fn fallback_is_built_once_and_shared_by_all_recipients() {
    let mut harness = Harness::open(&policy(8080));
    let clients = [1, 2, 3].map(|number| harness.proxy(number, &["one"]));
    harness.pass();
    let name = "inbound|default/one|80";
    for client in &clients {
        client.nack(Route, name, "no such thing");
    }
    let newcomer = harness.proxy(9, &["one"]);
    harness.pass();
    let given = |client: &SimulatedClient| Arc::clone(&client.set().of(Route)[name]);
    let stand_in = given(&clients[0]);
    for other in [&clients[1], &clients[2], &newcomer] {
        assert!(Arc::ptr_eq(&given(other), &stand_in));
    }
    let inactive_resources = harness.feeds.inactive_resources.borrow();
    let all = inactive_resources.values().flat_map(|one| one.nacked.iter().chain(&one.withheld));
    let all: Vec<_> = all.map(|refusal| (&*refusal.name, refusal.instead)).collect();
    assert_eq!(all, [(name, Fallback::Closed); 4]);
}

#[test]
fn unused_resources_of_the_nack_tracker_are_forgotten() {
    let mut harness = Harness::open(&policy(8080));
    let mut clients = [harness.proxy(1, &["x"]), harness.proxy(2, &["one"])];
    let [x, one] = &mut clients;
    harness.settle(&mut [x, one]);
    // What is in force stands by its new version; the one refuses that, and is given a stand-in.
    let narrower =
        policy(8081).replace("[{ name = \"all\" }]", "[{ name = \"all\", path_regex = \"/a\" }]");
    harness.set_policy(&narrower);
    x.ack_all();
    one.nack(Route, "inbound|default/one|80", "no such thing");
    harness.tick(harness.now);
    let refusing = harness.reconciler.nack_tracker.remembered();
    assert_eq!(
        refusing,
        (1, 4),
        "the route, the table of the other, and the cluster that has gone"
    );
    // It is away, and is to be given the same when it is back.
    let stand_in = Arc::clone(&one.set().of(Route)["inbound|default/one|80"]);
    drop(clients);
    harness.tick(harness.now);
    assert_eq!(harness.reconciler.nack_tracker.remembered(), (1, 3));
    let again = harness.returning(2);
    harness.pass();
    assert_eq!(again.set().of(Route)["inbound|default/one|80"].version(), stand_in.version());
    drop(again);

    // Nobody knows it any more.
    let stranger = SimulatedClient::connect(&harness.hub, "stranger", Node::default());
    harness.tick(harness.now);
    assert_eq!(harness.hub.status().len(), 3, "it is connected");
    drop(stranger);
    harness.tick(harness.now);
    let known: Vec<_> = harness.hub.disconnected_clients();
    assert_eq!(known.len(), 2, "{known:?}");
}

// Last good stays: also what it leads to.
#[test]
fn clusters_of_a_nacked_table_are_kept_until_policy_changes() {
    let mut harness = Harness::open(&policy(8080));
    let mut x = harness.proxy(1, &["x"]);
    harness.settle(&mut [&mut x]);
    let before = Arc::clone(&x.set().of(Route)["outbound-http"]);
    harness.set_policy(&policy(8081));
    let gone = "default/one|8080";
    assert!(!x.set().contains(Cluster, gone));
    // The refusal comes within the moment for which nothing goes.
    x.nack(Route, "outbound-http", "no such thing");
    harness.pass();
    for _ in 0..2 {
        let set = x.set();
        assert!(set.contains(Cluster, gone) && set.contains(Endpoint, gone));
        assert!(set.contains(Cluster, "default/one|8081"), "the rest goes on");
        harness.tick(harness.now);
    }
    // A newcomer NACKs it, too. It has no table to go on with: it is given the one of before, and what
    // that leads to.
    let newcomers = [2, 3].map(|number| harness.proxy(number, &["x"]));
    harness.pass();
    for newcomer in &newcomers {
        newcomer.nack(Route, "outbound-http", "no such thing");
    }
    harness.pass();
    // So is one that is not sent what all the others NACK.
    let spared = harness.proxy(9, &["x"]);
    harness.pass();
    assert_eq!(withheld(&harness), 1);
    for given in newcomers.iter().chain([&spared]) {
        assert!(given.set().contains(Cluster, gone));
        assert_eq!(given.set().of(Route)["outbound-http"], before);
    }
    harness.set_policy(&policy(8082));
    assert!(!x.set().contains(Cluster, gone), "another table is tried");
}

const CANNOT_BIND: &str = "cannot bind '10.0.0.1:15003': Address already in use";

impl Harness {
    /// How many hosts callers of the service `one` dial.
    fn hosts_of_one(&self) -> usize {
        let port: ServicePort = "default/one|80".parse().unwrap();
        self.reconciler.snapshot_builder.snapshot().unwrap().endpoints[&port].len()
    }

    /// The findings of that code, with their texts and advice.
    fn findings_of(&self, code: u16) -> Vec<String> {
        let findings = self.feeds.mesh_findings.borrow();
        let of_code = findings.iter().filter(|finding| finding.code.0 == code);
        of_code.map(|one| format!("{one} {}", one.help.clone().unwrap_or_default())).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn restarted_proxy_nacking_its_listener_is_withdrawn_until_retry() {
    let mut harness = Harness::open(&policy(8080));
    let mut one = harness.proxy(1, &["one"]);
    harness.settle(&mut [&mut one]);
    assert_eq!(harness.hosts_of_one(), 1);
    drop(one);
    harness.pass();
    assert_eq!(harness.hosts_of_one(), 1, "it may come back");

    let record = harness.register.records().values().next().unwrap().clone();
    let mut one = harness.connect(&record);
    harness.pass();
    one.nack(Listener, "inbound", CANNOT_BIND);
    harness.pass();
    harness.pass();
    assert_eq!(harness.hosts_of_one(), 0);
    let found = harness.findings_of(731);
    let [finding] = &found[..] else { panic!("{found:?}") };
    for part in
        ["error[IM0731]", "10.0.0.1:15003", "`default/one`", CANNOT_BIND, "p.toml:", "ss -ltnp"]
    {
        assert!(finding.contains(part), "{part} in {finding}");
    }

    // Each pause is twice as long as the one before.
    for pause in [5, 10, 20] {
        assert!(one.take_retried().is_empty());
        advance(Duration::from_secs(pause)).await;
        assert!(harness.reconciler.deadline() <= tokio::time::Instant::now());
        harness.pass();
        assert_eq!(one.take_retried(), [(Listener, Arc::from("inbound"))]);
        one.nack(Listener, "inbound", CANNOT_BIND);
        harness.pass();
    }
    harness.settle(&mut [&mut one]);
    assert_eq!((harness.hosts_of_one(), harness.findings_of(731)), (1, Vec::new()));
    advance(Duration::from_secs(600)).await;
    harness.pass();
    assert!(one.take_retried().is_empty(), "it has ACKed");
}

#[tokio::test(start_paused = true)]
async fn running_proxy_nacking_a_listener_update_stays_a_participant() {
    let mut harness = Harness::open(&policy(8080));
    let mut one = harness.proxy(1, &["one"]);
    harness.settle(&mut [&mut one]);
    harness.set_policy(&policy(8081));
    for words in [CANNOT_BIND, "no such filter"] {
        one.nack(Listener, "inbound", words);
        harness.pass();
        harness.pass();
        assert_eq!((harness.hosts_of_one(), harness.findings_of(731)), (1, Vec::new()), "{words}");
    }
    // Only a reason of its own machine may be gone by itself.
    advance(Duration::from_secs(600)).await;
    harness.pass();
    assert!(one.take_retried().is_empty());
}
