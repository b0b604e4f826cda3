//! What a client may ask for, and what it is told then.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::Version;

use super::client::Client;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener, resource, secret, set};

// Rule 3.
#[test]
fn every_first_request_of_a_type_is_answered_even_by_nothing() {
    let mut client = Client::new();
    client.give(&ResourceSet::default());
    client.subscribe_to(&ResourceSet::default());
    assert_eq!(client.saw(), ["CDS", "EDS", "SDS"], "listeners wait until the clusters are taken");
    client.take(Cluster);
    assert_eq!(client.saw(), ["LDS", "RDS"]);
}

// Rule 3: what is asked for before it is known what the client is to have.
#[test]
fn first_requests_are_answered_when_there_is_a_set() {
    let mut client = Client::new();
    let set = set([cluster("a", 1), endpoints("a", 1)]);
    client.subscribe_to(&set);
    assert!(client.saw().is_empty());
    client.give(&set);
    assert_eq!(client.saw(), ["SDS", "CDS a", "EDS a"]);
}

// R36, R37: that it is not there cannot be said.
#[test]
fn a_name_that_is_not_there_is_remembered_and_pushed_when_it_appears() {
    for resource_type in ResourceType::ALL {
        let mut client = Client::new();
        client.give(&set([resource(resource_type, "b", 1)]));
        client.ask(resource_type, &["b"]);
        client.take(resource_type);
        client.saw();
        client.ask(resource_type, &["a", "b"]);
        assert!(client.saw().is_empty());
        client.give(&set([resource(resource_type, "a", 1), resource(resource_type, "b", 1)]));
        let names = if resource_type.allows_wildcard() { "DS a b" } else { "DS a" };
        assert!(client.saw()[0].ends_with(names), "{resource_type}");
    }
}

// R25, R26: a name that is wanted anew is sent, also where it was sent before.
#[test]
fn names_are_all_that_is_wanted_each_time() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.ask(Endpoint, &["b"]);
    assert!(client.saw().is_empty(), "what is dropped is not answered");
    assert!(!client.stream.acked(Endpoint).contains_key("a"));
    client.give(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS b"]);
    client.ask(Endpoint, &["b", "a", "a"]);
    assert_eq!(client.saw(), ["EDS a"]);
    client.take(Endpoint);
    client.ask(Endpoint, &["b"]);
    client.ask(Endpoint, &["a", "b"]);
    assert_eq!(client.saw(), ["EDS a"]);
}

// R26: also where it was dropped and wanted again while a push was under way.
#[test]
fn a_name_that_is_dropped_and_wanted_again_in_stale_requests_is_not_lost() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.give(&set([secret("s", 2), secret("t", 1)]));
    client.ask(Secret, &["s"]);
    client.ask(Secret, &["s", "t"]);
    assert_eq!(client.saw(), ["SDS s"]);
    client.take(Secret);
    assert_eq!(client.saw(), ["SDS t"]);
}

// R26, R41: the complete state, and only of what is wanted.
#[test]
fn clusters_by_name_are_the_complete_state_of_these_names() {
    let mut client = Client::new();
    client.give(&set([cluster("a", 1), cluster("b", 1), cluster("c", 1)]));
    client.ask(Cluster, &["a"]);
    client.take(Cluster);
    client.ask(Cluster, &["a", "b"]);
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS a", "CDS a b"]);
    client.ask(Cluster, &["b"]);
    client.give(&set([cluster("a", 2), cluster("b", 2), cluster("c", 2)]));
    assert_eq!(client.saw(), ["CDS b"]);
    client.take(Cluster);
    client.give(&set([cluster("a", 3)]));
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.saw(), ["CDS"]);
}

// R31, R33.
#[test]
fn a_first_request_without_names_or_with_a_star_asks_for_all_clusters_or_listeners() {
    let all = set([cluster("a", 1), cluster("b", 1), listener("l", 1), listener("m", 1)]);
    for (resource_type, seen) in [(Cluster, "CDS a b"), (Listener, "LDS l m")] {
        for names in [&[][..], &["*"], &["*", "x"]] {
            let mut client = Client::new();
            client.give(&all);
            client.ask(resource_type, names);
            client.take(resource_type);
            client.ask(resource_type, names);
            assert_eq!(client.saw(), [seen], "{names:?}");
        }
    }
}

// R35: above all never all secrets.
#[test]
fn there_is_no_wildcard_for_secrets_endpoints_and_routes() {
    let all = |content| set([Secret, Endpoint, Route].map(|of| resource(of, "a", content)));
    for (resource_type, words) in [(Secret, "SDS"), (Endpoint, "EDS"), (Route, "RDS")] {
        let mut client = Client::new();
        client.give(&all(1));
        client.ask(resource_type, &[]);
        client.take(resource_type);
        client.ask(resource_type, &["*"]);
        assert_eq!(client.saw(), [words], "a name as any other, and not there");
        client.give(&all(2));
        client.ask(resource_type, &[]);
        client.give(&all(3));
        assert!(client.saw().is_empty(), "nor when it changes");
    }
}

// R32.
#[test]
fn a_later_request_without_names_is_no_wildcard() {
    let both = |content| set([cluster("a", content), cluster("b", content)]);
    let mut client = Client::new();
    client.give(&both(1));
    client.ask(Cluster, &[]);
    client.take(Cluster);
    client.ask(Cluster, &["a"]);
    client.take(Cluster);
    client.ask(Cluster, &[]);
    client.give(&both(2));
    assert_eq!(client.saw(), ["CDS a b", "CDS a"], "it wants none");
    client.ask(Cluster, &["*"]);
    assert_eq!(client.saw(), ["CDS a b"]);
}

// R33.
#[test]
fn a_dropped_wildcard_leaves_the_names() {
    let mut client = Client::new();
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    client.ask(Cluster, &["*", "a"]);
    client.take(Cluster);
    client.ask(Cluster, &["a"]);
    client.give(&set([cluster("a", 1), cluster("b", 2)]));
    assert_eq!(client.saw(), ["CDS a b"]);
    client.give(&set([cluster("a", 2), cluster("b", 2)]));
    assert_eq!(client.saw(), ["CDS a"]);
}

// R11: of what the client is subscribed to and is sent.
#[test]
fn the_version_is_that_of_what_the_client_has() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    let of_both = |a, b| Version::of_all(&[endpoints("a", a), endpoints("b", b)]).to_string();
    assert_eq!(client.versions[&Endpoint], of_both(1, 1));
    client.give(&set([endpoints("a", 2), endpoints("b", 1)]));
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS a"]);
    assert_eq!(client.versions[&Endpoint], of_both(2, 1), "also of what this push did not bring");
    client.give(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.take(Endpoint);
    assert_eq!(client.versions[&Endpoint], of_both(1, 1));
}

// R40: also those that look like names of another kind.
#[test]
fn names_are_compared_byte_by_byte() {
    let (name, turned) = ("xdstp://a/b?x=1&y=2", "xdstp://a/b?y=2&x=1");
    let mut client = Client::new();
    client.give(&set([endpoints(name, 1), endpoints("a", 1)]));
    client.ask(Endpoint, &["A", "a ", turned, name]);
    assert_eq!(client.saw(), [format!("EDS {name}")]);
}
