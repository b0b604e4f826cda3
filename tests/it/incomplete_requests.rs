//! Clients that begin requests and never complete them.

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use ironmesh_tests::eventually;
use ironmesh_tests::eventually::patience;
use ironmesh_xds_server::{CloseReason, Limits};
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message as _;
use rustls::version::TLS13;
use tokio::time::timeout;
use tonic::{Code, Status};

use crate::bystander::Bystander;
use crate::client::{clusters, config, dial};
use crate::server::{Server, cluster};
use ironmesh_tests::authority::Identity;

const METHOD: &str =
    "http://xds/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// Opens HTTP/2 without gRPC, on a new connection.
async fn http2_client(server: &Server, client: &Identity) -> SendRequest<Bytes> {
    let tls = config(server.authority.roots(), Some(client), &[&TLS13]);
    let io = dial(server.address, tls).await.unwrap();
    let (requests, connection) = h2::client::handshake(io).await.unwrap();
    tokio::spawn(connection);
    requests
}

/// A stream on which a test sent raw bytes.
struct PartialStream {
    body: SendStream<Bytes>,
    response: RecvStream,
}

impl PartialStream {
    async fn new(requests: &SendRequest<Bytes>, bytes: Bytes) -> Self {
        let request = http::Request::post(METHOD)
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let mut requests = requests.clone().ready().await.unwrap();
        let (response, mut body) = requests.send_request(request, false).unwrap();
        let response = timeout(patience(), response).await.unwrap().unwrap().into_body();
        body.send_data(bytes, false).unwrap();
        Self { body, response }
    }

    /// The status with which the stream ends.
    async fn end(mut self) -> Status {
        let trailers = timeout(patience(), async {
            while let Some(data) = self.response.data().await {
                data.unwrap();
            }
            self.response.trailers().await.unwrap().unwrap()
        });
        Status::from_header_map(&trailers.await.expect("the stream ends")).unwrap()
    }
}

/// A whole request with gRPC's frame header.
fn framed(request: &DeltaDiscoveryRequest) -> Vec<u8> {
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat()
}

/// A first request, followed by the beginning of another with this declared length.
fn partial_request(client: &Identity, length: u32) -> Bytes {
    [&framed(&clusters(client)), &[0][..], &length.to_be_bytes(), &[0; 100]].concat().into()
}

/// A first request of 61 KB, as Envoy sends it, in two parts.
fn large_first(client: &Identity) -> (Bytes, Bytes) {
    let node = Node { id: client.name(), user_agent_name: "x".repeat(61 << 10), ..Node::default() };
    let mut all =
        Bytes::from(framed(&DeltaDiscoveryRequest { node: Some(node), ..clusters(client) }));
    let begin = all.split_to(30 << 10);
    (begin, all)
}

/// A client whose first request arrives in two parts is served.
async fn assert_new_client_is_served(server: &Server) {
    let client = server.authority.proxy();
    let (begin, rest) = large_first(&client);
    let requests = http2_client(server, &client).await;
    let mut stream = PartialStream::new(&requests, begin).await;
    stream.body.send_data(rest, false).unwrap();
    server.publish(&client, cluster("a", "1").1).await;
    let data = timeout(patience(), stream.response.data()).await.expect("a push");
    assert!(!data.unwrap().unwrap().is_empty());
}

async fn wait_for_ended_streams(server: &Server, count: u64) {
    eventually("streams to be cut", async || {
        let cut = server.hub.counters().streams_closed(CloseReason::QuotaExceeded);
        if cut == count { Ok(()) } else { Err(cut) }
    })
    .await;
}

/// Invariant 10, A23 (bystander): 4 MiB on each of a thousand streams would be 4 GiB.
#[tokio::test]
async fn incomplete_requests_of_a_client_share_one_memory_quota() {
    let limits = Limits { unfinished_per_client: 1 << 20, ..Limits::default() };
    let server = Server::start_with(limits).await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let requests = http2_client(&server, &client).await;
        for _ in 0..3 {
            streams.push(PartialStream::new(&requests, partial_request(&client, 400 << 10)).await);
        }
        bystander.assert_served(&server).await;
    }
    wait_for_ended_streams(&server, 7).await;
    server.status_where(&client, "two streams", |status| status.streams == 2).await;
    assert_new_client_is_served(&server).await;
    bystander.assert_served(&server).await;
    // One more is rejected with the reason; once the others end, the quota has room again.
    let requests = http2_client(&server, &client).await;
    let end = PartialStream::new(&requests, partial_request(&client, 400 << 10)).await.end().await;
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("too many large incomplete requests"), "{end}");
    drop(streams);
    server.status_where(&client, "no stream", |status| status.streams == 0).await;
    let _begun = PartialStream::new(&requests, partial_request(&client, 400 << 10)).await;
    server.status_where(&client, "one stream", |status| status.streams == 1).await;
    bystander.assert_served(&server).await;
    assert_eq!(server.hub.counters().streams_closed(CloseReason::QuotaExceeded), 8);
}

/// Invariant 10, A23: an Envoy's first request always fits the memory quota.
#[tokio::test]
async fn incomplete_request_limit_leaves_memory_for_first_requests() {
    let limits = Limits { unfinished: 1 << 20, ..Limits::default() };
    let server = Server::start_with(limits).await;
    let mut bystander = Bystander::open(&server).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let client = server.authority.proxy();
        let requests = http2_client(&server, &client).await;
        streams.push(PartialStream::new(&requests, partial_request(&client, 400 << 10)).await);
    }
    wait_for_ended_streams(&server, 3).await;
    let client = server.authority.proxy();
    let requests = http2_client(&server, &client).await;
    let end = PartialStream::new(&requests, partial_request(&client, 400 << 10)).await.end().await;
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(
        end.message().contains("the memory quota for incomplete requests is exhausted"),
        "{end}"
    );
    assert_new_client_is_served(&server).await;
    bystander.assert_served(&server).await;
}
