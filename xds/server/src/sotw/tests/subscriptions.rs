//! What a client may ask for that says all its names each time.

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener};
use ironmesh_xds_wire::Version;

use super::client::Client;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener, set};

/// R25, R26: a name that is wanted anew is sent, also where it was sent before.
#[test]
fn request_names_replace_the_subscription() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.ask(Endpoint, &["b"]);
    assert!(client.saw().is_empty(), "what is dropped is not answered");
    assert!(!client.stream.acked(Endpoint).contains_key("a"));
    client.give(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS +b"]);
    client.ask(Endpoint, &["b", "a", "a"]);
    assert_eq!(client.saw(), ["EDS +a"]);
    client.take(Endpoint);
    client.ask(Endpoint, &["b"]);
    client.ask(Endpoint, &["a", "b"]);
    assert_eq!(client.saw(), ["EDS +a"]);
}

/// R26, R41, R61: the complete state, and only of what is wanted.
#[test]
fn named_clusters_are_sent_as_their_complete_state() {
    let mut client = Client::new();
    client.give(&set([cluster("a", 1), cluster("b", 1), cluster("c", 1)]));
    client.ask(Cluster, &["a"]);
    client.take(Cluster);
    client.ask(Cluster, &["a", "b"]);
    assert_eq!(client.open[0].resources, [cluster("a", 1), cluster("b", 1)]);
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +a", "CDS +b"]);
    client.ask(Cluster, &["b"]);
    client.give(&set([cluster("a", 2), cluster("b", 2), cluster("c", 2)]));
    assert_eq!(client.saw(), ["CDS +b"]);
    assert_eq!(client.open[0].resources, [cluster("b", 2)]);
    client.take(Cluster);
    client.give(&set([cluster("a", 3)]));
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.saw(), ["CDS -b"]);
}

/// R31, R33: said again it asks for nothing.
#[test]
fn repeated_wildcard_and_names_get_no_response() {
    let all = set([cluster("a", 1), cluster("b", 1), listener("l", 1), listener("m", 1)]);
    for (of, seen) in [(Cluster, "CDS +a +b"), (Listener, "LDS +l +m")] {
        for names in [&[][..], &["*"], &["*", "x"]] {
            let mut client = Client::new();
            client.give(&all);
            client.ask(of, names);
            client.take(of);
            client.ask(of, names);
            assert_eq!(client.saw(), [seen], "{names:?}");
        }
    }
}

/// R32: also where they asked for all before a name was given.
#[test]
fn empty_request_is_wildcard_only_until_a_name_is_sent() {
    let both = |content| set([cluster("a", content), cluster("b", content)]);
    let mut client = Client::new();
    client.give(&both(1));
    client.ask(Cluster, &[]);
    client.take(Cluster);
    client.ask(Cluster, &["a"]);
    assert_eq!(client.open[0].resources, [cluster("a", 1)]);
    client.take(Cluster);
    client.ask(Cluster, &[]);
    client.give(&both(2));
    assert_eq!(client.saw(), ["CDS +a +b", "CDS"], "it wants none");
    client.ask(Cluster, &["*"]);
    assert_eq!(client.saw(), ["CDS +a +b"]);
}

/// R33: a star among names, and then not.
#[test]
fn omitted_star_ends_the_wildcard_and_keeps_names() {
    let mut client = Client::new();
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    client.ask(Cluster, &["*", "a"]);
    client.take(Cluster);
    client.ask(Cluster, &["a"]);
    client.give(&set([cluster("a", 1), cluster("b", 2)]));
    assert_eq!(client.saw(), ["CDS +a +b"]);
    client.give(&set([cluster("a", 2), cluster("b", 2)]));
    assert_eq!(client.saw(), ["CDS +a"]);
    assert_eq!(client.open[0].resources, [cluster("a", 2)]);
}

/// R11: of what the client is subscribed to and is sent.
#[test]
fn response_version_covers_all_subscribed_resources() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    let of_both = |a, b| Version::of_all(&[endpoints("a", a), endpoints("b", b)]);
    assert_eq!(client.versions[&Endpoint], of_both(1, 1));
    client.give(&set([endpoints("a", 2), endpoints("b", 1)]));
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS +a"]);
    assert_eq!(client.versions[&Endpoint], of_both(2, 1), "also of what this push did not bring");
    client.give(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.take(Endpoint);
    assert_eq!(client.versions[&Endpoint], of_both(1, 1));
}
