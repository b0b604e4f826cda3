//! Make before break, where a response contains all resources.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route};

use super::client::Client;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, route, set};

/// R53.
#[test]
fn listener_is_removed_at_once_and_cluster_last() {
    let old = set([cluster("a", 1), cluster("b", 1), listener("l", 1), route("r", 1)]);
    let mut client = Client::settled(&old);
    client.publish(&set([cluster("b", 2), listener("m", 1), route("r", 2)]));
    assert_eq!(
        client.take_pushes(),
        ["CDS +b", "LDS +m -l", "RDS +r"],
        "nothing refers to a listener"
    );
    client.ack(Cluster);
    client.ack(Listener);
    assert!(client.take_pushes().is_empty());
    client.ack(Route);
    assert_eq!(client.take_pushes(), ["CDS -a"]);
}

/// Rule 3, rule 4: the absence of endpoints cannot be expressed, and Envoy would wait for 15 s.
#[test]
fn removed_cluster_still_in_flight_gets_its_last_endpoints() {
    let mut client = Client::settled(&set([route("r", 1)]));
    client.publish(&set([cluster("a", 1), endpoints("a", 1), route("r", 1)]));
    client.publish(&set([route("r", 1)]));
    client.subscribe(Endpoint, &["a"]);
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +a"]);
    client.ack(Endpoint);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS -a"]);
}

/// Rule 2, R51: a bisection pushes clusters in parts, so a cluster that was sent may be omitted
/// again. Endpoints that are repeated, because their push is unanswered, wait until it is back.
#[test]
fn endpoints_wait_for_cluster_omitted_during_bisection() {
    let mut client = Client::settled(&ResourceSet::default());
    client.publish(&set([cluster("a", 1), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]));
    client.subscribe(Endpoint, &["a", "b"]);
    client.nack(Cluster, "one is bad");
    assert_eq!(
        client.take_pushes(),
        ["CDS +a +b", "EDS +a +b", "CDS bisecting: a b (one is bad)", "CDS +a"]
    );
    client.pass(ACK_DEADLINE);
    assert_eq!(client.take_pushes(), ["CDS late", "EDS late", "CDS +b -a", "EDS +b"]);
    client.ack_all();
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +a"]);
}
