//! The gRPC services: the aggregated one, and one for each type; each in both variants. Beside them
//! are client status (`client_status`), health (`health`), health discovery (`health_discovery`) and
//! access logs (`access_log`).

use std::pin::Pin;
use std::sync::Arc;

use hyper::body::Incoming;
use ironmesh_xds_wire::pb::envoy::service::health::v3::HealthCheckSpecifier;
use ironmesh_xds_wire::{EndpointReport, LoggedCall, Node, ResourceType};
use rustls::pki_types::CertificateDer;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tracing::{Instrument, field};

use crate::body::{End, Message, MessageBody};
use crate::counters::CloseReason;
use crate::delta::DeltaStream;
use crate::hub::{ClientKey, Hub};
use crate::limits::Limits;
use crate::log_throttle::ClientLogThrottle;
use crate::memory_quota::MemoryQuota;
use crate::messages::Messages;
use crate::peer::Peer;
use crate::sotw::SotwStream;
use crate::variant::Variant;

mod access_log;
mod client_status;
mod health;
mod health_discovery;
mod names;
mod run;

use names::Discovery;

/// The number of responses that may wait for a slow reader: no type ever has more than one.
const MAX_WAITING_RESPONSES: usize = 16;

/// Decides which clients may connect, and receives the calls and the health that they report.
pub trait Admission: Send + Sync + 'static {
    /// Decides about a new stream by the peer's verified certificate, which the reported node can
    /// only contradict. Returns the identity of the client.
    fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, StreamRejection>;

    /// Completes the admission of a new stream, for example by storing it. Many streams
    /// may wait here at once, so an implementation must hold no thread while they do.
    fn complete<'a>(&'a self, client: &'a ClientKey, peer: &'a Peer) -> Completion<'a> {
        let _ = (client, peer);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The client that a verified certificate names: connections of certificates with the same
    /// owner count together. A certificate without an owner counts alone.
    fn owner(&self, certificate: &CertificateDer<'_>) -> Option<ClientKey> {
        let _ = certificate;
        None
    }

    /// Receives the calls that a client has served and reports. Only the reporting client is
    /// verified. An implementation must limit what it keeps, and must not block.
    fn logged(&self, client: &ClientKey, calls: Vec<LoggedCall>) {
        let _ = (client, calls);
    }

    /// The endpoints that a client probes from a new stream on, and their changes. Without a sender they stay.
    fn health_checks(
        &self,
        client: &ClientKey,
        node: &Node,
    ) -> watch::Receiver<Arc<HealthCheckSpecifier>> {
        let _ = (client, node);
        watch::Sender::default().subscribe()
    }

    /// Receives the health of the endpoints that a client probes. Only the reporting client is
    /// verified. An implementation must not block.
    fn health_reported(&self, client: &ClientKey, endpoints: Vec<EndpointReport>) {
        let _ = (client, endpoints);
    }
}

/// The future of [`Admission::complete`].
pub type Completion<'a> = Pin<Box<dyn Future<Output = Result<(), StreamRejection>> + Send + 'a>>;

/// The reason for which a stream is rejected. It is sent to the client, and logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StreamRejection(pub String);

/// The state that all streams share.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) hub: Arc<Hub>,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// The log throttle for rejected streams.
    pub(crate) rejection_log: Arc<ClientLogThrottle>,
}

impl Streams {
    /// Opens a stream, if its peer may have one, and serves it in a task of its own.
    fn open<M, F>(
        &self,
        request: http::Request<Incoming>,
        serve: impl FnOnce(Self, Peer, Messages<M>, mpsc::Sender<Message>) -> F,
    ) -> Result<http::Response<MessageBody>, Status>
    where
        M: prost::Message + Default,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let encoding = request.headers().get("grpc-encoding");
        if encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(Status::unimplemented("compressed requests are not supported"));
        }
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("the connection has no peer"))?;
        let quota = request.extensions().get::<MemoryQuota>().cloned();
        let quota = quota.ok_or_else(|| Status::internal("the connection has no memory quota"))?;
        if peer.is_rejected() {
            peer.leave();
            let message =
                "this client has too many connections: is its certificate on several machines?";
            return Err(Status::resource_exhausted(message));
        }
        if !peer.may_open() {
            self.hub.counters().closed(CloseReason::Flood);
            return Err(Status::resource_exhausted(
                "the client exceeds the rate limit for new streams",
            ));
        }
        let (responses, messages) = mpsc::channel(MAX_WAITING_RESPONSES);
        let end = End::default();
        let body = MessageBody::new(messages, Arc::clone(&end));
        let requests = Messages::new(Body::new(request.into_body()), quota);
        let span = tracing::debug_span!("stream", address = %peer.address, client = field::Empty);
        let serving = serve(self.clone(), peer, requests, responses.clone()).instrument(span);
        self.tasks.spawn(async move {
            if let Err(status) = serving.await {
                drop(end.set(status));
            }
            drop(responses);
        });
        let mut response = http::Response::new(body);
        let headers = response.headers_mut();
        headers
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
        Ok(response)
    }

    fn discover<V: Variant>(
        &self,
        only: Option<ResourceType>,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<MessageBody>, Status> {
        self.open(request, move |streams, peer, requests, responses| async move {
            let _open = peer.open();
            streams.run::<V>(&peer, only, requests, &responses).await
        })
    }

    /// Answers a request that has its [`Peer`] as an extension.
    pub(crate) fn call(&self, request: http::Request<Incoming>) -> http::Response<MessageBody> {
        let path = request.uri().path().to_owned();
        let names = path.strip_prefix('/').and_then(|path| path.split_once('/'));
        let (service, method) = names.unwrap_or_default();
        let response = match service {
            access_log::NAME => self.access_log(method, request),
            client_status::NAME => self.client_status(method, request),
            health::NAME => self.health(method, request),
            health_discovery::NAME => self.health_discovery(method, request),
            _ => match Discovery::of(service) {
                Some(of) if method == of.delta => self.discover::<DeltaStream>(of.only, request),
                Some(of) if method == of.stream => self.discover::<SotwStream>(of.only, request),
                Some(Discovery { delta, stream, .. }) => Err(Status::unimplemented(format!(
                    "only {delta} and {stream} are served: set `api_type` to DELTA_GRPC or GRPC"
                ))),
                None => Err(Status::unimplemented(format!("unknown service `{service}`"))),
            },
        };
        response.unwrap_or_else(Status::into_http)
    }
}
