//! A client that comes back, and says which version it has.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};

use super::client::Client;
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
    client.ask(Cluster, &[]);
    client.ask(Endpoint, &["a", "b"]);
    client.ask(Secret, &["s"]);
    client.ask(Listener, &[]);
    client.ask(Route, &["r"]);
}

// R12, R23, invariants 4 and 8; also at a server that has been restarted.
#[test]
fn clusters_and_listeners_of_a_known_version_are_not_sent_again() {
    for is_restarted in [true, false] {
        for has_set_first in [true, false] {
            let mut client = Client::settled(&everything());
            if is_restarted {
                client.reconnect_elsewhere();
            } else {
                client.reconnect();
            }
            if has_set_first {
                client.give(&everything());
                ask_again(&mut client);
            } else {
                ask_again(&mut client);
                client.give(&everything());
            }
            let mut saw = client.saw();
            saw.sort();
            assert_eq!(saw, ["EDS a b", "RDS r", "SDS s"], "of others one version says too little");
            client.take_all();
            client.pass(REMOVAL_GRACE);
            assert!(client.saw().is_empty());
            assert!(client.stream.acked(Cluster).contains_key("a"), "it is known to have it");
            assert!(client.stream.acked(Listener).contains_key("l"));
        }
    }
}

// R12: a client that names something, and be it the wildcard, may have dropped something before.
#[test]
fn clusters_that_are_asked_for_by_name_are_sent_whatever_the_version() {
    for names in [&["a", "b"][..], &["*"]] {
        let mut client = Client::new();
        client.give(&everything());
        client.ask(Cluster, names);
        client.take_all();
        client.reconnect();
        client.give(&everything());
        client.ask(Cluster, names);
        assert_eq!(client.saw(), ["CDS a b"]);
    }
}

// R53, R57: what it had is known by its version.
#[test]
fn a_cluster_that_vanished_in_the_meantime_goes_when_nothing_refers_to_it() {
    let mut client = Client::settled(&everything());
    client.reconnect();
    client.give(&set([cluster("a", 2), endpoints("a", 1), listener("l", 1), route("r", 2)]));
    client.ask(Cluster, &[]);
    client.ask(Endpoint, &["a", "b"]);
    client.ask(Listener, &[]);
    client.ask(Route, &["r"]);
    assert_eq!(client.saw(), ["CDS a b", "EDS a"]);
    client.take(Endpoint);
    client.take(Cluster);
    assert_eq!(client.saw(), ["RDS r"]);
    client.pass(REMOVAL_GRACE);
    assert!(client.saw().is_empty());
    client.take(Route);
    assert_eq!(client.saw(), ["CDS a"]);
}

// Rule 7: versions that cannot be ours.
#[test]
fn a_client_with_a_version_that_we_never_gave_is_sent_all() {
    let mut client = Client::new();
    client.versions.insert(Cluster, "of another control plane".to_owned());
    client.give(&everything());
    client.ask(Cluster, &[]);
    assert_eq!(client.saw(), ["CDS a b"]);
}

// R19, invariant 7.
#[test]
fn what_was_refused_on_an_earlier_stream_is_not_sent() {
    let mut client = Client::settled(&everything());
    let mut bad = everything();
    bad.insert(cluster("a", 2));
    bad.insert(secret("s", 2));
    client.give(&bad);
    client.refuse(Cluster, "no");
    client.refuse(Secret, "no");
    client.reconnect();
    client.give(&bad);
    client.ask(Cluster, &[]);
    client.ask(Secret, &["s"]);
    assert_eq!(client.saw(), ["SDS"]);
    bad.insert(cluster("b", 2));
    client.give(&bad);
    assert_eq!(client.saw(), ["CDS a b"]);
    client.take(Cluster);
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
}

// Rule 5: its version does not say what it has taken of a push that it refused.
#[test]
fn a_client_that_may_have_taken_a_part_is_sent_all_though_its_version_is_right() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.give(&set([cluster("a", 2), cluster("bad", 1)]));
    client.refuse_in_part(Cluster, |resource| &**resource.name() == "bad");
    client.reconnect();
    client.give(&set([cluster("a", 1)]));
    client.ask(Cluster, &[]);
    client.take_all();
    assert_eq!(client.saw(), ["CDS a"]);
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
}

// R41: to leave out what is refused would remove what the client has in its place, and what that is
// a control plane that was restarted does not know.
#[test]
fn what_a_client_of_an_unknown_version_refuses_leaves_it_as_it_is() {
    let mut client = Client::settled(&everything());
    client.reconnect_elsewhere();
    let mut bad = everything();
    bad.insert(cluster("a", 2));
    client.give(&bad);
    client.ask(Cluster, &[]);
    client.ask(Listener, &[]);
    client.refuse(Cluster, "a is bad");
    assert_eq!(client.saw(), ["CDS a b", "CDS refused: a b (a is bad)"], "its words say which");
    client.pass(REMOVAL_GRACE);
    client.give(&bad);
    assert!(client.saw().is_empty());
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
    bad.insert(cluster("a", 3));
    client.give(&bad);
    assert_eq!(client.saw(), ["CDS a b"]);
}
