//! The cost of a change: resources encoded, proxies visited and writes to the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::JoinRecord;
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::{Node, ResourceType};

use super::harness::{Harness, node};
use super::rollout_order::policy;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"
"#;

#[test]
fn proxy_without_service_ports_is_decided_at_once() {
    let mut harness = Harness::open(POLICY);
    let _buyer = harness.proxy(1, &["buyer"]);
    harness.pass();
    assert!(harness.reconciler.pending_progress.is_empty());
    let mut store = harness.proxy(2, &["store"]);
    harness.pass();
    assert_eq!(harness.reconciler.pending_progress.len(), 1, "the proxy has ACKed nothing yet");
    store.ack_all();
    harness.pass();
    assert!(harness.reconciler.pending_progress.is_empty());
}

#[test]
fn participants_of_one_pass_are_stored_in_one_write() {
    let mut harness = Harness::open(POLICY);
    let mut stores: Vec<_> = (1..=20).map(|number| harness.proxy(number, &["store"])).collect();
    harness.pass();
    stores.iter_mut().for_each(SimulatedClient::ack_all);
    let changes = harness.register.generation().borrow().changes;
    harness.pass();
    assert_eq!(harness.register.generation().borrow().changes, changes + 1);
    let is_there = |record: &Arc<JoinRecord>| !record.participation.0.is_empty();
    assert!(harness.register.records().values().all(is_there));
    assert!(harness.reconciler.pending_progress.is_empty());
}

#[test]
fn ack_encodes_nothing_and_changed_node_metadata_does() {
    let mut harness = Harness::open(POLICY);
    let record = harness.join(1, &["store"]);
    let mut store = harness.connect(&record);
    let encoded = |harness: &mut Harness| {
        harness.pass();
        harness.reconciler.snapshot_builder.compiler().unwrap().encoded()
    };
    let first = encoded(&mut harness);
    for resource_type in ResourceType::ALL {
        store.ack(resource_type);
        assert_eq!(encoded(&mut harness), first, "ACK of {resource_type}");
    }
    let same = harness.connect(&record);
    assert_eq!(encoded(&mut harness), first, "a second stream of the same proxy");
    let metadata = serde_json::json!({ "app_address": "10.0.0.9" });
    let node = Node { metadata: Some(metadata), ..node(&record) };
    let other = SimulatedClient::connect(&harness.hub, &record.id.to_string(), node);
    assert!(encoded(&mut harness) > first);
    let cluster = &other.set().of(ResourceType::Cluster)["default/store|80|local"].to_json();
    assert!(cluster.to_string().contains("10.0.0.9"), "{cluster:#}");
    drop(same);
}

/// Policy with a `store` that the account `buyer` may call and `stranger` may not.
const MARKET: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"

[[service]]
name = "stranger"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// A settled mesh with one store, this number of buyers and as many strangers.
fn market(buyers: u8) -> (Harness, Vec<SimulatedClient>) {
    let mut harness = Harness::open(MARKET);
    let mut clients = vec![harness.proxy(1, &["store"])];
    for number in 0..buyers {
        clients.push(harness.proxy(10 + 2 * number, &["buyer"]));
        clients.push(harness.proxy(11 + 2 * number, &["stranger"]));
    }
    harness.settle(&mut clients.iter_mut().collect::<Vec<_>>());
    (harness, clients)
}

#[test]
fn endpoint_change_encodes_one_resource_and_visits_only_callers() {
    for buyers in [5, 50] {
        let (mut harness, clients) = market(buyers);
        let mut second = harness.proxy(2, &["store"]);
        harness.pass();
        second.ack_all();
        // This pass stores the participation. The next one adds the address for callers.
        harness.pass();
        let encoded = harness.reconciler.snapshot_builder.compiler().unwrap().encoded();
        let sets = harness.hub.counters().sets();
        harness.pass();
        assert_eq!(harness.reconciler.snapshot_builder.compiler().unwrap().encoded(), encoded + 1);
        assert_eq!(harness.hub.counters().sets(), sets + u64::from(buyers));
        harness.pass();
        assert_eq!(
            harness.hub.counters().sets(),
            sets + u64::from(buyers),
            "no caller is visited twice"
        );
        let sets = clients.iter().map(|client| client.set().of(ResourceType::Endpoint).clone());
        let callers: Vec<_> = sets.filter(|endpoints| !endpoints.is_empty()).collect();
        assert_eq!(callers.len(), usize::from(buyers));
        let is_shared = callers.iter().all(|endpoints| endpoints.ptr_eq(&callers[0]));
        assert!(is_shared, "all callers of an account have one map of endpoints");
    }
}

