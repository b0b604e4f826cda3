//! The gRPC services: the aggregated one, and one for each type; each in both variants.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use ironmesh_xds_wire::{Node, ResourceType};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower_service::Service as _;

use crate::body::{End, MessageBody, ResponseBody};
use crate::counters::Closed;
use crate::delta::DeltaStream;
use crate::hub::{ClientKey, Hub};
use crate::limits::Limits;
use crate::messages::Messages;
use crate::peer::Peer;
use crate::sotw::SotwStream;
use crate::variant::Variant;

mod names;
mod run;

use names::Service;

/// How many responses may wait for a slow reader: more than one per type never do.
const MAX_WAITING_RESPONSES: usize = 16;

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
    /// Begins a stream of ours.
    fn open<V: Variant>(
        &self,
        only: Option<ResourceType>,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<ResponseBody>, Status> {
        let encoding = request.headers().get("grpc-encoding");
        if encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(Status::unimplemented("compressed requests are not read"));
        }
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("the connection has no peer"))?;
        if peer.is_turned_away() {
            peer.leave();
            let words =
                "this client has too many connections: is its certificate on several machines?";
            return Err(Status::resource_exhausted(words));
        }
        if !peer.may_open() {
            self.hub.counters().closed(Closed::Flood);
            return Err(Status::resource_exhausted("the client opens streams without end"));
        }
        let requests = Messages::<V::Message>::new(Body::new(request.into_body()));
        let (responses, messages) = mpsc::channel(MAX_WAITING_RESPONSES);
        let (streams, end, open) = (self.clone(), End::default(), peer.open());
        let body = MessageBody::new(messages, Arc::clone(&end));
        self.tasks.spawn(async move {
            if let Err(status) = streams.run::<V>(&peer, only, requests, &responses).await {
                drop(end.set(status));
            }
            drop((responses, open));
        });
        let mut response = http::Response::new(ResponseBody::Messages(body));
        let headers = response.headers_mut();
        headers
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
        Ok(response)
    }
}

/// All services of the port.
#[derive(Clone)]
pub(crate) struct Services {
    streams: Streams,
    /// What tonic serves: nothing but the answer that there is no such service.
    others: Routes,
}

impl Services {
    pub(crate) fn new(streams: &Streams) -> Self {
        Self { streams: streams.clone(), others: Routes::default().prepare() }
    }

    /// Answers a request that has its [`Peer`] as an extension.
    pub(crate) async fn call(
        &self,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<ResponseBody>, Infallible> {
        let path = request.uri().path().to_owned();
        let Some((service, method)) = Service::of(&path) else {
            // (It is always ready, and never fails.)
            let response = self.others.clone().call(request).await;
            return response.map(|response| response.map(ResponseBody::Other));
        };
        let response = if method == service.delta {
            self.streams.open::<DeltaStream>(service.only, request)
        } else if method == service.stream {
            self.streams.open::<SotwStream>(service.only, request)
        } else {
            Err(Status::unimplemented(format!(
                "only {} and {} are served: set `api_type` to DELTA_GRPC or GRPC",
                service.delta, service.stream
            )))
        };
        Ok(response.unwrap_or_else(|status| status.into_http().map(ResponseBody::Other)))
    }
}
