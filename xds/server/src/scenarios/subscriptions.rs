//! Subscriptions, and the responses to them.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};

use super::client::Client;
use super::dialect::Dialect;
use crate::test_resources::{cluster, endpoints, listener, resource, set};

in_both_variants! {
    first_request_of_each_type_gets_a_response_even_if_empty,
    first_requests_are_answered_once_a_set_is_published,
    missing_resource_is_pushed_when_it_appears,
    unsubscribe_stops_updates_and_gets_no_response,
    unsubscribe_during_a_push_excludes_name_from_ack_and_nack,
    resubscribed_name_is_sent_again,
    first_request_empty_or_star_subscribes_to_wildcard,
    wildcard_and_name_subscribe_to_their_union,
    secrets_endpoints_and_routes_have_no_wildcard,
    later_empty_request_is_not_a_wildcard,
    wildcard_after_names_sends_only_the_remaining_resources,
    unsubscribed_wildcard_keeps_explicit_names,
    name_unsubscribed_with_wildcard_gets_no_response,
    resource_names_are_compared_byte_by_byte,
}

/// Rule 3.
fn first_request_of_each_type_gets_a_response_even_if_empty<V: Dialect>() {
    let mut client = Client::<V>::new();
    client.publish(&ResourceSet::default());
    client.subscribe_to(&ResourceSet::default());
    assert_eq!(
        client.take_pushes(),
        ["CDS", "EDS", "SDS"],
        "listeners wait until the clusters are ACKed"
    );
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["LDS", "RDS"]);
}

/// Rule 3, R24: requests before a set is published.
fn first_requests_are_answered_once_a_set_is_published<V: Dialect>() {
    let mut client = Client::<V>::new();
    let set = set([cluster("a", 1), endpoints("a", 1)]);
    client.subscribe_to(&set);
    assert!(client.take_pushes().is_empty());
    client.publish(&set);
    assert_eq!(client.take_pushes(), ["SDS", "CDS +a", "EDS +a"]);
}

/// R36, R37, R42: delta can express that it is missing.
fn missing_resource_is_pushed_when_it_appears<V: Dialect>() {
    for of in ResourceType::ALL {
        let mut client = Client::<V>::new();
        client.publish(&ResourceSet::default());
        client.subscribe(of, &["a"]);
        let [pushes] = &client.take_pushes()[..] else { panic!("a first request is answered") };
        assert!(pushes.ends_with(V::either("DS -a", "DS")), "{pushes}");
        client.ack(of);
        client.publish(&set([resource(of, "a", 1)]));
        let pushes = client.take_pushes();
        assert!(matches!(&pushes[..], [push] if push.ends_with("DS +a")), "{pushes:?}");

        let mut client = Client::<V>::new();
        client.publish(&set([resource(of, "b", 1)]));
        client.subscribe(of, &["b"]);
        client.ack(of);
        client.take_pushes();
        client.subscribe(of, &["a"]);
        let pushes = client.take_pushes();
        assert_eq!(pushes.len(), V::either(1, 0), "{pushes:?}");
        assert!(pushes.iter().all(|push| push.ends_with("DS -a")), "{pushes:?}");
        client.ack_all();
        client.publish(&set([resource(of, "a", 1), resource(of, "b", 1)]));
        let pushes = client.take_pushes();
        assert!(matches!(&pushes[..], [push] if push.ends_with("DS +a")), "{pushes:?}");
    }
}

/// R25, R29, R38.
fn unsubscribe_stops_updates_and_gets_no_response<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([endpoints("a", 1)]));
    client.unsubscribe(Endpoint, &["a", "never wanted"]);
    assert!(!client.stream.acked(Endpoint).contains_key("a"));
    client.publish(&set([endpoints("a", 2)]));
    client.publish(&ResourceSet::default());
    assert!(client.take_pushes().is_empty());
}

/// R38: even while a push of it is in flight.
fn unsubscribe_during_a_push_excludes_name_from_ack_and_nack<V: Dialect>() {
    for is_nacked in [false, true] {
        let mut client = Client::<V>::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
        client.publish(&set([endpoints("a", 2), endpoints("b", 2)]));
        client.unsubscribe(Endpoint, &["a"]);
        assert_eq!(client.take_pushes(), ["EDS +a +b"]);
        if is_nacked {
            client.nack(Endpoint, "no");
            assert_eq!(client.take_pushes(), ["EDS bisecting: a b (no)", "EDS +b"]);
        } else {
            client.ack(Endpoint);
            assert!(client.take_pushes().is_empty());
        }
        assert!(!client.stream.acked(Endpoint).contains_key("a"));
    }
}

/// R13, R26, R27: even if the client unsubscribed and subscribed again while a push was in flight.
fn resubscribed_name_is_sent_again<V: Dialect>() {
    for of in [Endpoint, Secret, Route] {
        let all = |b| set([resource(of, "a", 1), resource(of, "b", b)]);
        let mut client = Client::<V>::settled(&all(1));
        client.unsubscribe(of, &["a"]);
        client.subscribe(of, &["a"]);
        client.ack(of);
        let [a] = &client.take_pushes()[..] else { panic!("one push") };
        assert!(a.ends_with("DS +a"), "{a}");
        client.publish(&all(2));
        client.unsubscribe(of, &["a"]);
        client.subscribe(of, &["a"]);
        let [b] = &client.take_pushes()[..] else { panic!("one push") };
        assert!(b.ends_with("DS +b"), "{b}");
        client.ack(of);
        assert_eq!(client.take_pushes(), [a.as_str()]);
    }
}

