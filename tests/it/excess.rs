//! Well-formed requests that ask for too much, or that make no sense.

use std::collections::HashMap;

use ironmesh_xds_server::{CloseReason, Limits};
use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Secret};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest,
};
use ironmesh_xds_wire::pb::google::rpc;
use ironmesh_xds_wire::{ErrorDetail, Resource, ResourceSet};
use tonic::Code;

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, connect, names};
use crate::server::{Server, cluster};
use crate::sotw::{self, SotwStream};

/// A delta request for names.
fn delta_request(of: ResourceType, names: Vec<String>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: of.url().to_owned(),
        resource_names_subscribe: names,
        ..DeltaDiscoveryRequest::default()
    }
}

fn sotw_request(of: ResourceType, names: Vec<String>) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: of.url().to_owned(),
        resource_names: names,
        ..DiscoveryRequest::default()
    }
}

/// Reads pushes until all of `count` names are reported as removed. Returns their number.
async fn read_removals(stream: &mut Stream, of: ResourceType, count: usize) -> usize {
    let mut gone = 0;
    while gone < count {
        let push: DeltaDiscoveryResponse = stream.push().await;
        stream.answer(&push, None).await;
        assert_eq!((&*push.type_url, push.resources.len()), (of.url(), 0));
        gone += push.removed_resources.len();
    }
    gone
}

/// A25 (bystander).
#[tokio::test]
async fn too_many_unknown_types_end_the_stream() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut delta = Stream::open(&server, &client).await;
    let mut sotw = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    for n in 0..33 {
        let type_url = format!("type.googleapis.com/unheard.of.v{n}");
        let request = DeltaDiscoveryRequest { type_url, ..DeltaDiscoveryRequest::default() };
        let type_url = request.type_url.clone();
        delta.send(request).await;
        let request = DiscoveryRequest { type_url, ..DiscoveryRequest::default() };
        sotw.requests.send(request).await.unwrap();
    }
    for end in [delta.end().await, sotw.next().await.expect_err("no answer")] {
        assert_eq!(end.code(), Code::ResourceExhausted);
        assert!(end.message().contains("too many unknown resource types"), "{end}");
    }
    bystander.assert_served(&server).await;
}

/// A26 (bystander): within the limit the server answers, in responses of bounded size.
#[tokio::test]
async fn hundred_thousand_names_are_answered_and_more_end_the_stream() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    let push = stream.push().await;
    stream.answer(&push, None).await;
    let count = 100_000;
    stream.send(delta_request(Endpoint, (0..count).map(|n| n.to_string()).collect())).await;
    bystander.assert_served(&server).await;
    let push = stream.push().await;
    let reported = push.removed_resources.len();
    assert!((1000..count).contains(&reported), "{reported} at once");
    stream.answer(&push, None).await;
    assert_eq!(read_removals(&mut stream, Endpoint, count - reported).await, count - reported);

    let names = |from: usize| {
        (from..from + 100).map(|n| format!("{n}{}", "x".repeat(10_240))).collect::<Vec<_>>()
    };
    let mut sotw = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    for round in 0..18 {
        stream.try_send(delta_request(Listener, names(round * 100))).await;
    }
    let end = stream.end().await;
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("too many names"), "{end}");
    // All names at once make a request of 20 MB, which the server does not read.
    let all = sotw_request(Listener, (0..20).flat_map(|round| names(round * 100)).collect());
    sotw.requests.send(all).await.unwrap();
    assert_eq!(sotw.end().await.code(), Code::ResourceExhausted);
    // Many short names fit that limit, but not the limit on names.
    let all = sotw_request(Listener, (0..400_000).map(|n| format!("{n:x}")).collect());
    let mut sotw = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    sotw.requests.send(all).await.unwrap();
    let end = sotw.end().await;
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("too many names"), "{end}");
    bystander.assert_served(&server).await;
}