#[test]
fn static_endpoint_change_visits_only_callers() {
    for buyers in [5, 50] {
        let listed = |addresses: &str| {
            let ports = "ports = [{ port = 80, protocol = \"http\" }]";
            let list = format!("{ports}\nendpoints = {{ static = [{addresses}] }}");
            MARKET.replacen(ports, &list, 1)
        };
        let (mut harness, mut clients) = market(buyers);
        clients.push(harness.proxy(2, &["store"]));
        harness.set_policy(&listed("{ address = \"10.0.0.1\" }, { address = \"10.0.0.2\" }"));
        harness.settle(&mut clients.iter_mut().collect::<Vec<_>>());
        let encoded = harness.reconciler.snapshot_builder.compiler().unwrap().encoded();
        let sets = harness.hub.counters().sets();
        harness.set_policy(&listed(
            "{ address = \"10.0.0.1\", weight = 3 }, { address = \"10.0.0.2\" }",
        ));
        // The endpoints, and the local cluster of the changed endpoint's own proxy.
        assert_eq!(harness.reconciler.snapshot_builder.compiler().unwrap().encoded(), encoded + 2);
        // That cluster is unchanged, since the only application of a proxy has no weight. So only
        // callers get a new set.
        assert_eq!(harness.hub.counters().sets(), sets + u64::from(buyers));
    }
}

#[test]
fn common_resources_are_shared_by_all_proxies() {
    let held = |buyers: u8| {
        let (_place, clients) = market(buyers);
        ResourceType::ALL.map(|of| {
            let sets: Vec<_> = clients.iter().map(SimulatedClient::set).collect();
            let resources = sets.iter().flat_map(|set| set.of(of).values());
            resources.map(Arc::as_ptr).collect::<BTreeSet<_>>().len()
        })
    };
    let (few, many) = (held(5), held(50));
    // Listeners are not shared, since each proxy listens at its own address and has its own
    // applications.
    for (of, (few, many)) in ResourceType::ALL.into_iter().zip(few.into_iter().zip(many)) {
        let own = if of == ResourceType::Listener { 90 } else { 0 };
        assert!(many <= few + own, "{of}: {few} of few, {many} of many");
    }
}

#[test]
fn equivalent_policy_edit_pushes_nothing() {
    let (mut harness, _clients) = market(5);
    let sets = harness.hub.counters().sets();
    harness.set_policy(&format!("# Nothing has changed.\n{MARKET}"));
    harness.pass();
    assert_eq!(harness.hub.counters().sets(), sets);
}

#[test]
fn nacking_proxies_are_not_revisited_for_acks_of_others() {
    let mut harness = Harness::open(MARKET);
    let mut bystander = harness.proxy(1, &["stranger"]);
    let mut buyers: Vec<_> = (10..40).map(|number| harness.proxy(number, &["buyer"])).collect();
    harness.pass();
    for buyer in &buyers {
        buyer.nack(ResourceType::Route, "outbound-http", "no such thing");
    }
    harness.pass();
    assert_eq!(harness.reconciler.published_to.len(), 30);
    for of in [ResourceType::Listener, ResourceType::Route] {
        bystander.ack(of);
        harness.pass();
        assert_eq!(harness.reconciler.published_to.len(), 0, "another proxy ACKed a {of}");
    }
    // The table is withheld from a new proxy until one of the others ACKs it.
    let new_proxy = harness.proxy(50, &["buyer"]);
    harness.pass();
    assert!(!new_proxy.set().contains(ResourceType::Route, "outbound-http"));
    buyers[0].ack_all();
    harness.pass();
    assert!(new_proxy.set().contains(ResourceType::Route, "outbound-http"));
}

#[tokio::test(start_paused = true)]
async fn waiting_servers_do_not_multiply_the_cost_of_callers() {
    for (servers, callers) in [(5, 100), (50, 100)] {
        let mut harness = Harness::open(&policy(&["stall", "shop"]));
        let mut clients: Vec<_> =
            (1..=servers).map(|number| harness.proxy(number, &["stall", "shop"])).collect();
        clients.extend((101..=100 + callers).map(|number| harness.proxy(number, &["buyer"])));
        harness.settle(&mut clients.iter_mut().collect::<Vec<_>>());
        let before = harness.hub.counters().clients_examined();
        harness.set_policy(&policy(&["shop"]));
        let mut visited = 0;
        for client in &mut clients {
            client.ack_all();
            harness.pass();
            visited += harness.reconciler.published_to.len();
        }
        let keeps_port = |client: &&SimulatedClient| {
            client.set().contains(ResourceType::Cluster, "default/stall|80|local")
        };
        let waiting = clients.iter().filter(keeps_port).count();
        assert_eq!(waiting, usize::from(servers), "requests may be on their way");
        assert_eq!(visited, waiting, "each server is visited after the last ACK of a caller");
        // One scan, the edit of each set and its ACK, and each server while one caller is left.
        let examined = harness.hub.counters().clients_examined() - before;
        assert!(examined <= 4 * u64::from(servers + callers), "{examined} of {servers} servers");
    }
}
