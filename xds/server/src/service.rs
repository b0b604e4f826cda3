//! The gRPC service: one task per stream, which moves requests, sets and time into the state machine
//! and its responses out.

use std::convert::Infallible;
use std::future::Ready;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::{DeltaRequest, Node};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Streaming};
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_prost::ProstDecoder;
use tower_service::Service;

use crate::body::{End, Message, MessageBody};
use crate::delta::{DeltaStream, Output};
use crate::hub::{ClientKey, Connection, Hub};
use crate::listener::Peer;

/// The largest request: Envoy's first is 61 KB.
const MAX_REQUEST: usize = 4 << 20;

/// How long a client may take to say who it is.
const FIRST_REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// How many responses may wait for a slow reader: more than one per type never do.
const MAX_WAITING_RESPONSES: usize = 16;

/// How long a reader may take nothing before its stream is cut.
const SLOW_READER_DEADLINE: Duration = Duration::from_secs(60);

/// Who may connect.
pub trait Admission: Send + Sync + 'static {
    /// Decides about a new stream, by the peer's verified certificate; what the client says of itself
    /// can only contradict it. Returns what the client is known by.
    fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, Refusal>;
}

/// Why a stream is refused. Told to the client, and logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// `envoy.service.discovery.v3.AggregatedDiscoveryService`.
#[derive(Clone)]
pub(crate) struct AggregatedDiscovery {
    hub: Arc<Hub>,
    admission: Arc<dyn Admission>,
    shutdown: CancellationToken,
    streams: TaskTracker,
}

impl AggregatedDiscovery {
    pub(crate) fn new(
        hub: Arc<Hub>,
        admission: Arc<dyn Admission>,
        shutdown: CancellationToken,
        streams: TaskTracker,
    ) -> Self {
        Self { hub, admission, shutdown, streams }
    }

    fn delta(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("the connection has no peer"))?;
        let decoder = ProstDecoder::new(BufferSettings::default());
        let requests =
            Streaming::new_request(decoder, request.into_body(), None, Some(MAX_REQUEST));
        let (responses, messages) = mpsc::channel(MAX_WAITING_RESPONSES);
        let (service, end) = (self.clone(), End::default());
        let body = MessageBody::new(messages, Arc::clone(&end));
        self.streams.spawn(async move {
            if let Err(status) = service.run_delta(&peer, requests, &responses).await {
                drop(end.set(status));
            }
            drop(responses);
        });
        let mut response = http::Response::new(Body::new(body));
        let headers = response.headers_mut();
        headers
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
        Ok(response)
    }

    /// Runs one stream to its end; `Ok` where the client ended it.
    async fn run_delta(
        &self,
        peer: &Peer,
        mut requests: Streaming<DeltaDiscoveryRequest>,
        responses: &mpsc::Sender<Message>,
    ) -> Result<(), Status> {
        let first = tokio::select! {
            first = timeout(FIRST_REQUEST_DEADLINE, requests.message()) => first,
            () = self.shutdown.cancelled() => return Err(shutting_down()),
        };
        let first = first.map_err(|_| Status::unavailable("no request came"))??;
        let Some(first) = first else { return Ok(()) };
        let mut request = DeltaRequest::from(first);
        let node = request.node.take().filter(|node| !node.id.is_empty());
        let node = node.ok_or_else(|| {
            Status::invalid_argument("the first request of a stream must have a node with an id")
        })?;
        let node_id = node.id.clone();
        let client = self.admission.admit(peer, &node).map_err(|refusal| {
            peer.refused();
            tracing::warn!(address = %peer.address, node = ?node_id, reason = %refusal, "xDS stream refused");
            Status::permission_denied(refusal.0)
        })?;
        let mut connection = self.hub.connect(client, node);
        tracing::info!(client = %connection.client, address = %peer.address, "xDS stream opened");
        let mut stream = DeltaStream::new(&connection.refused);
        let set = connection.sets.borrow_and_update().clone();
        let mut outputs = set.map_or_else(Vec::new, |set| stream.on_set(set, Instant::now()));
        outputs.extend(stream.on_request(&request, Instant::now()));
        let end = loop {
            let delivered = tokio::select! {
                delivered = deliver(&stream, &connection, outputs, responses) => delivered,
                // Also while a slow reader is waited for.
                () = self.shutdown.cancelled() => Err(shutting_down()),
            };
            if let Err(end) = delivered {
                break Err(end);
            }
            let deadline = stream.deadline();
            outputs = tokio::select! {
                message = requests.message() => match message {
                    Ok(Some(message)) => {
                        let request = DeltaRequest::from(message);
                        if request.node.as_ref().is_some_and(|node| node.id != node_id) {
                            break Err(Status::invalid_argument("the node id changed within the stream"));
                        }
                        stream.on_request(&request, Instant::now())
                    }
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                },
                Ok(()) = connection.sets.changed() => {
                    let set = connection.sets.borrow_and_update().clone();
                    set.map_or_else(Vec::new, |set| stream.on_set(set, Instant::now()))
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    stream.on_timeout(Instant::now())
                }
                () = self.shutdown.cancelled() => break Err(shutting_down()),
            };
        };
        let reason = end.as_ref().err().map(ToString::to_string);
        tracing::info!(client = %connection.client, reason, "xDS stream closed");
        end
    }
}

fn shutting_down() -> Status {
    Status::unavailable("the control plane is shutting down")
}

/// Carries out what the state machine wants.
async fn deliver(
    stream: &DeltaStream,
    connection: &Connection,
    outputs: Vec<Output>,
    responses: &mpsc::Sender<Message>,
) -> Result<(), Status> {
    let client = &connection.client;
    for output in outputs {
        match output {
            Output::Send(response) => {
                tracing::debug!(
                    %client,
                    type_url = %response.type_url,
                    nonce = response.nonce,
                    resources = ?response.resources,
                    removed = ?response.removed,
                    "pushed"
                );
                let sent = timeout(SLOW_READER_DEADLINE, responses.send(response.frame())).await;
                match sent {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(Status::cancelled("the client has gone")),
                    Err(_) => {
                        return Err(Status::resource_exhausted("the client reads too slowly"));
                    }
                }
            }
            Output::Acked(taken) => {
                connection.acked(&taken, stream.acked(taken.resource_type));
            }
            Output::Nacked(refused) => {
                connection.nacked(&refused);
                let names: Vec<_> = refused.resources.iter().map(|(name, _)| name).collect();
                let next =
                    if refused.is_final { "kept from this proxy" } else { "trying each by itself" };
                tracing::warn!(
                    %client,
                    resource_type = %refused.resource_type,
                    ?names,
                    reason = %refused.error.message,
                    next,
                    "the proxy refused resources"
                );
            }
            Output::Late(resource_type) => {
                tracing::warn!(%client, %resource_type, "the proxy has not answered for 15 s; going on without it");
            }
            Output::Close(reason) => return Err(Status::resource_exhausted(reason)),
        }
    }
    Ok(())
}

impl NamedService for AggregatedDiscovery {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl Service<http::Request<Body>> for AggregatedDiscovery {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next();
        let response = if method == Some("DeltaAggregatedResources") {
            self.delta(request)
        } else {
            let advice = "only DeltaAggregatedResources is served: set `api_type: DELTA_GRPC`";
            Err(Status::new(Code::Unimplemented, advice))
        };
        std::future::ready(Ok(response.unwrap_or_else(Status::into_http)))
    }
}
