//! Make before break: in which order the types are told.

use std::time::Duration;

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};

use super::client::Client;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, route, secret, set};

// Rule 1: Envoy warms for 15 s otherwise.
#[test]
fn an_added_or_changed_cluster_is_followed_by_its_endpoints_unprompted() {
    let both = |a| [cluster("a", a), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)];
    let mut client = Client::settled(&set(both(1)));
    client.ask(Endpoint, &["a", "b", "c"]);
    assert!(client.saw().is_empty(), "that c is not there cannot be said");
    let mut all = set(both(2));
    all.insert(cluster("c", 1));
    all.insert(endpoints("c", 1));
    client.give(&all);
    assert_eq!(client.saw(), ["CDS a b c", "EDS a c"]);
}

// Rule 2: they would be taken and dropped.
#[test]
fn endpoints_never_come_before_their_cluster() {
    let mut client = Client::settled(&ResourceSet::default());
    client.ask(Endpoint, &["b"]);
    client.give(&set([cluster("a", 1)]));
    client.give(&set([cluster("a", 1), cluster("b", 1), endpoints("b", 1)]));
    assert_eq!(client.saw(), ["CDS a"], "b waits for the answer about a, and so do its endpoints");
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS a b", "EDS b"]);
}

// Rule 10: Envoy takes a push of clusters when they are warm, so their endpoints must not wait for it.
#[test]
fn endpoints_of_a_known_cluster_do_not_wait_for_its_next_change() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([cluster("a", 1), endpoints("a", 1)]));
    client.give(&set([cluster("a", 2), endpoints("a", 2)]));
    client.ask(Endpoint, &["a"]);
    assert_eq!(client.saw(), ["CDS a", "EDS a"]);
    client.take(Endpoint);
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS a", "EDS a"]);
}

// Rule 4.
#[test]
fn endpoints_that_are_none_are_a_resource() {
    let mut client = Client::settled(&set([cluster("a", 1), endpoints("a", 1)]));
    client.give(&set([cluster("a", 1), endpoints("a", 0)]));
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS a"]);
    assert_eq!(client.has[&(Endpoint, "a".into())], endpoints("a", 0));
}

// R52, R54: routes are not warmed.
#[test]
fn listeners_and_routes_wait_until_the_clusters_are_taken() {
    let all = |n| set([cluster("a", n), endpoints("a", 1), listener("l", n), route("r", n)]);
    let mut client = Client::settled(&all(1));
    client.give(&all(2));
    assert_eq!(client.saw(), ["CDS a", "EDS a"]);
    client.take(Endpoint);
    assert!(client.saw().is_empty());
    client.take(Cluster);
    assert_eq!(client.saw(), ["LDS l", "RDS r"]);
}

// Rule 10, invariant 6.
#[test]
fn what_waits_for_an_answer_goes_on_without_it_after_15_seconds() {
    let mut client = Client::settled(&set([cluster("a", 1), listener("l", 1), route("r", 1)]));
    client.give(&set([cluster("a", 2), listener("l", 2), route("r", 2)]));
    client.pass(Duration::from_millis(14_999));
    assert_eq!(client.saw(), ["CDS a"]);
    client.pass(Duration::from_millis(1));
    assert_eq!(client.saw(), ["CDS late", "LDS l", "RDS r"]);
    client.take_all();
    client.pass(ACK_DEADLINE * 10);
    assert!(client.saw().is_empty(), "it is told once, and a late answer is taken");
    assert!(client.stream.acked(Cluster).contains_key("a"));
    assert_eq!(client.stream.deadline(), None);
}

// R53.
#[test]
fn a_cluster_that_has_gone_stays_until_listeners_and_routes_are_taken() {
    let old = set([cluster("a", 1), cluster("b", 1), listener("l", 1), route("r", 1)]);
    let mut client = Client::settled(&old);
    client.give(&set([cluster("b", 2), listener("m", 1), route("r", 2)]));
    assert_eq!(client.saw(), ["CDS a b"]);
    client.take(Cluster);
    assert_eq!(client.saw(), ["LDS m", "RDS r"], "nothing refers to a listener");
    client.take(Listener);
    assert!(client.saw().is_empty());
    client.take(Route);
    assert_eq!(client.saw(), ["CDS b"]);
}

#[test]
fn a_cluster_that_has_gone_stays_for_15_seconds_where_nobody_answers() {
    let mut client = Client::settled(&set([cluster("a", 1), route("r", 1)]));
    client.give(&set([route("r", 2)]));
    client.pass(ACK_DEADLINE);
    assert_eq!(client.saw(), ["RDS r", "RDS late", "CDS"]);
}

#[test]
fn what_comes_back_before_it_was_removed_is_not_removed() {
    let both = set([cluster("a", 1), route("r", 1)]);
    let mut client = Client::settled(&both);
    client.give(&set([route("r", 2)]));
    client.give(&set([cluster("a", 1), route("r", 2)]));
    client.take(Route);
    assert_eq!(client.saw(), ["RDS r"]);
}

// Rule 3: that there are none any more cannot be said, and Envoy would wait for 15 s.
#[test]
fn a_cluster_that_is_on_its_way_and_has_gone_gets_the_endpoints_that_it_had() {
    let mut client = Client::settled(&set([route("r", 1)]));
    client.give(&set([cluster("a", 1), endpoints("a", 1), route("r", 1)]));
    client.give(&set([route("r", 1)]));
    client.ask(Endpoint, &["a"]);
    assert_eq!(client.saw(), ["CDS a", "EDS a"]);
    client.take(Endpoint);
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS"]);
}

// R56: what needs a secret must find it.
#[test]
fn secrets_wait_for_nothing() {
    let mut client = Client::settled(&set([cluster("a", 1), secret("s", 1)]));
    client.give(&set([cluster("a", 2), secret("s", 1)]));
    client.give(&set([cluster("a", 2), secret("s", 2)]));
    assert_eq!(client.saw(), ["CDS a", "SDS s"]);
}

// A chain that is made anew because somebody was withdrawn must not begin with the list on which he
// still was.
#[test]
fn a_listener_waits_for_the_secrets_that_it_may_name() {
    let mut client = Client::settled(&set([secret("s", 1), listener("l", 1)]));
    client.give(&set([secret("s", 2), listener("l", 1)]));
    client.give(&set([secret("s", 3), listener("l", 2)]));
    assert_eq!(client.saw(), ["SDS s"]);
    client.take(Secret);
    assert_eq!(client.saw(), ["SDS s"]);
    client.take(Secret);
    assert_eq!(client.saw(), ["LDS l"]);
}
