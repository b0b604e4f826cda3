//! Make before break, where a response has all that there is.

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
    client.give(&set([cluster("b", 2), listener("m", 1), route("r", 2)]));
    assert_eq!(client.saw(), ["CDS +b", "LDS +m -l", "RDS +r"], "nothing refers to a listener");
    client.take(Cluster);
    client.take(Listener);
    assert!(client.saw().is_empty());
    client.take(Route);
    assert_eq!(client.saw(), ["CDS -a"]);
}

/// Rule 3, rule 4: that there are none any more cannot be said, and Envoy would wait for 15 s.
#[test]
fn removed_cluster_still_in_flight_gets_its_last_endpoints() {
    let mut client = Client::settled(&set([route("r", 1)]));
    client.give(&set([cluster("a", 1), endpoints("a", 1), route("r", 1)]));
    client.give(&set([route("r", 1)]));
    client.wants(Endpoint, &["a"]);
    assert_eq!(client.saw(), ["CDS +a", "EDS +a"]);
    client.take(Endpoint);
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS -a"]);
}

/// Rule 2: clusters in doubt are tried one by one, so one that was sent may be left out again. Also
/// endpoints that are brought again, because nobody has answered, are not told before it is back.
#[test]
fn endpoints_wait_for_cluster_omitted_during_bisection() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([cluster("a", 1), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]));
    client.wants(Endpoint, &["a", "b"]);
    client.refuse(Cluster, "one is bad");
    assert_eq!(
        client.saw(),
        ["CDS +a +b", "EDS +a +b", "CDS in doubt: a b (one is bad)", "CDS +a"]
    );
    client.pass(ACK_DEADLINE);
    assert_eq!(client.saw(), ["CDS late", "EDS late", "CDS +b -a", "EDS +b"]);
    client.take_all();
    assert_eq!(client.saw(), ["CDS +a", "EDS +a"]);
}
