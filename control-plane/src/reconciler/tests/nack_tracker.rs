//! NACKed resources: their fallbacks, what is withheld from other proxies, and retries.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{ProxyId, ServicePort};
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::Node;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route};
use tokio::time::advance;
use uuid::Uuid;

use super::harness::Harness;
use crate::peers::Peers;
use crate::reconciler::nack_tracker::Fallback;

/// Policy with two pairs: `x` may call the service `one`, and `y` the service `two`. Both services
/// have ports 80 and `port`.
pub(super) fn policy(port: u16) -> String {
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

/// Sets this policy and connects proxies of the account `x`, by number. All of them NACK the route
/// table `outbound-http` before any proxy ACKs it.
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

/// The number of proxies from which a resource is withheld.
pub(super) fn withheld(harness: &Harness) -> usize {
    let inactive_resources = harness.feeds.inactive_resources.borrow();
    inactive_resources.values().filter(|one| !one.withheld.is_empty()).count()
}

// Invariant 7: two NACKs are too few to withhold a version from another proxy.
#[test]
fn version_nacked_by_two_proxies_is_sent_to_a_new_proxy() {
    let mut harness = Harness::open(&policy(8080));
    let _two = nacking(&mut harness, &policy(8080), 1..3);
    let new_proxy = harness.proxy(9, &["x"]);
    harness.pass();
    assert_eq!(withheld(&harness), 0);
    assert!(new_proxy.set().contains(Route, "outbound-http"));
}

// Invariant 7: the eight proxies have ACKed the previous policy.
#[test]
fn version_is_not_withheld_while_one_proxy_has_not_answered() {
    let mut harness = Harness::open(&policy(8080));
    let mut clients: Vec<_> = (1..=8).map(|number| harness.proxy(number, &["x"])).collect();
    harness.settle(&mut clients.iter_mut().collect::<Vec<_>>());
    harness.set_policy(&policy(8081));
    for client in &clients[..7] {
        client.nack(Route, "outbound-http", "no such thing");
        harness.pass();
        let new_proxy = harness.proxy(20, &["x"]);
        harness.pass();
        assert_eq!(withheld(&harness), 0);
        drop(new_proxy);
        harness.pass();
    }
    clients[7].nack(Route, "outbound-http", "no such thing");
    harness.pass();
    let new_proxy = harness.proxy(21, &["x"]);
    harness.pass();
    assert_eq!(withheld(&harness), 1, "all proxies that were sent the version NACK it");
    clients[7].ack_all();
    harness.pass();
    assert_eq!(withheld(&harness), 0, "an ACK lifts it");
    assert!(new_proxy.set().contains(Route, "outbound-http"));
}

// Invariant 7: the first proxies to NACK a version never withhold it from a larger number.
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
    assert!(
        one_more.set().contains(Route, "outbound-http"),
        "a proxy beyond the limit is sent the version"
    );
    harness.pass();
    assert_eq!(withheld(&harness), 0, "the others are sent it too until that proxy answers");
    one_more.ack_all();
    for number in 14..20 {
        clients.push(harness.proxy(number, &["x"]));
        harness.pass();
        assert_eq!(withheld(&harness), 0);
    }
}

// All accounts use the name `outbound-http` for their route table, with different contents.
#[test]
fn new_proxy_never_gets_the_last_good_table_of_another_account() {
    let mut harness = Harness::open(&policy(8080));
    let mut x = harness.proxy(1, &["x"]);
    harness.settle(&mut [&mut x]);
    // The account `x` has a last good table. The account `y` connects only now and has none.
    harness.set_policy(&policy(8081));
    x.ack_all();
    let ys: Vec<_> = (2..5).map(|number| harness.proxy(number, &["y"])).collect();
    harness.pass();
    for y in &ys {
        y.nack(Route, "outbound-http", "no such thing");
    }
    let new_proxy = harness.proxy(9, &["y"]);
    harness.pass();
    let set = new_proxy.set();
    assert_eq!(
        harness.feeds.inactive_resources.borrow().len(),
        4,
        "three NACK the table, and it is withheld from one"
    );
    assert!(set.contains(Cluster, "default/two|80"), "the new proxy gets all other resources");
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
    let new_proxy = harness.proxy(9, &["one"]);
    harness.pass();
    let given = |client: &SimulatedClient| Arc::clone(&client.set().of(Route)[name]);
    let stand_in = given(&clients[0]);
    for other in [&clients[1], &clients[2], &new_proxy] {
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
    // `x` ACKs the new policy, which makes its resources last good. `one` NACKs its route table and
    // gets a fallback.
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
        "one client NACKs; last good: the route, the table of `x`, the removed cluster"
    );
    // The tracker keeps the NACK while the proxy is away: the proxy gets the same fallback again.
    let stand_in = Arc::clone(&one.set().of(Route)["inbound|default/one|80"]);
    drop(clients);
    harness.tick(harness.now);
    assert_eq!(harness.reconciler.nack_tracker.remembered(), (1, 3));
    let again = harness.returning(2);
    harness.pass();
    assert_eq!(again.set().of(Route)["inbound|default/one|80"].version(), stand_in.version());
    drop(again);

    // The hub forgets a disconnected client that is not enrolled.
    let stranger = SimulatedClient::connect(&harness.hub, "stranger", Node::default());
    harness.tick(harness.now);
    assert_eq!(harness.hub.status().len(), 3, "it is connected");
    drop(stranger);
    harness.tick(harness.now);
    let known: Vec<_> = harness.hub.disconnected_clients();
    assert_eq!(known.len(), 2, "{known:?}");
}

