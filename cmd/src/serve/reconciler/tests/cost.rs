//! What costs nothing when it has been done once.

use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::{Node, ResourceType};

use super::place::{Place, node};

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"
"#;

#[test]
fn who_serves_nothing_is_decided_at_once() {
    let mut place = Place::open(POLICY);
    let _buyer = place.proxy(1, &["buyer"]);
    place.pass();
    assert!(place.reconciler.undecided.is_empty());
    let mut store = place.proxy(2, &["store"]);
    place.pass();
    assert_eq!(place.reconciler.undecided.len(), 1, "it has taken nothing yet");
    store.take_all();
    place.pass();
    assert!(place.reconciler.undecided.is_empty());
}

#[test]
fn an_answer_compiles_nothing_and_another_word_of_a_client_does() {
    let mut place = Place::open(POLICY);
    let record = place.join(1, &["store"]);
    let mut store = place.connect(&record);
    let encoded = |place: &mut Place| {
        place.pass();
        place.reconciler.moments.compiler().unwrap().encoded()
    };
    let first = encoded(&mut place);
    for resource_type in ResourceType::ALL {
        store.take(resource_type);
        assert_eq!(encoded(&mut place), first, "it took {resource_type}");
    }
    let same = place.connect(&record);
    assert_eq!(encoded(&mut place), first, "it has another stream");
    let statement = serde_json::json!({ "app_address": "10.0.0.9" });
    let node = Node { statement: Some(statement), ..node(&record) };
    let other = SimulatedClient::connect(&place.hub, &record.id.to_string(), node);
    assert!(encoded(&mut place) > first);
    let cluster = &other.set().of(ResourceType::Cluster)["default/store|80|local"].to_json();
    assert!(cluster.to_string().contains("10.0.0.9"), "{cluster:#}");
    drop(same);
}