/// Reads pushes until one of listeners: from then on the server holds its names.
async fn wait_for_listeners(stream: &mut Stream) {
    loop {
        let push = stream.push().await;
        stream.answer(&push, None).await;
        if push.type_url == Listener.url() {
            return;
        }
    }
}

/// A26: the name limit counts all streams of a client.
#[tokio::test]
async fn name_limit_counts_all_streams_of_a_client() {
    let limits = Limits { names_per_client: 1 << 20, ..Limits::default() };
    let server = Server::start_with(limits).await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    let mut bystander = Bystander::open(&server).await;
    let many = || delta_request(Listener, vec!["x".repeat(400 << 10)]);
    let mut first = Stream::open(&server, &client).await;
    let mut second = Stream::begin(connect(&server, &client).await, clusters(&client)).await;
    for stream in [&mut first, &mut second] {
        stream.send(many()).await;
    }
    server.publish(&client, cluster("a", "1").1).await;
    for stream in [&mut first, &mut second] {
        wait_for_listeners(stream).await;
    }
    let asks_for_all =
        DiscoveryRequest { resource_names: vec!["x".repeat(400 << 10)], ..sotw::clusters(&client) };
    let end = SotwStream::begin(&server, &client, asks_for_all).await.end().await;
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("too many names on all its streams"), "{end}");
    assert_eq!(server.hub.counters().streams_closed(CloseReason::TooManyNames), 1);
    // The names of a stream are released with it, and other clients have their own limit.
    drop(second);
    server.status_where(&client, "one stream", |status| status.streams == 1).await;
    for client in [&client, &other] {
        let mut stream = Stream::begin(connect(&server, client).await, clusters(client)).await;
        stream.send(many()).await;
        server.publish(client, cluster("a", "2").1).await;
        wait_for_listeners(&mut stream).await;
    }
    bystander.assert_served(&server).await;
}

/// A27 (bystander).
#[tokio::test]
async fn duplicate_names_in_a_request_count_once() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let million = || vec!["a".to_owned(); 1_000_000];
    let (_, set) = cluster("a", "1");

    let first = DeltaDiscoveryRequest { resource_names_subscribe: million(), ..clusters(&client) };
    let mut stream = Stream::begin(connect(&server, &client).await, first).await;
    bystander.assert_served(&server).await;
    server.publish(&client, set.clone()).await;
    let push = stream.push().await;
    assert_eq!((names(&push), push.removed_resources.len()), (vec!["a"], 0));

    let client = server.authority.proxy();
    let first = DiscoveryRequest { resource_names: million(), ..sotw::clusters(&client) };
    let mut stream = SotwStream::begin(&server, &client, first).await;
    bystander.assert_served(&server).await;
    server.publish(&client, set).await;
    assert_eq!(stream.push().await.resources.len(), 1);
}

/// A28 (bystander): for types without a wildcard, a star is a plain name.
#[tokio::test]
async fn unusual_resource_names_are_answered_like_others() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let odd = ["", "*", "a\nb", "\u{1b}[2J", "\0", "\u{202e}"].map(str::to_owned);
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    let push = stream.push().await;
    stream.answer(&push, None).await;
    for of in [Endpoint, Secret] {
        stream.send(delta_request(of, odd.to_vec())).await;
        assert_eq!(read_removals(&mut stream, of, odd.len()).await, odd.len());
    }
    drop(stream);

    let mut stream = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    server.publish(&client, cluster("a", "2").1).await;
    let push = stream.push().await;
    stream.answer(&push, None).await;
    for of in [Endpoint, Secret] {
        stream.requests.send(sotw_request(of, odd.to_vec())).await.unwrap();
        let push = stream.push().await;
        assert_eq!((&*push.type_url, push.resources.len()), (of.url(), 0));
    }
    bystander.assert_served(&server).await;
}