// A last good table stays active together with the clusters that it refers to.
#[test]
fn clusters_of_a_nacked_table_are_kept_until_policy_changes() {
    let mut harness = Harness::open(&policy(8080));
    let mut x = harness.proxy(1, &["x"]);
    harness.settle(&mut [&mut x]);
    let before = Arc::clone(&x.set().of(Route)["outbound-http"]);
    harness.set_policy(&policy(8081));
    let gone = "default/one|8080";
    assert!(!x.set().contains(Cluster, gone));
    // The NACK arrives while removed clusters are still being kept.
    x.nack(Route, "outbound-http", "no such thing");
    harness.pass();
    for _ in 0..2 {
        let set = x.set();
        assert!(set.contains(Cluster, gone) && set.contains(Endpoint, gone));
        assert!(set.contains(Cluster, "default/one|8081"), "the other resources are updated");
        harness.tick(harness.now);
    }
    // New proxies NACK the table, too. They have no earlier table, so they get the last good one
    // with its clusters.
    let new_proxies = [2, 3].map(|number| harness.proxy(number, &["x"]));
    harness.pass();
    for new_proxy in &new_proxies {
        new_proxy.nack(Route, "outbound-http", "no such thing");
    }
    harness.pass();
    // A proxy from which the NACKed table is withheld gets the same.
    let spared = harness.proxy(9, &["x"]);
    harness.pass();
    assert_eq!(withheld(&harness), 1);
    for given in new_proxies.iter().chain([&spared]) {
        assert!(given.set().contains(Cluster, gone));
        assert_eq!(given.set().of(Route)["outbound-http"], before);
    }
    harness.set_policy(&policy(8082));
    assert!(!x.set().contains(Cluster, gone), "a new version of the table is sent");
}

const CANNOT_BIND: &str = "cannot bind '10.0.0.1:15003': Address already in use";

impl Harness {
    /// The number of endpoints that callers of the service `one` have.
    fn hosts_of_one(&self) -> usize {
        let port: ServicePort = "default/one|80".parse().unwrap();
        self.reconciler.snapshot_builder.snapshot().unwrap().endpoints[&port].len()
    }

    /// The findings with this code, each with its help.
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
    assert_eq!(harness.hosts_of_one(), 1, "a disconnected proxy keeps its endpoint for now");

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

    // The pause before a retry doubles each time.
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
    assert!(one.take_retried().is_empty(), "an ACKed listener is not retried");
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
    // The tracker retries only NACKs whose cause is on the proxy's machine and may pass by itself.
    advance(Duration::from_secs(600)).await;
    harness.pass();
    assert!(one.take_retried().is_empty());
}

/// Two control planes of one mesh: both follow the notes of the other.
pub(super) struct TwoControlPlanes {
    pub(super) harnesses: [Harness; 2],
    peers: [Arc<Peers>; 2],
}

impl TwoControlPlanes {
    /// Both with the policy of [`policy`], and with proxies of the account `x`, which are enrolled at both.
    pub(super) fn open(numbers: std::ops::Range<u8>) -> Self {
        let mut harnesses = [(); 2].map(|()| Harness::open(&policy(8080)));
        let peers = harnesses.each_mut().map(Harness::follow_peers);
        for number in numbers {
            for harness in &harnesses {
                harness.join(number, &["x"]);
            }
        }
        Self { harnesses, peers }
    }

