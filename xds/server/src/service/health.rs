//! gRPC's health protocol (`grpc.health.v1.Health`): whether xDS is served here.
//!
//! It is served from the first moment at which a client can ask. A watch reports the shutdown
//! before its stream ends. tonic-health has the same two methods without the limits of streams
//! here, and the limits are most of the code.

use hyper::body::Incoming;
use ironmesh_xds_wire::frame;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

use super::Streams;
use super::names::AGGREGATED;
use super::run::FIRST_REQUEST_DEADLINE;
use crate::body::{Message, MessageBody};
use crate::messages::Messages;
use crate::peer::Peer;

/// The request: which service's health.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    /// The name of a service, or empty for the server.
    #[prost(string, tag = "1")]
    service: String,
}

/// The health of a service.
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
    /// Sent to watches only.
    ServiceUnknown = 3,
}

/// The name of the service.
pub(super) const NAME: &str = "grpc.health.v1.Health";

impl Streams {
    /// Handles a call of one of the methods.
    pub(super) fn health(
        &self,
        method: &str,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<MessageBody>, Status> {
        let is_watched = match method {
            "Check" => false,
            "Watch" => true,
            _ => return Err(Status::unimplemented("only Check and Watch are served")),
        };
        self.open(request, move |streams, peer, requests, responses| async move {
            streams.serve_health(&peer, requests, &responses, is_watched).await
        })
    }

    async fn serve_health(
        &self,
        peer: &Peer,
        mut requests: Messages<HealthCheckRequest>,
        responses: &mpsc::Sender<Message>,
        is_watched: bool,
    ) -> Result<(), Status> {
        let request = tokio::select! {
            request = timeout(FIRST_REQUEST_DEADLINE, requests.next()) => request,
            end = self.stream_end(peer) => return Err(end),
        };
        let request = request.map_err(|_| Status::unavailable("no request received"))?;
        let request = request.map_err(|error| self.read_failure(peer, error))?;
        let Some(HealthCheckRequest { service }) = request else { return Ok(()) };
        let send = |status: ServingStatus| {
            let message = HealthCheckResponse { status: status.into() };
            // At most two are sent, and the queue holds more.
            drop(responses.try_send(frame(&message, std::iter::empty())));
        };
        if !service.is_empty() && service != AGGREGATED {
            if !is_watched {
                return Err(Status::not_found(format!(
                    "unknown service: use `{AGGREGATED}`, or an empty name for the server"
                )));
            }
            // "If the requested service is unknown when the call is received": a message, and the
            // stream stays open (health.proto, Watch). No further service can become known.
            send(ServingStatus::ServiceUnknown);
            tokio::select! {
                () = responses.closed() => return Ok(()),
                end = self.stream_end(peer) => return Err(end),
            }
        }
        if !self.shutdown.is_cancelled() {
            send(ServingStatus::Serving);
            if !is_watched {
                return Ok(());
            }
            tokio::select! {
                // A shutdown ends the streams too, and must come first.
                biased;
                () = self.shutdown.cancelled() => {}
                () = responses.closed() => return Ok(()),
                () = peer.end_of_streams() => return Err(self.stream_end(peer).await),
            }
        }
        send(ServingStatus::NotServing);
        if is_watched { Err(self.stream_end(peer).await) } else { Ok(()) }
    }
}