/// A30 (bystander).
#[tokio::test]
async fn initial_versions_of_a_client_are_limited() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let first = |count: usize| DeltaDiscoveryRequest {
        initial_resource_versions: (0..count)
            .map(|n| (format!("{n:x}"), String::new()))
            .collect::<HashMap<_, _>>(),
        ..clusters(&client)
    };
    let mut stream = Stream::begin(connect(&server, &client).await, first(300_000)).await;
    let end = stream.end().await;
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("reports too many initial versions"), "{end}");
    bystander.assert_served(&server).await;

    // Within the limit, the server reports each as removed, and nothing else.
    let count = 100_000;
    let mut stream = Stream::begin(connect(&server, &client).await, first(count)).await;
    server.publish(&client, cluster("there", "1").1).await;
    let push = stream.push().await;
    assert_eq!(names(&push), ["there"]);
    stream.answer(&push, None).await;
    assert_eq!(read_removals(&mut stream, Cluster, count).await, count);
    bystander.assert_served(&server).await;
}

/// A31 (bystander).
#[tokio::test]
async fn long_nack_message_is_truncated() {
    let server = Server::start().await;
    let mut bystander = Bystander::open(&server).await;
    let long = "no\n".repeat(1 << 20);

    let client = server.authority.proxy();
    let mut delta = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    let push = delta.push().await;
    delta.answer(&push, Some(&long)).await;
    let status = server.status_where(&client, "a NACK", |s| !s.nacks.is_empty()).await;
    let words = &status.nacks[&(Cluster, "a".into())].message;
    assert_eq!(words.len(), ErrorDetail::MAX_LENGTH);
    assert!(!words.contains('\n'));

    let client = server.authority.proxy();
    let mut sotw = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    server.publish(&client, cluster("a", "1").1).await;
    let push = sotw.push().await;
    sotw.answer(&push, Some(&long)).await;
    let status = server.status_where(&client, "a NACK", |s| !s.nacks.is_empty()).await;
    assert_eq!(status.nacks[&(Cluster, "a".into())].message.len(), ErrorDetail::MAX_LENGTH);

    // The server does not read one of 10 MB.
    let message = "no".repeat(5 << 20);
    let error = Some(rpc::Status { code: 13, message, details: vec![] });
    delta
        .send(DeltaDiscoveryRequest {
            error_detail: error.clone(),
            ..delta_request(Cluster, vec![])
        })
        .await;
    let too_long = DiscoveryRequest { error_detail: error, ..sotw_request(Cluster, vec![]) };
    sotw.requests.send(too_long).await.unwrap();
    for end in [delta.end().await, sotw.end().await] {
        assert_eq!(end.code(), Code::ResourceExhausted, "{end}");
    }
    bystander.assert_served(&server).await;
}

/// A32 (bystander): their names count in delta, and nothing of them counts in the other variant.
#[tokio::test]
async fn acks_with_unknown_nonces_change_nothing() {
    let server = Server::start().await;
    let mut bystander = Bystander::open(&server).await;
    let (a, set) = cluster("a", "1");

    let client = server.authority.proxy();
    let mut delta = Stream::open(&server, &client).await;
    server.publish(&client, set.clone()).await;
    let push = delta.push().await;
    // A nonce that never existed, one of another type, and one from before the first response.
    for (of, nonce) in [(Cluster, "no-such-nonce"), (Secret, &*push.nonce), (Cluster, "99")] {
        let response_nonce = nonce.to_owned();
        delta
            .send(DeltaDiscoveryRequest {
                response_nonce,
                ..delta_request(of, vec!["b".to_owned()])
            })
            .await;
    }
    // The secret is pushed before the clusters, which wait for its ACK.
    let reported = delta.push().await;
    assert_eq!(
        (&*reported.type_url, &reported.removed_resources[..]),
        (Secret.url(), &["b".to_owned()][..])
    );
    let has = |s: &ironmesh_xds_server::ClientStatus| s.has(Cluster, "a", a.version());
    assert!(!has(&server.hub.status_of(&client.name()).unwrap()), "nothing was ACKed");
    delta.answer(&push, None).await;
    assert_eq!(delta.push().await.removed_resources, ["b"]);
    server.status_where(&client, "it has a", has).await;

    let client = server.authority.proxy();
    let mut sotw = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    server.publish(&client, set).await;
    let push = sotw.push().await;
    for (of, nonce) in [(Cluster, "no-such-nonce"), (Secret, &*push.nonce), (Cluster, "99")] {
        let response_nonce = nonce.to_owned();
        let request = DiscoveryRequest { response_nonce, ..sotw_request(of, vec!["b".to_owned()]) };
        sotw.requests.send(request).await.unwrap();
    }
    assert_eq!(sotw.push().await.type_url, Secret.url(), "the first request of its type");
    assert!(!has(&server.hub.status_of(&client.name()).unwrap()), "nothing was ACKed");
    bystander.assert_served(&server).await;
}