    /// Lets both learn what the other one notes, and carry it out.
    pub(super) fn exchange(&mut self) {
        for _ in 0..2 {
            for (own, other) in [(0, 1), (1, 0)] {
                self.peers[own].learn_from(&self.peers[other]);
                self.harnesses[own].pass();
            }
        }
    }

    /// Connects a proxy that has nothing to one of them.
    pub(super) fn start(&mut self, at: usize, number: u8) -> SimulatedClient {
        let harness = &mut self.harnesses[at];
        let record = harness.register.get(ProxyId(Uuid::from_u128(number.into()))).unwrap();
        let client = harness.connect(&record);
        harness.pass();
        client
    }
}

// Invariant 7: also at a different control plane.
#[test]
fn proxy_that_moves_to_a_peer_keeps_its_nacks_and_its_fallback() {
    let mut mesh = TwoControlPlanes::open(1..3);
    let one = mesh.harnesses[0].join(9, &["one"]);
    mesh.harnesses[1].join(9, &["one"]);
    let (server, nacked) = (mesh.start(0, 9), "inbound|default/one|80");
    let ideal = server.set().of(Route)[nacked].version();
    server.nack(Route, nacked, "no such thing");
    mesh.harnesses[0].pass();
    let before = server.set().of(Route)[nacked].version();
    let inactive = |harness: &Harness| harness.feeds.inactive_resources.borrow().clone();
    let nacks = inactive(&mesh.harnesses[0]);
    assert_eq!(nacks[&one.id].nacked[0].instead, Fallback::Closed, "{nacks:?}");
    assert_ne!(before, ideal);

    mesh.exchange();
    let known = mesh.peers[1].nacks(one.id).unwrap();
    assert_eq!(known.nacked[0].view.message, nacks[&one.id].nacked[0].message);
    drop(server);
    // The notes of a control plane that was killed may be gone before the proxy comes.
    mesh.harnesses[0].pass();
    mesh.exchange();
    assert_eq!(mesh.peers[1].nacks(one.id), None);
    let moved = mesh.harnesses[1].returning(9);
    mesh.harnesses[1].pass();
    assert_eq!(moved.set().of(Route)[nacked].version(), before, "the same fallback");
    assert_eq!(inactive(&mesh.harnesses[1])[&one.id].nacked, nacks[&one.id].nacked);
    let status = mesh.harnesses[1].hub.status_of(&one.id.to_string()).unwrap();
    assert_eq!(status.nacks.len(), 1, "it is not sent again");

    // A new process has NACKed nothing.
    mesh.exchange();
    drop(moved);
    mesh.harnesses[1].pass();
    let started = mesh.start(0, 9);
    assert_eq!(started.set().of(Route)[nacked].version(), ideal);
    assert!(inactive(&mesh.harnesses[0]).is_empty());
}

// In a hot restart, the earlier process keeps its stream for a while.
#[test]
fn nacks_of_a_new_process_at_a_peer_replace_those_of_the_earlier_one() {
    for is_nacked_by_the_new_one in [true, false] {
        let mut mesh = TwoControlPlanes::open(1..2);
        let one = mesh.harnesses.each_ref().map(|harness| harness.join(9, &["one"]))[0].id;
        let nacked = "inbound|default/one|80";
        let earlier = mesh.start(0, 9);
        let ideal = earlier.set().of(Route)[nacked].version();
        if !is_nacked_by_the_new_one {
            earlier.nack(Route, nacked, "no such thing");
        }
        mesh.harnesses[0].pass();
        let mut new = mesh.start(1, 9);
        if is_nacked_by_the_new_one {
            new.nack(Route, nacked, "no such thing");
        } else {
            new.ack_all();
        }
        mesh.harnesses[1].pass();
        mesh.exchange();
        drop(earlier);
        mesh.harnesses[0].pass();
        drop(new);
        let moved = mesh.harnesses[0].returning(9);
        mesh.harnesses[0].pass();
        let is_ideal = moved.set().of(Route)[nacked].version() == ideal;
        assert_eq!(is_ideal, !is_nacked_by_the_new_one);
        let harness = &mesh.harnesses[0];
        let inactive = harness.feeds.inactive_resources.borrow().clone();
        assert_eq!(inactive.contains_key(&one), is_nacked_by_the_new_one, "{inactive:?}");
        let status = harness.hub.status_of(&one.to_string()).unwrap();
        assert_eq!(!status.nacks.is_empty(), is_nacked_by_the_new_one, "{:?}", status.nacks);
    }
}

