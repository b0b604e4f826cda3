//! gRPC's health protocol (`grpc.health.v1.Health`): whether xDS is served here.
//!
//! It is served from the moment on from which anybody can ask. What can be told is that it ends: whoever
//! watches is told so before the stream ends. tonic-health has the same two methods, without the bounds
//! that streams have here; they are the larger part.

use std::convert::Infallible;
use std::future::Ready;
use std::task::{Context, Poll};

use ironmesh_xds_wire::frame;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use super::Streams;
use super::names::{Aggregated, DiscoveryService as _};
use super::run::FIRST_REQUEST_DEADLINE;
use crate::body::Message;
use crate::messages::Messages;
use crate::peer::Peer;

/// Whose health is asked for.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    /// The name of a service; empty: that of the server.
    #[prost(string, tag = "1")]
    service: String,
}

/// How it is.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
}

/// The service.
#[derive(Clone)]
pub(super) struct Health {
    streams: Streams,
}

impl Health {
    pub(super) fn new(streams: &Streams) -> Self {
        Self { streams: streams.clone() }
    }

    fn open(
        &self,
        request: http::Request<Body>,
        is_watched: bool,
    ) -> Result<http::Response<Body>, Status> {
        self.streams.open(request, move |streams, peer, requests, responses| async move {
            streams.tell_health(&peer, Messages::new(requests), &responses, is_watched).await
        })
    }
}

impl NamedService for Health {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl Service<http::Request<Body>> for Health {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let response = match request.uri().path().rsplit('/').next() {
            Some("Check") => self.open(request, false),
            Some("Watch") => self.open(request, true),
            _ => Err(Status::unimplemented("only Check and Watch are served")),
        };
        std::future::ready(Ok(response.unwrap_or_else(Status::into_http)))
    }
}

impl Streams {
    async fn tell_health(
        &self,
        peer: &Peer,
        mut requests: Messages<HealthCheckRequest>,
        responses: &mpsc::Sender<Message>,
        is_watched: bool,
    ) -> Result<(), Status> {
        let request = tokio::select! {
            request = timeout(FIRST_REQUEST_DEADLINE, requests.next()) => request,
            end = self.is_to_end(peer) => return Err(end),
        };
        let request = request.map_err(|_| Status::unavailable("no request came"))??;
        let Some(HealthCheckRequest { service }) = request else { return Ok(()) };
        if !service.is_empty() && service != Aggregated::NAME {
            return Err(Status::not_found(format!(
                "only the health of `{}` is known, and by an empty name that of the server",
                Aggregated::NAME
            )));
        }
        let tell = |status: ServingStatus| {
            let message = HealthCheckResponse { status: status.into() };
            // Two are the most, and there is room for more.
            drop(responses.try_send(frame(&message, std::iter::empty())));
        };
        if !self.shutdown.is_cancelled() {
            tell(ServingStatus::Serving);
            if !is_watched {
                return Ok(());
            }
            tokio::select! {
                // A shutdown ends the streams too, and comes first.
                biased;
                () = self.shutdown.cancelled() => {}
                () = responses.closed() => return Ok(()),
                () = peer.streams_are_to_end() => return Err(self.is_to_end(peer).await),
            }
        }
        tell(ServingStatus::NotServing);
        if is_watched { Err(self.is_to_end(peer).await) } else { Ok(()) }
    }
}
