//! Limits (invariant 10) on responses, and on what only a delta client can make the server store.

use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Secret};
use ironmesh_xds_wire::{DeltaRequest, ResourceSet};

use super::client::{Client, subscribe};
use crate::scenarios::client::ENVOYS_ORDER;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, large_cluster, listener, secret, set};

/// R43.
#[test]
fn large_response_is_split_and_continued_after_ack() {
    let mut all = set([listener("l", 1)]);
    for name in ["a", "b", "c", "d", "e"] {
        all.insert(large_cluster(name, 1, 100 * 1024));
        all.insert(endpoints(name, 1));
    }
    let mut client = Client::new();
    client.publish(&all);
    client.subscribe_to(&all);
    assert_eq!(client.take_pushes(), ["CDS +a +b +c", "EDS +a +b +c", "SDS"]);
    client.ack(Endpoint);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +d +e", "EDS +d +e"]);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["RDS"]);
    client.ack(Secret);
    assert_eq!(client.take_pushes(), ["LDS +l"]);
}

/// R7.
#[test]
fn unknown_type_is_answered_once_and_stream_stays_open() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    let unknown = |names: &[&str]| DeltaRequest {
        type_url: "type.googleapis.com/envoy.config.route.v3.VirtualHost".to_owned(),
        ..subscribe(Cluster, names)
    };
    client.request(&unknown(&["v"]));
    client.request(&DeltaRequest { nonce: "9".to_owned(), ..unknown(&[]) });
    assert_eq!(client.take_pushes(), ["unknown -v"]);
    client.request(&unknown(&["w"]));
    client.publish(&set([cluster("a", 2)]));
    assert_eq!(client.take_pushes(), ["unknown -w", "CDS +a"]);
}

/// R7.
#[test]
fn unknown_type_without_names_gets_an_empty_response() {
    let mut client = Client::settled(&ResourceSet::default());
    client.request(&DeltaRequest { type_url: "x".to_owned(), ..DeltaRequest::default() });
    assert_eq!(client.take_pushes(), ["unknown"]);
}

/// A30.
#[test]
fn stream_with_too_many_initial_versions_is_closed() {
    let mut client = Client::new();
    let version = |n: usize| (format!("{n}{}", "x".repeat(1 << 20)), String::new());
    let initial_versions = Arc::new((0..15).map(version).collect());
    client.request(&DeltaRequest { initial_versions, ..subscribe(Cluster, &[]) });
    assert!(client.take_pushes().is_empty());
    let initial_versions = Arc::new((0..16).map(version).collect());
    client.request(&DeltaRequest { initial_versions, ..subscribe(Listener, &[]) });
    assert_eq!(client.take_pushes(), ["closed: the client reports too many initial versions"]);
}

/// A30: what the client reports before its first set is kept until then.
#[test]
fn requests_before_the_first_set_are_limited_together() {
    let mut client = Client::new();
    let version = |n: usize| (format!("{n}{}", "x".repeat(1 << 20)), String::new());
    for of in [Cluster, Listener] {
        assert!(client.take_pushes().is_empty());
        let initial_versions = Arc::new((0..9).map(version).collect());
        client.request(&DeltaRequest { initial_versions, ..subscribe(of, &[]) });
    }
    assert_eq!(client.take_pushes(), ["closed: the client subscribes to too many names"]);

    // Versions count as their names do, and only those of the first request of a type are kept.
    let mut client = Client::new();
    let large = || DeltaRequest {
        initial_versions: Arc::new([("a", "1".repeat(9 << 20))].into()),
        ..subscribe(Cluster, &[])
    };
    for _ in 0..9 {
        client.request(&large());
        assert!(client.take_pushes().is_empty());
    }
    client.request(&DeltaRequest { type_url: Listener.url().to_owned(), ..large() });
    assert_eq!(client.take_pushes(), ["closed: the client subscribes to too many names"]);
}

/// A26: also for a response that consists of names only.
#[test]
fn large_removal_and_missing_name_responses_are_split() {
    let name = |n: usize| format!("{n}{}", "x".repeat(100 * 1024));
    let names: Vec<_> = (0..5).map(name).collect();
    let mut client = Client::settled(&ResourceSet::default());
    client.subscribe(Endpoint, &names.iter().map(String::as_str).collect::<Vec<_>>());
    client.ack_all();
    let removed = |client: &Client| {
        let pushes = client.log.iter().filter(|push| !push.removed.is_empty());
        pushes.map(|push| push.removed.len()).collect::<Vec<_>>()
    };
    assert_eq!(removed(&client), [3, 2]);

    let mut client = Client::settled(&ResourceSet::default());
    client.publish(&set([0, 1, 2, 3, 4].map(|n| cluster(&name(n), 1))));
    client.ack_all();
    client.publish(&ResourceSet::default());
    client.ack_all();
    assert_eq!(removed(&client), [3, 2]);
}

/// A26: names of unsupported types are answered and counted like others.
#[test]
fn unknown_type_names_are_split_and_limited() {
    let mut client = Client::settled(&ResourceSet::default());
    let name = |n: usize| format!("{n}{}", "x".repeat(100 * 1024));
    let names: Vec<_> = (0..5).map(name).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let request = DeltaRequest { type_url: "unsupported".to_owned(), ..subscribe(Cluster, &names) };
    client.request(&request);
    let names = client.take_pushes();
    assert_eq!(names.iter().map(|line| line.matches(" -").count()).collect::<Vec<_>>(), [3, 2]);
    // These were 500 KiB, of 16 MiB.
    for _ in 0..31 {
        client.request(&request);
        assert_eq!(client.take_pushes().len(), 2);
    }
    client.request(&request);
    assert_eq!(client.take_pushes(), ["closed: the client subscribes to too many names"]);
}

/// What a stream knows of its client equals the published set, and shares its structure.
#[test]
fn settled_stream_holds_no_state_of_its_own() {
    let all = |content| {
        let mut all = set([listener("l", 1), secret("s", 1)]);
        for number in 0..200 {
            all.insert(cluster(&number.to_string(), 1));
            all.insert(endpoints(&number.to_string(), content));
        }
        all
    };
    let mut client = Client::settled(&all(1));
    client.publish(&all(1));
    assert_eq!(client.stream.held(), 0, "after its beginning");
    client.publish(&all(2));
    assert!(client.stream.held() > 0, "a push is under way");
    client.ack_all();
    assert_eq!(client.stream.held(), 0, "after a change");
    client.reconnect();
    client.publish(&all(2));
    for of in ENVOYS_ORDER {
        client.resume(of);
    }
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.stream.held(), 0, "on the next stream");
    assert_eq!(client.take_pushes(), ["RDS"], "an empty first response");
}
