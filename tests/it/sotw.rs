//! The state-of-the-world variant with gRPC's own client.

use ironmesh_tests::eventually::patience;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use ironmesh_xds_wire::pb::google::rpc;
use ironmesh_xds_wire::{ResourceType, Version};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::client::connect;
use crate::server::{Server, cluster};
use ironmesh_tests::authority::Identity;

/// A state-of-the-world stream.
pub(crate) struct SotwStream {
    pub(crate) requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl SotwStream {
    pub(crate) async fn begin(server: &Server, client: &Identity, first: DiscoveryRequest) -> Self {
        let (requests, outgoing) = mpsc::channel(8);
        requests.send(first).await.unwrap();
        let mut grpc = AggregatedDiscoveryServiceClient::new(connect(server, client).await);
        let stream = grpc.stream_aggregated_resources(ReceiverStream::new(outgoing));
        let responses = timeout(patience(), stream).await.unwrap().unwrap().into_inner();
        Self { requests, responses }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<DiscoveryResponse>, Status> {
        timeout(patience(), self.responses.message()).await.expect("a response")
    }

    pub(crate) async fn push(&mut self) -> DiscoveryResponse {
        self.next().await.expect("a push").expect("no end")
    }

    /// Reads until the stream ends, and returns its status.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }

    pub(crate) async fn answer(&self, push: &DiscoveryResponse, error: Option<&str>) {
        let words =
            |message: &str| rpc::Status { code: 13, message: message.to_owned(), details: vec![] };
        let request = DiscoveryRequest {
            type_url: push.type_url.clone(),
            version_info: push.version_info.clone(),
            response_nonce: push.nonce.clone(),
            error_detail: error.map(words),
            ..DiscoveryRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }
}

pub(crate) fn clusters(client: &Identity) -> DiscoveryRequest {
    DiscoveryRequest {
        node: Some(Node { id: client.name(), ..Node::default() }),
        type_url: ResourceType::Cluster.url().to_owned(),
        ..DiscoveryRequest::default()
    }
}

/// The names of a push's clusters.
fn names(push: &DiscoveryResponse) -> Vec<String> {
    let decode = |any: &ironmesh_xds_wire::pb::google::protobuf::Any| {
        assert_eq!(any.type_url, push.type_url);
        Cluster::decode(&*any.value).unwrap().name
    };
    push.resources.iter().map(decode).collect()
}

/// R1, R10, R41.
#[tokio::test]
async fn sotw_published_set_reaches_its_client_and_answers_are_recorded() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut stream = SotwStream::begin(&server, &client, clusters(&client)).await;
    let (a, mut set) = cluster("a", "1");
    server.publish(&client, set.clone()).await;
    let push = stream.push().await;
    assert_eq!(names(&push), ["a"]);
    assert_eq!(push.version_info, Version::of_all(std::slice::from_ref(&a)).to_string());
    stream.answer(&push, None).await;
    let of = ResourceType::Cluster;
    server.status_where(&client, "it has a", |s| s.has(of, "a", a.version())).await;

    // Each response has the complete state.
    let (b, _) = cluster("b", "bad");
    set.insert(b.clone());
    server.publish(&client, set).await;
    let push = stream.push().await;
    assert_eq!(names(&push), ["a", "b"]);
    stream.answer(&push, Some("no such thing")).await;
    let status = server.status_where(&client, "a NACK", |s| !s.nacks.is_empty()).await;
    let nack = &status.nacks[&(of, "b".into())];
    assert_eq!((nack.version, nack.message.as_str()), (b.version(), "no such thing"));
    assert!(status.has(of, "a", a.version()), "the rest is active");
}

/// R12, invariant 8.
#[tokio::test]
async fn sotw_reconnect_with_current_cluster_version_counts_as_ack() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let (a, set) = cluster("a", "1");
    let version_info = Version::of_all(std::slice::from_ref(&a)).to_string();
    let first = DiscoveryRequest { version_info, ..clusters(&client) };
    let mut stream = SotwStream::begin(&server, &client, first).await;
    server.publish(&client, set).await;
    let of = ResourceType::Cluster;
    server.status_where(&client, "it has a", |s| s.has(of, "a", a.version())).await;
    server.publish(&client, cluster("c", "1").1).await;
    let push = stream.push().await;
    assert_eq!(names(&push), ["a", "c"], "a first: no answer to the first request came before");
}

/// R19: a version that one stream NACKed is not sent on the next, and the previous version stays
/// active.
#[tokio::test]
async fn sotw_acked_version_survives_its_stream() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut stream = SotwStream::begin(&server, &client, clusters(&client)).await;
    server.publish(&client, cluster("a", "1").1).await;
    let accepted = stream.push().await;
    stream.answer(&accepted, None).await;
    let (_, mut bad) = cluster("a", "bad");
    server.publish(&client, bad.clone()).await;
    let push = stream.push().await;
    stream.answer(&push, Some("no")).await;
    server.status_where(&client, "a NACK", |s| !s.nacks.is_empty()).await;
    drop(stream);
    server.status_where(&client, "the stream has ended", |s| s.streams == 0).await;

    let first =
        DiscoveryRequest { version_info: accepted.version_info.clone(), ..clusters(&client) };
    let mut stream = SotwStream::begin(&server, &client, first).await;
    bad.insert(cluster("b", "1").0);
    server.publish(&client, bad).await;
    let push = stream.push().await;
    assert_eq!(names(&push), ["a", "b"]);
    assert_eq!(push.resources[0], accepted.resources[0], "in the ACKed version");
}

/// R2, R3, R5, R62, A34.
#[tokio::test]
async fn sotw_request_without_node_or_type_is_an_invalid_argument() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let another = Some(Node { id: "another".to_owned(), ..Node::default() });
    for (second, words) in [
        (DiscoveryRequest { type_url: String::new(), ..clusters(&client) }, "must have a type"),
        (DiscoveryRequest { node: another, ..clusters(&client) }, "the node id changed"),
    ] {
        let mut stream = SotwStream::begin(&server, &client, clusters(&client)).await;
        stream.requests.send(second).await.unwrap();
        let end = stream.next().await.expect_err("no answer");
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(end.message().contains(words), "{end}");
    }
    let first = DiscoveryRequest { node: None, ..clusters(&client) };
    let end = SotwStream::begin(&server, &client, first).await.next().await.expect_err("no answer");
    assert_eq!(end.code(), Code::InvalidArgument);
    assert!(end.message().contains("must have a node"), "{end}");
}

/// R19. As with delta: also while the predecessor's stream is open.
#[tokio::test]
async fn sotw_fresh_client_is_sent_resources_its_predecessor_nacked() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut old = SotwStream::begin(&server, &client, clusters(&client)).await;
    server.publish(&client, cluster("a", "1").1).await;
    let push = old.push().await;
    old.answer(&push, Some("not on this machine")).await;
    server.status_where(&client, "a NACK", |s| !s.nacks.is_empty()).await;

    let mut new = SotwStream::begin(&server, &client, clusters(&client)).await;
    let push = new.push().await;
    assert_eq!(names(&push), ["a"]);
    new.answer(&push, None).await;
    let status = server.status_where(&client, "no NACK", |s| s.nacks.is_empty()).await;
    assert_eq!((status.streams, status.process_starts), (2, 2));
}