/// A33 (bystander).
#[tokio::test]
async fn duplicate_acks_and_nacks_cause_no_push() {
    let server = Server::start().await;
    let mut bystander = Bystander::open(&server).await;
    let next = |content| cluster("a", content).1;

    let client = server.authority.proxy();
    let mut delta = Stream::open(&server, &client).await;
    // An ACK before any response.
    let nonce = "1".to_owned();
    delta
        .send(DeltaDiscoveryRequest { response_nonce: nonce, ..delta_request(Cluster, vec![]) })
        .await;
    server.publish(&client, next("1")).await;
    let push = delta.push().await;
    for error in [None, None, Some("after an ACK")] {
        delta.answer(&push, error).await;
    }
    server.publish(&client, next("2")).await;
    let push = delta.push().await;
    assert_eq!(names(&push), ["a"], "and nothing before it");
    let status = server.hub.status_of(&client.name()).unwrap();
    assert!(status.nacks.is_empty(), "{status:?}");

    let client = server.authority.proxy();
    let mut sotw = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    let nonce = "7".to_owned();
    let early = DiscoveryRequest { response_nonce: nonce, ..sotw_request(Cluster, vec![]) };
    sotw.requests.send(early).await.unwrap();
    server.publish(&client, next("1")).await;
    let push = sotw.push().await;
    for error in [None, None, Some("after an ACK")] {
        sotw.answer(&push, error).await;
    }
    let (last, set) = cluster("a", "2");
    server.publish(&client, set).await;
    let push = sotw.push().await;
    let version = ironmesh_xds_wire::Version::of_all(std::slice::from_ref(&last));
    assert_eq!(push.version_info, version.to_string(), "and nothing before it");
    let status = server.hub.status_of(&client.name()).unwrap();
    assert!(status.nacks.is_empty(), "{status:?}");
    bystander.assert_served(&server).await;
}

/// A33: a repeated ACK looks like a client that warms again and requests the resource (R15).
#[tokio::test]
async fn sotw_duplicate_acks_cause_no_endless_responses() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut set = ResourceSet::default();
    let cluster_name = "a".to_owned();
    let endpoints = ClusterLoadAssignment { cluster_name, ..ClusterLoadAssignment::default() };
    set.insert(Resource::new(&endpoints).into());
    let names = || vec!["a".to_owned()];
    let first = DiscoveryRequest { type_url: Endpoint.url().to_owned(), ..sotw::clusters(&client) };
    let first = DiscoveryRequest { resource_names: names(), ..first };
    let mut stream = SotwStream::begin(&server, &client, first).await;
    server.publish(&client, set).await;
    for _ in 0..2 {
        let push = stream.push().await;
        assert_eq!((&*push.type_url, push.resources.len()), (Endpoint.url(), 1));
        let version_info = push.version_info.clone();
        let response_nonce = push.nonce.clone();
        let ack =
            DiscoveryRequest { version_info, response_nonce, ..sotw_request(Endpoint, names()) };
        for _ in 0..2 {
            stream.requests.send(ack.clone()).await.unwrap();
        }
    }
    // The next push answers the next request.
    stream.requests.send(sotw_request(Secret, vec![])).await.unwrap();
    assert_eq!(stream.push().await.type_url, Secret.url());
    bystander.assert_served(&server).await;
}
