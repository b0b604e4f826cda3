//! Streams without connections, on a clock that only the tests move.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body::{Body, Frame};
use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node as NodeMessage;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use prost::Message as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Code;

use super::*;
use crate::connection_limit::ConnectionLimit;
use crate::delta::DeltaStream;
use crate::hub::{ClientKey, Hub};
use crate::limits::Limits;
use crate::service::{Admission, StreamRejection};
use crate::test_resources::{cluster, set};
use crate::validity::Validity;
use ironmesh_xds_wire::Node;

/// Admits every stream as the same client.
struct AdmitAll;

impl Admission for AdmitAll {
    fn admit(&self, _: &Peer, _: &Node) -> Result<ClientKey, StreamRejection> {
        Ok("client".into())
    }
}

/// The body of a request, as it arrives.
struct Requests(mpsc::Receiver<Bytes>);

impl Body for Requests {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The client's end of a delta stream.
struct Client {
    hub: Arc<Hub>,
    requests: mpsc::Sender<Bytes>,
    responses: mpsc::Receiver<Message>,
    end: JoinHandle<Result<(), Status>>,
}

impl Client {
    fn open() -> Self {
        let hub = Arc::new(Hub::default());
        let streams = Streams {
            hub: Arc::clone(&hub),
            admission: Arc::new(AdmitAll),
            limits: Limits::default(),
            shutdown: CancellationToken::new(),
            rejection_log: Arc::default(),
            tasks: TaskTracker::new(),
        };
        let (requests, incoming) = mpsc::channel(8);
        let (outgoing, responses) = mpsc::channel(8);
        let end = tokio::spawn(async move {
            let peer = Peer::new(
                Vec::new().into(),
                Validity::endless(),
                SocketAddr::from(([127, 0, 0, 1], 1)),
            );
            let requests = Messages::new(
                tonic::body::Body::new(Requests(incoming)),
                ConnectionLimit::new(Limits::default()).acquire().unwrap().quota().clone(),
            );
            streams.run::<DeltaStream>(&peer, None, requests, &outgoing).await
        });
        Self { hub, requests, responses, end }
    }

    /// Returns when the hub knows the client.
    async fn is_known_to_hub(&self) {
        while self.hub.status_of("client").is_none() {
            tokio::task::yield_now().await;
        }
    }

    async fn response(&mut self) -> DeltaDiscoveryResponse {
        let chunks = self.responses.recv().await.unwrap();
        DeltaDiscoveryResponse::decode(&chunks.concat()[5..]).unwrap()
    }
}

fn framed(request: &DeltaDiscoveryRequest) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(request.encoded_len().try_into().unwrap());
    request.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn subscribe_request(of: ResourceType, subscribe: &[String]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(NodeMessage { id: "client".to_owned(), ..NodeMessage::default() }),
        type_url: of.url().to_owned(),
        resource_names_subscribe: subscribe.to_vec(),
        ..DeltaDiscoveryRequest::default()
    }
}

/// A41. Envoy requests each secret by itself; others also each cluster's endpoints; and it ACKs
/// each push.
#[tokio::test(start_paused = true)]
async fn startup_with_2000_single_name_requests_is_not_delayed() {
    let begin = Instant::now();
    let mut client = Client::open();
    let requests = client.requests.clone();
    requests.send(framed(&subscribe_request(ResourceType::Cluster, &[]))).await.unwrap();
    client.is_known_to_hub().await;
    tokio::spawn(async move {
        for of in [ResourceType::Endpoint, ResourceType::Secret] {
            for n in 0..1000 {
                requests.send(framed(&subscribe_request(of, &[n.to_string()]))).await.unwrap();
            }
        }
    });
    let mut answered = 0;
    let mut published = 0;
    while answered < 2000 {
        // Meanwhile its clusters change with every response.
        published += 1;
        client.hub.publish("client", set([cluster("a", published)]));
        let response = client.response().await;
        answered += response.removed_resources.len();
        let (type_url, response_nonce) = (response.type_url, response.nonce);
        let ack =
            DeltaDiscoveryRequest { type_url, response_nonce, ..DeltaDiscoveryRequest::default() };
        client.requests.send(framed(&ack)).await.unwrap();
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(!client.end.is_finished());
}

/// A41.
#[tokio::test(start_paused = true)]
async fn endless_requests_are_delayed_then_stream_is_closed() {
    let begin = Instant::now();
    let mut client = Client::open();
    let requests = client.requests.clone();
    requests.send(framed(&subscribe_request(ResourceType::Cluster, &[]))).await.unwrap();
    client.is_known_to_hub().await;
    let flood = tokio::spawn(async move {
        let names = ["a".to_owned()];
        let dropped = DeltaDiscoveryRequest {
            resource_names_unsubscribe: names.to_vec(),
            ..subscribe_request(ResourceType::Endpoint, &[])
        };
        let flip = [framed(&subscribe_request(ResourceType::Endpoint, &names)), framed(&dropped)];
        let mut sent = 0_u32;
        while requests.send(flip[usize::from(sent % 2 == 1)].clone()).await.is_ok() {
            sent += 1;
        }
        sent
    });
    client.hub.publish("client", ResourceSet::default());
    while client.responses.recv().await.is_some() {}
    let end = client.end.await.unwrap().unwrap_err();
    assert_eq!(
        (end.code(), end.message()),
        (Code::ResourceExhausted, "the client exceeds the rate limit for requests")
    );
    let elapsed = begin.elapsed();
    assert!((MAX_FLOOD..MAX_FLOOD + Duration::from_secs(2)).contains(&elapsed), "{elapsed:?}");
    // The burst, and then one request per interval.
    let limit =
        BURST + u32::try_from(MAX_FLOOD.as_millis() / REQUEST_INTERVAL.as_millis()).unwrap();
    let sent = flood.await.unwrap();
    assert!((BURST..limit + 100).contains(&sent), "{sent}");
    assert_eq!(client.hub.counters().streams_closed(CloseReason::Flood), 1);
}
