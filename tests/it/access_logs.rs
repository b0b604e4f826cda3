//! Clients that stream access logs (the access log service).

use ironmesh_tests::authority::Identity;
use ironmesh_tests::eventually::patience;
use ironmesh_xds_server::{CloseReason, Limits};
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::data::accesslog::v3::{AccessLogCommon, TcpAccessLogEntry};
use ironmesh_xds_wire::pb::envoy::service::accesslog::v3::access_log_service_client::AccessLogServiceClient;
use ironmesh_xds_wire::pb::envoy::service::accesslog::v3::stream_access_logs_message::{
    Identifier, LogEntries, TcpAccessLogEntries,
};
use ironmesh_xds_wire::pb::envoy::service::accesslog::v3::{
    StreamAccessLogsMessage, StreamAccessLogsResponse,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::bystander::Bystander;
use crate::client::connect;
use crate::server::Server;

/// A stream of access logs.
struct LogStream {
    messages: mpsc::Sender<StreamAccessLogsMessage>,
    end: JoinHandle<Result<Response<StreamAccessLogsResponse>, Status>>,
}

impl LogStream {
    fn open(channel: &Channel) -> Self {
        let (messages, outgoing) = mpsc::channel(8);
        let mut client = AccessLogServiceClient::new(channel.clone());
        let stream = async move { client.stream_access_logs(ReceiverStream::new(outgoing)).await };
        Self { messages, end: tokio::spawn(stream) }
    }

    async fn send(&self, message: StreamAccessLogsMessage) {
        drop(self.messages.send(message).await);
    }

    async fn end(self) -> Status {
        drop(self.messages);
        let end = timeout(patience(), self.end).await.expect("an end").unwrap();
        end.map_or_else(|status| status, |_| Status::ok(""))
    }
}

fn message(id: Option<&str>, calls: usize) -> StreamAccessLogsMessage {
    let node = |id: &str| Node { id: id.to_owned(), ..Node::default() };
    let entry = |n: usize| TcpAccessLogEntry {
        common_properties: Some(AccessLogCommon {
            upstream_cluster: format!("shop/service-{n}|80|local"),
            ..AccessLogCommon::default()
        }),
        ..TcpAccessLogEntry::default()
    };
    let entries = TcpAccessLogEntries { log_entry: (0..calls).map(entry).collect() };
    StreamAccessLogsMessage {
        identifier: id.map(|id| Identifier { node: Some(node(id)), log_name: "log".to_owned() }),
        log_entries: Some(LogEntries::TcpLogs(entries)),
    }
}

/// Waits until the server has logged all calls of these messages.
async fn wait_for_logged_calls(server: &Server, client: &Identity, count: usize) {
    ironmesh_tests::eventually("the logged calls", async || {
        let logged_calls = server.logged_calls.lock().unwrap();
        let logged_calls = logged_calls.iter().filter(|(key, _)| **key == *client.name()).count();
        if logged_calls == count { Ok(()) } else { Err(logged_calls) }
    })
    .await;
}

/// A80 (bystander): the server attributes calls by the certificate, not by the message.
#[tokio::test]
async fn access_logs_are_attributed_by_certificate() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    let log = LogStream::open(&channel);
    log.send(message(Some(&client.name()), 2)).await;
    log.send(message(None, 3)).await;
    wait_for_logged_calls(&server, &client, 5).await;
    assert_eq!(log.end().await.code(), Code::Ok);

    let nobody = LogStream::open(&channel);
    nobody.send(message(None, 1)).await;
    let end = nobody.end().await;
    assert_eq!(end.code(), Code::InvalidArgument, "{end}");
    let becomes_another = LogStream::open(&channel);
    becomes_another.send(message(Some(&client.name()), 0)).await;
    becomes_another.send(message(Some(&other.name()), 1)).await;
    let end = becomes_another.end().await;
    assert_eq!(end.code(), Code::InvalidArgument, "{end}");
    let proxy_client = LogStream::open(&channel);
    proxy_client.send(message(Some(&other.name()), 1)).await;
    let end = proxy_client.end().await;
    assert_eq!(end.code(), Code::PermissionDenied, "{end}");
    wait_for_logged_calls(&server, &client, 5).await;
    wait_for_logged_calls(&server, &other, 0).await;
    bystander.assert_served(&server).await;
}

/// A81 (bystander): these streams occupy connections that xDS may need.
#[tokio::test]
async fn access_log_streams_leave_connections_for_xds() {
    let limits = Limits { connections_per_client: 4, ..Limits::default() };
    let server = Server::start_with(limits).await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut logs = Vec::new();
    for n in 1..=3 {
        let log = LogStream::open(&connect(&server, &client).await);
        log.send(message(Some(&client.name()), 1)).await;
        wait_for_logged_calls(&server, &client, n).await;
        logs.push(log);
    }
    let one_more = LogStream::open(&connect(&server, &client).await);
    one_more.send(message(Some(&client.name()), 1)).await;
    let end = one_more.end().await;
    assert_eq!(end.code(), Code::ResourceExhausted, "{end}");
    assert_eq!(server.hub.counters().streams_closed(CloseReason::TooManyStreams), 1);
    // The connection has ended, so the limit has room for xDS, also of this client.
    ironmesh_tests::eventually("room for a connection", async || {
        let clusters = crate::client::clusters(&client);
        let channel = connect(&server, &client).await;
        crate::client::Stream::try_begin(channel, clusters).await.map(drop)
    })
    .await;
    bystander.assert_served(&server).await;
    for log in logs {
        assert_eq!(log.end().await.code(), Code::Ok);
    }
}

/// A82 (bystander): the server reads as fast as the rate limit allows, and does not end the stream.
#[tokio::test]
async fn endless_access_log_stream_is_throttled_without_delaying_others() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let log = LogStream::open(&connect(&server, &client).await);
    log.send(message(Some(&client.name()), 1)).await;
    for n in 0..1_000 {
        log.send(message(None, 1)).await;
        if n % 200 == 0 {
            bystander.assert_served(&server).await;
        }
    }
    wait_for_logged_calls(&server, &client, 1_001).await;
    assert_eq!(log.end().await.code(), Code::Ok);
    assert_eq!(server.hub.counters().streams_closed(CloseReason::Flood), 0);
    bystander.assert_served(&server).await;
}
