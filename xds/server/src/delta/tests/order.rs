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
    let mut client = Client::settled(&set([
        cluster("a", 1),
        endpoints("a", 1),
        cluster("b", 1),
        endpoints("b", 1),
    ]));
    client.ask(Endpoint, &["c"]);
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS -c"]);
    client.give(&set([
        cluster("a", 2),
        endpoints("a", 1),
        cluster("b", 1),
        endpoints("b", 1),
        cluster("c", 1),
        endpoints("c", 1),
    ]));
    assert_eq!(client.saw(), ["CDS +a +c", "EDS +a +c"]);
}

// Rule 2: they would be taken and dropped.
#[test]
fn endpoints_never_come_before_their_cluster() {
    let mut client = Client::settled(&ResourceSet::default());
    client.ask(Endpoint, &["b"]);
    client.take(Endpoint);
    client.give(&set([cluster("a", 1)]));
    assert_eq!(client.saw(), ["EDS -b", "CDS +a"]);
    client.give(&set([cluster("a", 1), cluster("b", 1), endpoints("b", 1)]));
    assert!(
        client.saw().is_empty(),
        "cluster b waits for the answer about a, and so do its endpoints"
    );
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +b", "EDS +b"]);
}

// Rule 10: Envoy takes a push of clusters when they are warm, so their endpoints must not wait for it.
#[test]
fn endpoints_of_a_known_cluster_do_not_wait_for_its_next_change() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([cluster("a", 1), endpoints("a", 1)]));
    client.give(&set([cluster("a", 2), endpoints("a", 2)]));
    assert_eq!(client.saw(), ["CDS +a"]);
    client.ask(Endpoint, &["a"]);
    assert_eq!(client.saw(), ["EDS +a"]);
    client.take(Endpoint);
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +a", "EDS +a"]);
}

#[test]
fn endpoints_do_not_wait_for_clusters_that_the_client_does_not_want_or_that_have_gone() {
    let mut client = Client::new();
    client.ask(Endpoint, &["a"]);
    client.give(&set([cluster("a", 1), endpoints("a", 1)]));
    assert_eq!(client.saw(), ["EDS +a"], "it asks for endpoints only");

    let mut client = Client::settled(&set([cluster("a", 1), endpoints("a", 1)]));
    client.give(&set([endpoints("a", 2)]));
    assert_eq!(client.saw(), ["EDS +a"]);
    client.take(Endpoint);
    assert_eq!(client.saw(), ["CDS -a"]);
}

// Rule 4: a removal of endpoints is ignored.
#[test]
fn endpoints_that_are_none_are_a_resource_and_no_removal() {
    let mut client = Client::settled(&set([cluster("a", 1), endpoints("a", 1)]));
    client.give(&set([cluster("a", 1), endpoints("a", 0)]));
    assert_eq!(client.saw(), ["EDS +a"]);
}

// R52, R54: routes are not warmed.
#[test]
fn listeners_and_routes_wait_until_the_clusters_are_taken() {
    let mut client = Client::settled(&set([
        cluster("a", 1),
        endpoints("a", 1),
        listener("l", 1),
        route("r", 1),
    ]));
    client.give(&set([cluster("a", 2), endpoints("a", 1), listener("l", 2), route("r", 2)]));
    assert_eq!(client.saw(), ["CDS +a", "EDS +a"]);
    client.take(Endpoint);
    assert!(client.saw().is_empty());
    client.take(Cluster);
    assert_eq!(client.saw(), ["LDS +l", "RDS +r"]);
}

// Rule 10, invariant 6.
#[test]
fn what_waits_for_an_answer_goes_on_without_it_after_15_seconds() {
    let mut client = Client::settled(&set([cluster("a", 1), listener("l", 1), route("r", 1)]));
    client.give(&set([cluster("a", 2), listener("l", 2), route("r", 2)]));
    client.pass(Duration::from_millis(14_999));
    assert_eq!(client.saw(), ["CDS +a"]);
    client.pass(Duration::from_millis(1));
    assert_eq!(client.saw(), ["CDS late", "LDS +l", "RDS +r"]);
    client.take_all();
    client.pass(ACK_DEADLINE * 10);
    assert!(client.saw().is_empty(), "it is told once, and a late answer is taken");
    assert!(client.stream.acked(Cluster).contains_key("a"));
    assert_eq!(client.stream.deadline(), None);
}

// R53.
#[test]
fn removals_come_last_and_one_type_after_the_other() {
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
    client.give(&set([cluster("b", 2), listener("m", 1), route("r", 2)]));
    assert_eq!(client.saw(), ["CDS +b"]);
    client.take(Cluster);
    assert_eq!(client.saw(), ["RDS +r"]);
    for (resource_type, next) in [
        (Route, "LDS -l"),
        (Listener, "RDS -q"),
        (Route, "CDS -a"),
        (Cluster, "EDS -a"),
        (Endpoint, "SDS -s"),
    ] {
        client.take(resource_type);
        assert_eq!(client.saw(), [next]);
    }
    client.take(Secret);
    assert!(client.saw().is_empty());
}

#[test]
fn a_removal_that_is_not_answered_delays_the_next_by_15_seconds() {
    let mut client = Client::settled(&set([cluster("a", 1), listener("l", 1)]));
    client.give(&ResourceSet::default());
    client.pass(ACK_DEADLINE);
    assert_eq!(client.saw(), ["LDS -l", "LDS late", "CDS -a"]);
}

#[test]
fn what_comes_back_before_it_was_removed_is_not_removed() {
    let both = set([cluster("a", 1), listener("l", 1)]);
    let mut client = Client::settled(&both);
    client.give(&ResourceSet::default());
    client.give(&set([cluster("a", 1)]));
    client.take(Listener);
    assert_eq!(client.saw(), ["LDS -l"]);
    client.give(&both);
    assert_eq!(client.saw(), ["LDS +l"]);
}

// R56: what needs a secret must find it.
#[test]
fn secrets_wait_for_nothing() {
    let mut client = Client::settled(&set([cluster("a", 1), secret("s", 1)]));
    client.give(&set([cluster("a", 2), secret("s", 1)]));
    client.give(&set([cluster("a", 2), secret("s", 2)]));
    assert_eq!(client.saw(), ["CDS +a", "SDS +s"]);
}

// A chain that is made anew because somebody was withdrawn must not begin with the list on which he
// still was.
#[test]
fn a_listener_waits_for_the_secrets_that_it_may_name() {
    let mut client = Client::settled(&set([secret("s", 1), listener("l", 1), route("r", 1)]));
    client.give(&set([secret("s", 2), listener("l", 1), route("r", 1)]));
    assert_eq!(client.saw(), ["SDS +s"]);
    // Before that is answered: another list, and the chain anew.
    client.give(&set([secret("s", 3), listener("l", 2), route("r", 2)]));
    assert_eq!(client.saw(), ["RDS +r"], "who may request what waits for nothing of this");
    client.take(Route);
    client.take(Secret);
    assert_eq!(client.saw(), ["SDS +s"]);
    client.take(Secret);
    assert_eq!(client.saw(), ["LDS +l"]);
    // A client that does not answer holds nothing up for ever.
    client.give(&set([secret("s", 4), listener("l", 3), route("r", 2)]));
    client.take(Listener);
    assert_eq!(client.saw(), ["SDS +s"]);
    client.pass(ACK_DEADLINE);
    assert_eq!(client.saw(), ["SDS late", "LDS +l"]);
}
