//! Make before break for removals, which only delta can express.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route};

use super::client::Client;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, listener_of, route, secret, set};

/// Rule 4, R47, R53.
#[test]
fn removals_are_sent_last_in_reverse_dependency_order() {
    let old = set([
        secret("s", 1),
        cluster("a", 1),
        endpoints("a", 1),
        cluster("b", 1),
        listener("l", 1),
        listener("m", 1),
        route("r", 1),
        route("q", 1),
    ]);
    let mut client = Client::settled(&old);
    client.publish(&set([cluster("b", 2), listener("m", 1), route("r", 2)]));
    assert_eq!(
        client.take_pushes(),
        ["CDS +b", "RDS +r", "LDS -l"],
        "nothing refers to a listener"
    );
    client.ack(Cluster);
    client.ack(Listener);
    assert!(client.take_pushes().is_empty());
    for (resource_type, next) in [(Route, &["RDS -q"][..]), (Route, &["CDS -a"])] {
        client.ack(resource_type);
        assert_eq!(client.take_pushes(), next);
    }
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["EDS -a", "SDS -s"], "neither refers to the other");
    client.ack_all();
    assert!(client.take_pushes().is_empty());
}

/// Rule 2: the client ACKed a cluster in a push from before it unsubscribed from the wildcard and
/// subscribed again. The server does not know whether the client still has that cluster, which is
/// removed and returns.
#[test]
fn endpoints_wait_for_cluster_of_uncertain_version() {
    let mut client = Client::settled(&ResourceSet::default());
    client.subscribe(Endpoint, &["a"]);
    client.ack_all();
    client.publish(&set([cluster("a", 1), endpoints("a", 1)]));
    client.pass(ACK_DEADLINE);
    client.publish(&set([cluster("a", 2), endpoints("a", 1)]));
    client.ack(Endpoint);
    client.ack(Endpoint);
    client.publish(&ResourceSet::default());
    client.change(Cluster, &["*"], &["*"]);
    client.ack(Cluster);
    client.take_pushes();
    client.publish(&set([cluster("a", 2), endpoints("a", 2)]));
    assert!(client.take_pushes().is_empty(), "a push of clusters is under way");
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +a"]);
}

/// Rule 5, R57: a late push removed the cluster. The client NACKs the push, but may have applied
/// the removal. Meanwhile the cluster has returned.
#[test]
fn listener_waits_for_a_cluster_whose_removal_was_nacked() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.publish(&set([cluster("a", 2)]));
    client.change(Cluster, &["a"], &[]);
    let bad = cluster("bad", 1);
    client.publish(&set([bad.clone()]));
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +a", "CDS +bad -a"]);
    client.pass(ACK_DEADLINE);
    client.publish(&set([bad.clone(), cluster("a", 2), listener_of("l", 1, &["a"])]));
    assert_eq!(client.take_pushes(), ["CDS late", "CDS +a"]);
    client.nack_in_part(Cluster, |one| one == &*bad);
    assert_eq!(client.take_pushes(), ["CDS nacked: bad (in part)"]);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["LDS +l"]);
}