#[test]
fn nacks_before_a_peer_has_the_policy_count_when_it_has() {
    let mut mesh = TwoControlPlanes::open(1..2);
    let mut client = mesh.start(0, 1);
    mesh.harnesses[0].settle(&mut [&mut client]);
    mesh.harnesses[0].set_policy(&policy(8081));
    client.nack(Route, "outbound-http", "no such thing");
    mesh.harnesses[0].pass();
    mesh.exchange();
    drop(client);
    let mut moved = mesh.harnesses[1].returning(1);
    mesh.harnesses[1].pass();
    moved.ack(Cluster);
    assert!(mesh.harnesses[1].feeds.inactive_resources.borrow().is_empty(), "the older policy");
    mesh.harnesses[1].set_policy(&policy(8081));
    let inactive = mesh.harnesses[1].feeds.inactive_resources.borrow();
    let nacked: Vec<_> = inactive.values().flat_map(|one| &one.nacked).collect();
    assert_eq!(nacked.len(), 1, "{nacked:?}");
}

#[test]
fn nacks_of_other_policy_move_on_to_a_peer_that_has_it() {
    let mut mesh = TwoControlPlanes::open(1..2);
    let mut client = mesh.start(0, 1);
    mesh.harnesses[0].settle(&mut [&mut client]);
    mesh.harnesses[0].set_policy(&policy(8081));
    client.nack(Route, "outbound-http", "no such thing");
    mesh.harnesses[0].pass();
    mesh.exchange();
    drop(client);
    mesh.harnesses[0].pass();
    let moved = mesh.harnesses[1].returning(1);
    mesh.harnesses[1].pass();
    mesh.exchange();
    let id = ProxyId(Uuid::from_u128(1));
    let noted = mesh.peers[0].nacks(id).unwrap();
    assert_eq!((noted.since, noted.nacked.len(), noted.moved.len()), (None, 0, 1), "{noted:?}");
    drop(moved);
    mesh.harnesses[1].pass();
    let _back = mesh.harnesses[0].returning(1);
    mesh.harnesses[0].pass();
    let inactive = mesh.harnesses[0].feeds.inactive_resources.borrow().clone();
    assert_eq!(inactive[&id].nacked.len(), 1, "{inactive:?}");
}

#[test]
fn nacks_stay_while_a_peer_notes_none() {
    let mut harness = Harness::open(&policy(8080));
    let peers = harness.follow_peers();
    let record = harness.join(9, &["one"]);
    let (client, nacked) = (harness.connect(&record), "inbound|default/one|80");
    harness.pass();
    let ideal = client.set().of(Route)[nacked].version();
    client.nack(Route, nacked, "no such thing");
    harness.pass();
    drop(client);
    harness.pass();
    // An earlier version notes the connection alone.
    peers.learn("", &[], &[record.id]);
    harness.pass();
    let back = harness.returning(9);
    harness.pass();
    assert_ne!(back.set().of(Route)[nacked].version(), ideal);
    assert_eq!(harness.feeds.inactive_resources.borrow()[&record.id].nacked.len(), 1);
}

#[test]
fn version_nacked_by_all_proxies_of_a_peer_is_withheld_until_an_ack() {
    let mut mesh = TwoControlPlanes::open(1..20);
    let clients = [(0, 1), (0, 2), (1, 3)].map(|(at, number)| mesh.start(at, number));
    for client in &clients {
        client.nack(Route, "outbound-http", "no such thing");
    }
    mesh.harnesses.iter_mut().for_each(Harness::pass);
    mesh.exchange();
    let held = |mesh: &TwoControlPlanes| mesh.harnesses.each_ref().map(withheld);
    let _first = mesh.start(0, 10);
    assert_eq!(held(&mesh), [1, 0], "three NACK it, two of them here");
    mesh.exchange();
    let _second = mesh.start(1, 11);
    assert_eq!(held(&mesh), [1, 1]);
    mesh.exchange();
    // No more than NACK it: one more gets it, and then all until it has answered.
    let mut third = mesh.start(0, 12);
    mesh.exchange();
    assert_eq!(held(&mesh), [0, 0]);
    third.ack_all();
    mesh.harnesses[0].pass();
    mesh.exchange();
    assert_eq!(held(&mesh), [0, 0]);
    let _fourth = mesh.start(1, 13);
    assert_eq!(held(&mesh), [0, 0], "a proxy of the peer has ACKed it");
}
