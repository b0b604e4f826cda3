//! The shutdown of the server.

use tonic::Code;
use tonic::transport::Endpoint;

use crate::client::{Stream, clusters, connect, connect_with, names};
use crate::server::{Server, cluster};
use crate::sotw::{self, SotwStream};

/// R60, R62, A68 (delta).
#[tokio::test]
async fn streams_end_as_unavailable_and_the_server_returns() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    assert_eq!(names(&stream.push().await), ["a"]);
    server.shutdown.cancel();
    let end = stream.end().await;
    assert_eq!(end.code(), Code::Unavailable);
    assert_eq!(end.message(), "the control plane is shutting down");
    server.status_where(&client, "the stream has ended", |s| s.streams == 0).await;
    server.ended().await;
}

/// R60, R62, A68.
#[tokio::test]
async fn sotw_streams_end_as_unavailable() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let first = sotw::clusters(&client);
    let mut stream = SotwStream::begin(&server, &client, first).await;
    server.publish(&client, cluster("a", "1").1).await;
    stream.push().await;
    server.shutdown.cancel();
    let end = stream.next().await.expect_err("no push");
    assert_eq!(end.code(), Code::Unavailable);
    server.ended().await;
}

/// Invariant 10, A43: a client that does not read harms only itself.
#[tokio::test]
async fn server_shuts_down_although_a_client_does_not_read() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let small = Endpoint::from_static("http://xds")
        .initial_stream_window_size(1 << 16)
        .initial_connection_window_size(1 << 16);
    let channel = connect_with(small, &server, &client).await;
    let _unread = Stream::begin(channel, clusters(&client)).await;
    server.publish(&client, cluster("a", &"x".repeat(8 << 20)).1).await;
    // Another client is served meanwhile, so that the first push is in flight by then.
    let other = server.authority.proxy();
    let mut stream = Stream::begin(connect(&server, &other).await, clusters(&other)).await;
    server.publish(&other, cluster("a", "1").1).await;
    stream.push().await;
    server.shutdown.cancel();
    server.ended().await;
}