/// R31.
fn first_request_empty_or_star_subscribes_to_wildcard<V: Dialect>() {
    let all = set([cluster("a", 1), cluster("b", 1), listener("l", 1), listener("m", 1)]);
    for (of, seen) in [(Cluster, "CDS +a +b"), (Listener, "LDS +l +m")] {
        for names in [&[][..], &["*"]] {
            let mut client = Client::<V>::new();
            client.publish(&all);
            client.subscribe(of, names);
            client.ack(of);
            client.subscribe(of, names);
            assert_eq!(client.take_pushes(), [seen], "{names:?}");
        }
    }
}

/// R33.
fn wildcard_and_name_subscribe_to_their_union<V: Dialect>() {
    let all = set([cluster("a", 1), cluster("b", 1), listener("l", 1), listener("m", 1)]);
    for (of, delta, sotw) in
        [(Cluster, "CDS +a +b -x", "CDS +a +b"), (Listener, "LDS +l +m -x", "LDS +l +m")]
    {
        let mut client = Client::<V>::new();
        client.publish(&all);
        client.subscribe(of, &["*", "x"]);
        assert_eq!(client.take_pushes(), [V::either(delta, sotw)]);
        client.ack(of);
        client.subscribe(of, &["*"]);
        assert!(client.take_pushes().is_empty());
    }
}

/// R35: above all, never all secrets.
fn secrets_endpoints_and_routes_have_no_wildcard<V: Dialect>() {
    let all = |content| set([Secret, Endpoint, Route].map(|of| resource(of, "a", content)));
    for (of, words) in [(Secret, "SDS"), (Endpoint, "EDS"), (Route, "RDS")] {
        let mut client = Client::<V>::new();
        client.publish(&all(1));
        client.subscribe(of, &[]);
        assert_eq!(client.take_pushes(), [words]);
        client.ack(of);
        client.subscribe(of, &["*"]);
        let delta = [format!("{words} -*")];
        assert_eq!(
            client.take_pushes(),
            V::either(&delta[..], &[]),
            "a name as any other, and not there"
        );
        client.ack_all();
        client.publish(&all(2));
        client.subscribe(of, &[]);
        client.unsubscribe(of, &["*"]);
        client.publish(&all(3));
        assert!(client.take_pushes().is_empty(), "nor when it changes");
    }
}

/// R32.
fn later_empty_request_is_not_a_wildcard<V: Dialect>() {
    let both = |content| set([cluster("a", content), cluster("b", content)]);
    let mut client = Client::<V>::new();
    client.publish(&both(1));
    client.subscribe(Cluster, &["a"]);
    client.ack(Cluster);
    client.subscribe(Cluster, &[]);
    client.unsubscribe(Cluster, &["a"]);
    client.subscribe(Cluster, &[]);
    client.publish(&both(2));
    assert_eq!(client.take_pushes(), ["CDS +a"], "it wants none");
    client.subscribe(Cluster, &["*"]);
    assert_eq!(client.take_pushes(), ["CDS +a +b"]);
}

/// R33: "on demand" first, then all: resources that the client has are not sent again.
fn wildcard_after_names_sends_only_the_remaining_resources<V: Dialect>() {
    let mut client = Client::<V>::new();
    client.publish(&set([cluster("a", 1), cluster("b", 1)]));
    client.subscribe(Cluster, &["a"]);
    client.ack(Cluster);
    client.subscribe(Cluster, &["*"]);
    assert_eq!(client.take_pushes(), ["CDS +a", "CDS +b"]);
}

/// R33.
fn unsubscribed_wildcard_keeps_explicit_names<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1), cluster("b", 1)]));
    client.subscribe(Cluster, &["a"]);
    client.ack(Cluster);
    client.unsubscribe(Cluster, &["*", "*"]);
    client.take_pushes();
    client.publish(&set([cluster("a", 1), cluster("b", 2)]));
    assert!(client.take_pushes().is_empty());
    client.publish(&set([cluster("a", 2), cluster("b", 2), cluster("c", 1)]));
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    client.ack(Cluster);
    client.subscribe(Cluster, &["*"]);
    assert_eq!(
        client.take_pushes(),
        ["CDS +b +c"],
        "the client has forgotten what only the wildcard wanted"
    );
}

/// R30 is about a wildcard that stays.
fn name_unsubscribed_with_wildcard_gets_no_response<V: Dialect>() {
    for order in [["a", "*"], ["*", "a"]] {
        let mut client = Client::<V>::settled(&set([cluster("a", 1)]));
        client.subscribe(Cluster, &["a"]);
        client.ack(Cluster);
        client.take_pushes();
        client.unsubscribe(Cluster, &order);
        assert!(client.take_pushes().is_empty(), "{order:?}");
    }
}

/// R40: even those that look like equivalent names.
fn resource_names_are_compared_byte_by_byte<V: Dialect>() {
    let (name, reordered) = ("xdstp://a/b?x=1&y=2", "xdstp://a/b?y=2&x=1");
    let mut client = Client::<V>::new();
    client.publish(&set([endpoints(name, 1), endpoints("a", 1)]));
    client.subscribe(Endpoint, &["A", "a ", reordered, name]);
    let missing = V::either(format!(" -A -a  -{reordered}"), String::new());
    assert_eq!(client.take_pushes(), [format!("EDS +{name}{missing}")]);
}
