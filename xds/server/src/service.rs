//! The gRPC services: the aggregated one, and one for each type; each in both variants.

use std::convert::Infallible;
use std::future::Ready;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use ironmesh_xds_wire::Node;
use rustls::pki_types::CertificateDer;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::body::{End, MessageBody};
use crate::counters::Closed;
use crate::delta::DeltaStream;
use crate::hub::{ClientKey, Hub};
use crate::limits::Limits;
use crate::messages::Messages;
use crate::peer::Peer;
use crate::room::Room;
use crate::sotw::SotwStream;
use crate::variant::Variant;

mod names;
mod run;

use names::{Aggregated, Clusters, DiscoveryService, Endpoints, Listeners, Routes, Secrets};

/// How many responses may wait for a slow reader: more than one per type never do.
const MAX_WAITING_RESPONSES: usize = 16;

/// Who may connect.
pub trait Admission: Send + Sync + 'static {
    /// Decides about a new stream, by the peer's verified certificate; what the client says of itself
    /// can only contradict it. Returns what the client is known by.
    fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, Refusal>;

    /// Whom a verified certificate names: where several name the same, their connections count together.
    /// One that names nobody counts for itself.
    fn owner(&self, certificate: &CertificateDer<'_>) -> Option<ClientKey> {
        let _ = certificate;
        None
    }
}

/// Why a stream is refused. Told to the client, and logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// What all streams share.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) hub: Arc<Hub>,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Streams {
    /// All services.
    pub(crate) fn routes(&self) -> tonic::service::Routes {
        tonic::service::Routes::new(Discovery::<Aggregated>::new(self))
            .add_service(Discovery::<Clusters>::new(self))
            .add_service(Discovery::<Endpoints>::new(self))
            .add_service(Discovery::<Listeners>::new(self))
            .add_service(Discovery::<Routes>::new(self))
            .add_service(Discovery::<Secrets>::new(self))
            .prepare()
    }
}

/// One of the services, by its name.
pub(crate) struct Discovery<S> {
    streams: Streams,
    service: PhantomData<fn() -> S>,
}

impl<S> Discovery<S> {
    pub(crate) fn new(streams: &Streams) -> Self {
        Self { streams: streams.clone(), service: PhantomData }
    }
}

impl<S> Clone for Discovery<S> {
    fn clone(&self) -> Self {
        Self::new(&self.streams)
    }
}

impl<S: DiscoveryService> Discovery<S> {
    fn open<V: Variant>(
        &self,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, Status> {
        let encoding = request.headers().get("grpc-encoding");
        if encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(Status::unimplemented("compressed requests are not read"));
        }
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("the connection has no peer"))?;
        let room = request.extensions().get::<Room>().cloned();
        let room = room.ok_or_else(|| Status::internal("the connection has no room"))?;
        if peer.is_turned_away() {
            peer.leave();
            let words =
                "this client has too many connections: is its certificate on several machines?";
            return Err(Status::resource_exhausted(words));
        }
        if !peer.may_open() {
            self.streams.hub.counters().closed(Closed::Flood);
            return Err(Status::resource_exhausted("the client opens streams without end"));
        }
        let requests = Messages::<V::Message>::new(request.into_body(), room);
        let (responses, messages) = mpsc::channel(MAX_WAITING_RESPONSES);
        let (streams, end, open) = (self.streams.clone(), End::default(), peer.open());
        let body = MessageBody::new(messages, Arc::clone(&end));
        self.streams.tasks.spawn(async move {
            if let Err(status) = streams.run::<V>(&peer, S::ONLY, requests, &responses).await {
                drop(end.set(status));
            }
            drop((responses, open));
        });
        let mut response = http::Response::new(Body::new(body));
        let headers = response.headers_mut();
        headers
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
        Ok(response)
    }
}

impl<S: DiscoveryService> NamedService for Discovery<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: DiscoveryService> Service<http::Request<Body>> for Discovery<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next();
        let response = match method {
            Some(method) if method == S::DELTA => self.open::<DeltaStream>(request),
            Some(method) if method == S::STREAM => self.open::<SotwStream>(request),
            _ => Err(Status::unimplemented(format!(
                "only {} and {} are served: set `api_type` to DELTA_GRPC or GRPC",
                S::DELTA,
                S::STREAM
            ))),
        };
        std::future::ready(Ok(response.unwrap_or_else(Status::into_http)))
    }
}
