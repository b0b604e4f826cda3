//! Limits (invariant 10) on what a client can make the server store.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};

use super::client::Client;
use super::dialect::Dialect;
use crate::test_resources::{cluster, set};

in_both_variants! {
    unknown_resource_type_does_not_end_the_stream,
    stream_with_too_many_unknown_types_is_closed,
    stream_with_oversized_type_url_is_closed,
    stream_with_too_many_subscribed_names_is_closed,
    name_limit_counts_all_types_together,
}

/// Requests a type by its URL.
fn request_type<V: Dialect>(client: &mut Client<V>, type_url: &str) {
    let mut request = V::Request::from(V::Message::default());
    type_url.clone_into(V::type_url(&mut request));
    client.request(&request);
}

/// R7.
fn unknown_resource_type_does_not_end_the_stream<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1)]));
    request_type(&mut client, "type.googleapis.com/envoy.config.route.v3.VirtualHost");
    assert_eq!(client.take_pushes(), V::either(&["unknown"][..], &[]));
    client.publish(&set([cluster("a", 2)]));
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +a"]);
}

/// A25.
fn stream_with_too_many_unknown_types_is_closed<V: Dialect>() {
    let mut client = Client::<V>::settled(&ResourceSet::default());
    for n in 0..32 {
        request_type(&mut client, &n.to_string());
        assert_eq!(client.take_pushes(), V::either(&["unknown"][..], &[]), "{n}");
    }
    request_type(&mut client, "32");
    assert_eq!(
        client.take_pushes(),
        ["closed: the client requests too many unknown resource types"]
    );
}

/// A25.
fn stream_with_oversized_type_url_is_closed<V: Dialect>() {
    let mut client = Client::<V>::settled(&ResourceSet::default());
    request_type(&mut client, &"x".repeat(1000));
    assert_eq!(
        client.take_pushes(),
        ["closed: the client requests a resource type whose URL is too long"]
    );
}

/// A26.
fn stream_with_too_many_subscribed_names_is_closed<V: Dialect>() {
    let mut client = Client::<V>::settled(&ResourceSet::default());
    let name = |n: usize| format!("{n}{}", "x".repeat(1 << 20));
    for n in 0..15 {
        client.subscribe(Listener, &[&name(n)]);
        client.subscribe(Listener, &[&name(0)]);
        client.unsubscribe(Listener, &[&name(n)]);
        client.subscribe(Listener, &[&name(n)]);
    }
    assert!(
        !client.take_pushes().iter().any(|line| line.starts_with("closed")),
        "the same name is one"
    );
    client.subscribe(Listener, &[&name(15)]);
    assert_eq!(client.take_pushes(), ["closed: the client subscribes to too many names"]);
}

/// A26.
fn name_limit_counts_all_types_together<V: Dialect>() {
    let mut client = Client::<V>::settled(&ResourceSet::default());
    for (of, tail) in [(Listener, 6), (Endpoint, 6)] {
        client.subscribe(of, &[&"x".repeat(tail << 20)]);
        client.ack_all();
    }
    client.take_pushes();
    client.subscribe(Route, &[&"x".repeat(3 << 20)]);
    client.ack_all();
    assert!(!client.take_pushes().iter().any(|line| line.starts_with("closed")));
    client.subscribe(Secret, &[&"x".repeat(2 << 20)]);
    assert_eq!(client.take_pushes(), ["closed: the client subscribes to too many names"]);
}
