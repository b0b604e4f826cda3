//! A client that comes back with the version of each resource that it has.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Route};

use super::client::{Client, subscribe};
use crate::delta::Output;
use crate::scenarios::client::ENVOYS_ORDER;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener, route, secret, set};

/// R53, R57: the first request is about clusters, those about listeners and routes come after it.
#[test]
fn nothing_is_removed_before_the_client_has_asked_for_all_its_types() {
    let all = |r| [secret("s", 1), cluster("a", 1), endpoints("a", 1), route("r", r)];
    let mut old = set(all(1));
    old.insert(cluster("b", 1));
    old.insert(endpoints("b", 1));
    old.insert(listener("l", 1));
    let mut client = Client::settled(&old);
    client.reconnect();
    client.give(&set(all(2)));
    for of in ENVOYS_ORDER {
        client.come_back(of);
    }
    assert_eq!(client.saw(), ["RDS +r"]);
    client.take(Route);
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.saw(), ["LDS -l"]);
}

/// Rule 7: versions that cannot be ours.
#[test]
fn a_version_that_we_never_gave_is_an_old_one() {
    let mut client = Client::new();
    client.give(&set([cluster("a", 1)]));
    let mut request = subscribe(Cluster, &[]);
    for name in ["a", "gone"] {
        request.initial_versions.insert(name.to_owned(), "of another control plane".to_owned());
    }
    client.request(&request);
    assert_eq!(client.saw(), ["CDS +a"]);
    client.take(Cluster);
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.saw(), ["CDS -gone"]);
}

/// R24, R27, R37: beside what it has, a client may ask for what it has not.
#[test]
fn a_name_without_a_version_is_answered() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.reconnect();
    client.give(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.come_back_for(Endpoint, &["a", "b", "missing"]);
    assert_eq!(client.saw(), ["EDS +b -missing"]);
}

/// R38.
#[test]
fn versions_of_what_the_client_does_not_ask_for_count_for_nothing() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.reconnect();
    client.give(&ResourceSet::default());
    client.come_back_for(Endpoint, &["b"]);
    client.take(Endpoint);
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.saw(), ["EDS -b"]);
}

/// Invariant 4: it is known also before it is known what the client is to have.
#[test]
fn what_the_client_says_that_it_has_is_news_at_once() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.reconnect();
    let mut request = subscribe(Cluster, &[]);
    request.initial_versions.insert("a".to_owned(), cluster("a", 1).version().to_string());
    let outputs = client.stream.on_request(&request, client.now);
    let [Output::Acked(taken)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(taken.resource_type, Cluster);
    assert_eq!(client.stream.acked(Cluster).get("a"), Some(cluster("a", 1).version()));
}

/// Rule 1: a client that lost its stream between a cluster and its endpoints says that it has both, and
/// warms the cluster.
#[test]
fn endpoints_follow_a_cluster_that_was_not_answered_on_the_stream_before() {
    let all = |a| set([cluster("a", a), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]);
    let mut client = Client::settled(&all(1));
    client.give(&all(2));
    let unanswered = client.stream.unanswered_clusters();
    assert_eq!(unanswered, ["a".into()].into());
    client.has.insert((Cluster, "a".into()), cluster("a", 2));
    client.reconnect();
    client.stream.resend_endpoints(&unanswered);
    client.give(&all(2));
    for of in [Cluster, Endpoint] {
        client.come_back(of);
    }
    assert_eq!(client.saw(), ["EDS +a"]);
    client.take_all();
    assert!(client.stream.unanswered_clusters().is_empty());
}
