//! From a published set to a client, and from its ACKs and NACKs to the status.

use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::{ResourceSet, ResourceType::Cluster};

use crate::client::{Stream, clusters, connect, names};
use crate::server::{Server, cluster};

#[tokio::test]
async fn published_set_reaches_only_its_client() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    let mut stream = Stream::open(&server, &client).await;
    let mut other_stream = Stream::open(&server, &other).await;
    let (resource, set) = cluster("a", "1");
    server.publish(&client, set).await;
    server.publish(&other, cluster("b", "1").1).await;
    let push = stream.push().await;
    assert_eq!(names(&push), ["a"]);
    assert_eq!(push.type_url, Cluster.url());
    assert_eq!(push.resources[0].version, resource.version().to_string());
    assert_eq!(names(&other_stream.push().await), ["b"]);
}

#[tokio::test]
async fn acked_version_is_recorded() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut stream = Stream::open(&server, &client).await;
    let (resource, set) = cluster("a", "1");
    server.publish(&client, set).await;
    let push = stream.push().await;
    let has =
        |status: &ironmesh_xds_server::ClientStatus| status.has(Cluster, "a", resource.version());
    let before = server.status_where(&client, "it is connected", |s| s.streams == 1).await;
    assert!(!has(&before), "it is sent, and not ACKed");
    stream.answer(&push, None).await;
    server.status_where(&client, "it has the cluster", has).await;
}

// Invariants 4 and 8: the server does not send what the client has from before a restart, so no ACK
// follows.
#[tokio::test]
async fn initial_versions_count_as_acked() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let (resource, set) = cluster("a", "1");
    let initial = [("a".to_owned(), resource.version().to_string())];
    let first =
        DeltaDiscoveryRequest { initial_resource_versions: initial.into(), ..clusters(&client) };
    let _stream = Stream::begin(connect(&server, &client).await, first).await;
    server.publish(&client, set).await;
    let has =
        |status: &ironmesh_xds_server::ClientStatus| status.has(Cluster, "a", resource.version());
    server.status_where(&client, "it has the cluster", has).await;
}

/// Invariant 7.
#[tokio::test]
async fn nack_message_is_kept_until_a_version_is_acked() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let (good, set) = cluster("a", "1");
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, set).await;
    let push = stream.push().await;
    stream.answer(&push, None).await;
    let (bad, mut set) = cluster("a", "bad");
    server.publish(&client, set.clone()).await;
    let push = stream.push().await;
    stream.answer(&push, Some("no such thing")).await;
    let status = server.status_where(&client, "a NACK", |s| !s.nacks.is_empty()).await;
    let nack = &status.nacks[&(Cluster, "a".into())];
    assert_eq!((nack.version, nack.message.as_str()), (bad.version(), "no such thing"));

    // On another stream, where the client reports its versions, the NACK still counts.
    drop(stream);
    server.status_where(&client, "the stream has ended", |s| s.streams == 0).await;
    let initial = [("a".to_owned(), good.version().to_string())];
    let first =
        DeltaDiscoveryRequest { initial_resource_versions: initial.into(), ..clusters(&client) };
    let mut stream = Stream::begin(connect(&server, &client).await, first).await;
    set.insert(cluster("b", "1").0);
    server.publish(&client, set.clone()).await;
    let push = stream.push().await;
    assert_eq!(names(&push), ["b"]);
    stream.answer(&push, None).await;
    let (b, _) = cluster("b", "1");
    let status =
        server.status_where(&client, "it has b", |s| s.has(Cluster, "b", b.version())).await;
    assert!(status.nacks.contains_key(&(Cluster, "a".into())), "the NACK still counts");

    set.insert(cluster("a", "2").0);
    server.publish(&client, set).await;
    let push = stream.push().await;
    stream.answer(&push, None).await;
    server.status_where(&client, "no NACK", |s| s.nacks.is_empty()).await;
}

#[tokio::test]
async fn nack_is_cleared_when_its_resource_is_removed() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "bad").1).await;
    let push = stream.push().await;
    stream.answer(&push, Some("no")).await;
    server.status_where(&client, "a NACK", |s| !s.nacks.is_empty()).await;
    server.publish(&client, ResourceSet::default()).await;
    server.status_where(&client, "no NACK", |s| s.nacks.is_empty()).await;
}

/// R8 (delta).
#[tokio::test]
async fn two_streams_of_one_client_both_get_its_pushes() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut first = Stream::open(&server, &client).await;
    let mut second = Stream::open(&server, &client).await;
    server.status_where(&client, "it has two streams", |s| s.streams == 2).await;
    server.publish(&client, cluster("a", "1").1).await;
    for stream in [&mut first, &mut second] {
        let push = stream.push().await;
        assert_eq!(names(&push), ["a"]);
        stream.answer(&push, None).await;
    }
    drop(first);
    server.status_where(&client, "it has one stream", |s| s.streams == 1).await;
    server.publish(&client, cluster("a", "2").1).await;
    assert_eq!(names(&second.push().await), ["a"]);
}

/// R19 (delta): the rule is about one process. After a machine is killed and restarted, or after a
/// hot restart, the old stream may still be open.
#[tokio::test]
async fn fresh_client_is_sent_resources_its_predecessor_nacked() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut old = Stream::open(&server, &client).await;
    let (a, set) = cluster("a", "1");
    server.publish(&client, set).await;
    let push = old.push().await;
    old.answer(&push, Some("not on this machine")).await;
    server.status_where(&client, "a NACK", |s| !s.nacks.is_empty()).await;

    let mut new = Stream::open(&server, &client).await;
    let push = new.push().await;
    assert_eq!(names(&push), ["a"]);
    new.answer(&push, None).await;
    let status =
        server.status_where(&client, "it has a", |s| s.has(Cluster, "a", a.version())).await;
    assert!(status.nacks.is_empty(), "{:?}", status.nacks);
    assert_eq!((status.streams, status.process_starts), (2, 2));
}
