//! Subscriptions of a client that sends all its names each time.

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener};
use ironmesh_xds_wire::Version;

use super::client::Client;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener, set};

/// R25, R26, R38: an added name is sent, even if it was sent before.
#[test]
fn request_names_replace_the_subscription() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.request_names(Endpoint, &["b"]);
    assert!(client.take_pushes().is_empty(), "what is dropped is not answered");
    assert!(!client.stream.acked(Endpoint).contains_key("a"));
    client.publish(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.ack(Endpoint);
    assert_eq!(client.take_pushes(), ["EDS +b"]);
    client.request_names(Endpoint, &["b", "a", "a"]);
    assert_eq!(client.take_pushes(), ["EDS +a"]);
    client.ack(Endpoint);
    client.request_names(Endpoint, &["b"]);
    client.request_names(Endpoint, &["a", "b"]);
    assert_eq!(client.take_pushes(), ["EDS +a"]);
}

/// R26, R41, R61: the complete state, restricted to the subscription.
#[test]
fn named_clusters_are_sent_as_their_complete_state() {
    let mut client = Client::new();
    client.publish(&set([cluster("a", 1), cluster("b", 1), cluster("c", 1)]));
    client.request_names(Cluster, &["a"]);
    client.ack(Cluster);
    client.request_names(Cluster, &["a", "b"]);
    assert_eq!(client.open[0].resources, [cluster("a", 1), cluster("b", 1)]);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +a", "CDS +b"]);
    client.request_names(Cluster, &["b"]);
    client.publish(&set([cluster("a", 2), cluster("b", 2), cluster("c", 2)]));
    assert_eq!(client.take_pushes(), ["CDS +b"]);
    assert_eq!(client.open[0].resources, [cluster("b", 2)]);
    client.ack(Cluster);
    client.publish(&set([cluster("a", 3)]));
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.take_pushes(), ["CDS -b"]);
}

/// R31, R33: a repeated subscription requests nothing.
#[test]
fn repeated_wildcard_and_names_get_no_response() {
    let all = set([cluster("a", 1), cluster("b", 1), listener("l", 1), listener("m", 1)]);
    for (of, seen) in [(Cluster, "CDS +a +b"), (Listener, "LDS +l +m")] {
        for names in [&[][..], &["*"], &["*", "x"]] {
            let mut client = Client::new();
            client.publish(&all);
            client.request_names(of, names);
            client.ack(of);
            client.request_names(of, names);
            assert_eq!(client.take_pushes(), [seen], "{names:?}");
        }
    }
}

/// R32: even if the client subscribed to all before it named one.
#[test]
fn empty_request_is_wildcard_only_until_a_name_is_sent() {
    let both = |content| set([cluster("a", content), cluster("b", content)]);
    let mut client = Client::new();
    client.publish(&both(1));
    client.request_names(Cluster, &[]);
    client.ack(Cluster);
    client.request_names(Cluster, &["a"]);
    assert_eq!(client.open[0].resources, [cluster("a", 1)]);
    client.ack(Cluster);
    client.request_names(Cluster, &[]);
    client.publish(&both(2));
    assert_eq!(client.take_pushes(), ["CDS +a +b", "CDS"], "it wants none");
    client.request_names(Cluster, &["*"]);
    assert_eq!(client.take_pushes(), ["CDS +a +b"]);
}

/// R33: a star among names, then without it.
#[test]
fn omitted_star_ends_the_wildcard_and_keeps_names() {
    let mut client = Client::new();
    client.publish(&set([cluster("a", 1), cluster("b", 1)]));
    client.request_names(Cluster, &["*", "a"]);
    client.ack(Cluster);
    client.request_names(Cluster, &["a"]);
    client.publish(&set([cluster("a", 1), cluster("b", 2)]));
    assert_eq!(client.take_pushes(), ["CDS +a +b"]);
    client.publish(&set([cluster("a", 2), cluster("b", 2)]));
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    assert_eq!(client.open[0].resources, [cluster("a", 2)]);
}

/// R11: the version covers what the client is subscribed to and is sent.
#[test]
fn response_version_covers_all_subscribed_resources() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    let of_both = |a, b| Version::of_all(&[endpoints("a", a), endpoints("b", b)]);
    assert_eq!(client.versions[&Endpoint], of_both(1, 1));
    client.publish(&set([endpoints("a", 2), endpoints("b", 1)]));
    client.ack(Endpoint);
    assert_eq!(client.take_pushes(), ["EDS +a"]);
    assert_eq!(client.versions[&Endpoint], of_both(2, 1), "also of what this push did not bring");
    client.publish(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.ack(Endpoint);
    assert_eq!(client.versions[&Endpoint], of_both(1, 1));
}
