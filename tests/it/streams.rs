//! Which streams the server accepts, and how it rejects others.

use std::time::Duration;

use ironmesh_xds_server::CloseReason;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{Extension, Node};
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use rustls::version::TLS13;
use tokio::io::AsyncReadExt as _;
use tonic::Code;

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, config, connect, dial, names};
use crate::server::{Server, cluster};
use crate::sotw::{self, SotwStream};

/// R62 (delta).
#[tokio::test]
async fn rejected_client_receives_the_reason() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    let channel = connect(&server, &client).await;
    let end = Stream::begin(channel, clusters(&other)).await.end().await;
    assert_eq!(end.code(), Code::PermissionDenied);
    let why = format!("`{}` has the certificate of `{}`", other.name(), client.name());
    assert_eq!(end.message(), why);
    assert!(server.hub.status().is_empty());
}

#[tokio::test]
async fn repeatedly_rejected_client_loses_its_connection() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    // Envoy retries on its open connection, with the certificate of that connection.
    let channel = connect(&server, &client).await;
    let ask = async || {
        let mut client = AggregatedDiscoveryServiceClient::new(channel.clone());
        let requests = tokio_stream::iter([clusters(&other)]);
        let stream = client.delta_aggregated_resources(requests).await?;
        stream.into_inner().message().await
    };
    assert_eq!(ask().await.unwrap_err().code(), Code::PermissionDenied);
    // Later ones may be rejected without a reason.
    for _ in 0..3 {
        ask().await.unwrap_err();
    }
    let connections: std::collections::BTreeSet<_> =
        server.rejected_from.lock().unwrap().iter().copied().collect();
    assert!(connections.len() > 1, "{connections:?}");
}

/// R3, R62, A34 (delta).
#[tokio::test]
async fn first_request_without_node_is_an_invalid_argument() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    for node in [None, Some(Node::default())] {
        let first = DeltaDiscoveryRequest { node, ..clusters(&client) };
        let end = Stream::begin(connect(&server, &client).await, first).await.end().await;
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(end.message().contains("must have a node"), "{end}");
    }
}

/// R5 (delta).
#[tokio::test]
async fn request_without_type_is_an_invalid_argument() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let untyped = DeltaDiscoveryRequest { type_url: String::new(), ..clusters(&client) };
    let mut late = Stream::open(&server, &client).await;
    late.send(untyped.clone()).await;
    let mut first = Stream::begin(connect(&server, &client).await, untyped).await;
    for stream in [&mut late, &mut first] {
        let end = stream.end().await;
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(end.message().contains("must have a type"), "{end}");
    }
}

/// R1, R2 (delta).
#[tokio::test]
async fn node_may_be_repeated_but_not_changed() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    let push = stream.push().await;
    stream.send(clusters(&client)).await;
    stream.answer(&push, None).await;
    server.publish(&client, cluster("a", "2").1).await;
    assert_eq!(names(&stream.push().await), ["a"]);

    let node = Some(Node { id: "another".to_owned(), ..Node::default() });
    stream.send(DeltaDiscoveryRequest { node, ..clusters(&client) }).await;
    let end = stream.end().await;
    assert_eq!(end.code(), Code::InvalidArgument);
    assert_eq!(end.message(), "the node id changed within the stream");
}

// F1: Envoy's node lists its extensions.
#[tokio::test]
async fn node_of_61_kilobytes_is_accepted() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let extension = |n: usize| Extension {
        name: format!("envoy.filters.http.extension_{n}"),
        type_urls: vec!["envoy.extensions.filters.http.extension.v3.Extension".to_owned(); 2],
        ..Extension::default()
    };
    let extensions = (0..516).map(extension).collect();
    let node = Some(Node { id: client.name(), extensions, ..Node::default() });
    let first = DeltaDiscoveryRequest { node, ..clusters(&client) };
    let mut stream = Stream::begin(connect(&server, &client).await, first).await;
    server.publish(&client, cluster("a", "1").1).await;
    assert_eq!(names(&stream.push().await), ["a"]);
}

/// A12 (bystander): a revocation ends all streams, however many.
#[tokio::test]
async fn disconnect_ends_all_streams_of_a_client_with_the_reason() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    let mut one = Stream::begin(channel.clone(), clusters(&client)).await;
    let mut two = Stream::begin(channel, clusters(&client)).await;
    let mut other = SotwStream::begin(&server, &client, sotw::clusters(&client)).await;
    server.status_where(&client, "its streams", |status| status.streams == 3).await;
    server.hub.disconnect(&client.name(), "its certificate is revoked");
    for end in [one.end().await, two.end().await, other.end().await] {
        assert_eq!(end.code(), Code::PermissionDenied);
        assert_eq!(end.message(), "its certificate is revoked");
    }
    server.status_where(&client, "none", |status| status.streams == 0).await;
    assert_eq!(server.hub.counters().streams_closed(CloseReason::Disconnected), 3);
    bystander.assert_served(&server).await;
    // The client is still admitted here, so it may reconnect.
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    assert_eq!(names(&stream.push().await), ["a"]);
}

/// A12: TLS checks the expiry only once.
#[tokio::test]
async fn expired_certificate_ends_open_streams() {
    let server = Server::start().await;
    let mut bystander = Bystander::open(&server).await;
    // Long enough to connect on a busy machine.
    let client = server.authority.proxy_for(Duration::from_secs(8));
    let channel = connect(&server, &client).await;
    let mut streams = [
        Stream::begin(channel.clone(), clusters(&client)).await,
        Stream::begin(channel, clusters(&client)).await,
    ];
    server.publish(&client, cluster("a", "1").1).await;
    for stream in &mut streams {
        assert_eq!(names(&stream.push().await), ["a"]);
    }
    for stream in &mut streams {
        let end = stream.end().await;
        assert_eq!(end.code(), Code::PermissionDenied);
        assert!(end.message().contains("has expired: renew it"), "{end}");
    }
    server.status_where(&client, "none", |status| status.streams == 0).await;
    assert_eq!(server.hub.counters().streams_closed(CloseReason::Expired), 2);
    let config = config(server.authority.roots(), Some(&client), &[&TLS13]);
    let mut again = dial(server.address, config).await.unwrap();
    let rejected = again.read(&mut [0; 8]).await.unwrap_err().to_string();
    assert!(rejected.contains("CertificateExpired"), "{rejected}");
    bystander.assert_served(&server).await;
}
