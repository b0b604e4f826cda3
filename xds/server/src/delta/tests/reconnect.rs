//! A client that comes back, and says what it has.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};

use super::client::{Client, subscribe};
use crate::delta::Output;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener, route, secret, set};

fn everything() -> ResourceSet {
    set([
        secret("s", 1),
        cluster("a", 1),
        endpoints("a", 1),
        cluster("b", 1),
        endpoints("b", 1),
        listener("l", 1),
        route("r", 1),
    ])
}

/// The first requests of a client that was settled with [`everything`].
fn ask_again(client: &mut Client) {
    client.ask_again(Cluster, &[]);
    client.ask_again(Endpoint, &["a", "b"]);
    client.ask_again(Secret, &["s"]);
    client.ask_again(Listener, &[]);
    client.ask_again(Route, &["r"]);
}

// Rule 7 (a), (d); invariant 8.
#[test]
fn a_client_that_has_all_is_sent_nothing_at_all() {
    for has_set_first in [true, false] {
        let mut client = Client::settled(&everything());
        client.reconnect();
        if has_set_first {
            client.give(&everything());
            ask_again(&mut client);
        } else {
            ask_again(&mut client);
            client.give(&everything());
        }
        client.pass(REMOVAL_GRACE);
        assert!(client.saw().is_empty());
        assert!(client.stream.acked(Cluster).contains_key("a"), "it is known to have it");
    }
}

// Rule 7 (b), (c); R57.
#[test]
fn a_client_is_sent_what_changed_and_told_what_vanished_in_the_meantime() {
    let now = set([
        secret("s", 1),
        cluster("a", 2),
        endpoints("a", 1),
        cluster("c", 1),
        endpoints("c", 1),
        listener("l", 2),
        route("r", 1),
    ]);
    for has_set_first in [true, false] {
        let mut client = Client::settled(&everything());
        client.reconnect();
        if has_set_first {
            client.give(&now);
            ask_again(&mut client);
        } else {
            ask_again(&mut client);
            client.give(&now);
        }
        assert_eq!(client.saw(), ["CDS +a +c", "EDS +a"], "set first: {has_set_first}");
        client.take_all();
        client.pass(REMOVAL_GRACE);
        client.take_all();
        assert_eq!(client.saw(), ["LDS +l", "CDS -b", "EDS -b"]);
    }
}

// R53, R57: the first request is about clusters, those about listeners and routes come after it.
#[test]
fn nothing_is_removed_before_the_client_has_asked_for_all_its_types() {
    let mut client = Client::settled(&everything());
    client.reconnect();
    client.give(&set([secret("s", 1), cluster("a", 1), endpoints("a", 1), route("r", 2)]));
    ask_again(&mut client);
    assert_eq!(client.saw(), ["RDS +r"]);
    client.take(Route);
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.saw(), ["LDS -l"]);
}

// Rule 1: Envoy warms a changed cluster also after a reconnect, with an old subscription.
#[test]
fn endpoints_that_the_client_has_follow_a_cluster_that_changed_before_it_asked_for_them() {
    let mut client = Client::settled(&everything());
    client.reconnect();
    client.give(&set([cluster("a", 2), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]));
    client.ask_again(Cluster, &[]);
    client.ask_again(Endpoint, &["a", "b"]);
    assert_eq!(client.saw(), ["CDS +a", "EDS +a"]);
}

// Rule 7: versions that cannot be ours.
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

// R27, R37: beside what it has, a client may ask for what it has not.
#[test]
fn a_name_without_a_version_is_answered() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.reconnect();
    client.give(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.ask_again(Endpoint, &["a", "b", "missing"]);
    assert_eq!(client.saw(), ["EDS +b -missing"]);
}

#[test]
fn versions_of_what_the_client_does_not_ask_for_count_for_nothing() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.reconnect();
    client.give(&ResourceSet::default());
    client.ask_again(Endpoint, &["b"]);
    client.take(Endpoint);
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.saw(), ["EDS -b"]);
}

// R19, invariant 7.
#[test]
fn what_was_refused_on_an_earlier_stream_is_not_sent() {
    let mut client = Client::settled(&everything());
    let mut bad = everything();
    bad.insert(cluster("a", 2));
    client.give(&bad);
    client.refuse(Cluster, "no");
    client.reconnect();
    client.give(&bad);
    ask_again(&mut client);
    assert!(client.saw().is_empty());
    bad.insert(cluster("a", 3));
    client.give(&bad);
    assert_eq!(client.saw(), ["CDS +a", "EDS +a"]);
}

// Invariant 4: a control plane that has been restarted knows what its clients have.
#[test]
fn what_the_client_says_that_it_has_is_news() {
    let mut client = Client::settled(&everything());
    client.reconnect();
    let mut request = subscribe(Cluster, &[]);
    request.initial_versions.insert("a".to_owned(), cluster("a", 1).version().to_string());
    let outputs = client.stream.on_request(&request, client.now);
    let [Output::Acked(taken)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(taken.resource_type, Cluster);
    assert_eq!(client.stream.acked(Cluster)["a"], cluster("a", 1).version());
}
