//! Subscriptions of a client that sends changes of them.

use ironmesh_xds_wire::DeltaRequest;
use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Secret};

use super::client::{Client, answer, subscribe};
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener_of, secret, set};

/// R27.
#[test]
fn repeated_subscribe_gets_a_response_each_time() {
    let mut client = Client::settled(&set([cluster("a", 1), endpoints("a", 1)]));
    client.subscribe(Endpoint, &["a"]);
    assert_eq!(client.take_pushes(), ["EDS +a"]);
    client.subscribe(Cluster, &["a"]);
    assert_eq!(
        client.take_pushes(),
        ["CDS +a"],
        "its endpoints wait: the earlier ones are not ACKed yet"
    );
    client.ack(Endpoint);
    assert_eq!(client.take_pushes(), ["EDS +a"]);
}

/// R16: the client would wait for them.
#[test]
fn endpoints_gone_before_they_were_sent_are_reported_missing() {
    let mut client = Client::new();
    let a = || [cluster("a", 1), endpoints("a", 1)];
    client.publish(&set(a()));
    client.subscribe(Cluster, &["*"]);
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    // The cluster waits for the ACK of the first, and its endpoints wait for the cluster.
    client.publish(&set([cluster("a", 1), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]));
    client.subscribe(Endpoint, &["a", "b"]);
    assert_eq!(client.take_pushes(), ["EDS +a"]);
    client.ack(Endpoint);
    client.publish(&set(a()));
    assert_eq!(client.take_pushes(), ["EDS -b"]);
}

/// R28.
#[test]
fn name_unsubscribed_and_subscribed_at_once_gets_a_response() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.request(&DeltaRequest { unsubscribe: ["a", "b"].into(), ..subscribe(Endpoint, &["a"]) });
    assert_eq!(client.take_pushes(), ["EDS +a"]);
    client.ack(Endpoint);
    client.publish(&set([endpoints("a", 2), endpoints("b", 2)]));
    assert_eq!(client.take_pushes(), ["EDS +a"], "only b is dropped");
}

/// R30, R34.
#[test]
fn name_unsubscribed_under_wildcard_gets_a_response() {
    let mut client = Client::settled(&set([cluster("a", 1), cluster("b", 1)]));
    client.unsubscribe(Cluster, &["b"]);
    assert!(client.take_pushes().is_empty(), "it was never wanted by name, and the wildcard stays");
    client.subscribe(Cluster, &["a", "missing"]);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +a -missing"]);
    client.unsubscribe(Cluster, &["a", "missing"]);
    assert_eq!(client.take_pushes(), ["CDS +a -missing"]);
}

/// R28.
#[test]
fn wildcard_unsubscribed_and_subscribed_at_once_is_answered() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    let unsubscribe = ["*"].into();
    client.request(&DeltaRequest { unsubscribe, ..subscribe(Cluster, &["*"]) });
    assert_eq!(client.take_pushes(), ["CDS +a"]);
}

/// R28, R47: the push and the request have crossed.
#[test]
fn resource_gone_during_wildcard_resubscription_is_removed() {
    let mut client = Client::new();
    client.publish(&set([cluster("a", 1)]));
    client.subscribe(Cluster, &["*"]);
    client.publish(&ResourceSet::default());
    let unsubscribe = ["*"].into();
    client.request(&DeltaRequest { unsubscribe, ..subscribe(Cluster, &["*"]) });
    client.pass(REMOVAL_GRACE);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +a", "CDS -a"]);
}

/// The same, where the resource goes only after the ACK, and could not be sent again before.
#[test]
fn resource_gone_after_wildcard_resubscription_is_removed() {
    let mut client = Client::new();
    client.publish(&set([cluster("a", 1), listener_of("d", 1, &["a"])]));
    client.subscribe(Listener, &[]);
    client.subscribe(Cluster, &[]);
    assert_eq!(client.take_pushes(), ["LDS +d", "CDS +a"]);
    client.request(&DeltaRequest { unsubscribe: ["*"].into(), ..subscribe(Listener, &["*"]) });
    // The cluster that it names is not ACKed yet, so the listener is not sent.
    client.ack(Listener);
    client.publish(&set([cluster("a", 1)]));
    client.ack(Cluster);
    client.pass(REMOVAL_GRACE);
    client.ack_all();
    assert_eq!(client.take_pushes(), ["LDS -d"]);
    client.publish(&ResourceSet::default());
    client.ack_all();
    assert!(client.has.is_empty(), "{:?}", client.has);
}

/// R18.
#[test]
fn one_request_may_ack_subscribe_and_unsubscribe() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.publish(&set([secret("s", 2), secret("t", 1), secret("u", 1)]));
    let nonce = client.open.remove(0).nonce;
    client.request(&DeltaRequest {
        subscribe: ["u"].into(),
        unsubscribe: ["t"].into(),
        ..answer(Secret, nonce)
    });
    client.publish(&set([secret("s", 2), secret("t", 2), secret("u", 1)]));
    assert_eq!(client.take_pushes(), ["SDS +s", "SDS +u"]);
}

/// A subscription to all names of the set is stored at once, and one that only has as many is not.
#[test]
fn names_are_subscribed_exactly_as_requested() {
    for (names, expected) in [
        (vec!["b", "a"], vec!["EDS +a +b"]),
        (vec!["a", "a"], vec!["EDS +a"]),
        (vec!["a", "c"], vec!["EDS +a -c"]),
    ] {
        let mut client = Client::new();
        client.publish(&set([endpoints("a", 1), endpoints("b", 1)]));
        client.subscribe(Endpoint, &names);
        assert_eq!(client.take_pushes(), expected);
        client.ack(Endpoint);
        client.publish(&set([endpoints("a", 2), endpoints("b", 2)]));
        let is_subscribed = |name: &&str| names.contains(name);
        let changed: Vec<_> = ["a", "b"].into_iter().filter(is_subscribed).collect();
        assert_eq!(client.take_pushes(), [format!("EDS +{}", changed.join(" +"))]);
    }
}
