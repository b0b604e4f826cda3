//! The health discovery service (HDS, `envoy.service.health.v3`): a client probes endpoints, and reports their health.
//!
//! Which endpoints, and what a report means, is for the caller to decide ([`Admission::health_checks`],
//! [`Admission::health_reported`]); nothing is kept here. An Envoy reports only after it has got a specifier on its stream,
//! so each stream gets one at once, also an empty one.
//!
//! [`Admission::health_checks`]: super::Admission::health_checks
//! [`Admission::health_reported`]: super::Admission::health_reported

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use ironmesh_xds_wire::pb::envoy::service::health::v3::{
    HealthCheckRequestOrEndpointHealthResponse, HealthCheckSpecifier,
};
use ironmesh_xds_wire::{HealthMessage, frame};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tracing::Span;

use super::Streams;
use super::run::{FIRST_REQUEST_DEADLINE, MAX_FLOOD, SLOW_READER_DEADLINE, next};
use crate::body::{Message, MessageBody};
use crate::counters::CloseReason;
use crate::hub::{HealthStream, HealthStreamEnd};
use crate::messages::Messages;
use crate::peer::Peer;
use crate::rate_limiter::RateLimiter;

/// The name of the service.
pub(super) const NAME: &str = "envoy.service.health.v3.HealthDiscoveryService";

/// The maximum size of a message. Envoy's first one has 61 KB, and a report some 130 bytes for each endpoint.
const MAX_MESSAGE: u32 = 256 << 10;

/// The interval at which a client may send reports, and the burst. The least interval of a specifier is a second.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
const REPORT_BURST: u32 = 10;

type Requests = Messages<HealthCheckRequestOrEndpointHealthResponse>;

impl Streams {
    /// Handles a call of one of the methods.
    pub(super) fn health_discovery(
        &self,
        method: &str,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<MessageBody>, Status> {
        if method != "StreamHealthCheck" {
            return Err(Status::unimplemented("only StreamHealthCheck is served"));
        }
        self.open(request, |streams, peer, requests, responses| async move {
            let _open = peer.open();
            streams.discover_health(&peer, requests.with_limit(MAX_MESSAGE), &responses).await
        })
    }

    /// Serves one stream until it ends.
    async fn discover_health(
        &self,
        peer: &Peer,
        mut requests: Requests,
        responses: &mpsc::Sender<Message>,
    ) -> Result<(), Status> {
        let first = tokio::select! {
            first = timeout(FIRST_REQUEST_DEADLINE, requests.next()) => first,
            end = self.stream_end(peer) => return Err(end),
        };
        let first = first.map_err(|_| Status::unavailable("no request received"))?;
        let Some(first) = first.map_err(|error| self.read_failure(peer, error))? else {
            return Ok(());
        };
        let node = match HealthMessage::from(first) {
            HealthMessage::Request(node) => node.filter(|node| !node.id.is_empty()),
            HealthMessage::Report(_) => None,
        };
        let node = node.ok_or_else(|| {
            Status::invalid_argument(
                "the first message must be a `health_check_request` with a `node` that has an id",
            )
        })?;
        let disconnections = self.hub.disconnections();
        let client = self.admit_new(peer, &node).await?;
        let mut stream = self.hub.open_health_stream(&client);
        Span::current().record("client", &*client);
        if disconnections.has_changed().unwrap_or(true) {
            // It may be this client, between its admission and the registration of its stream.
            self.admit(peer, &node)?;
        }
        let mut checks = self.admission.health_checks(&client, &node);
        drop(disconnections);
        tracing::debug!(%client, address = %peer.address, "health discovery stream opened");
        let mut limiter = RateLimiter::new(REPORT_INTERVAL, REPORT_BURST);
        let mut specifier = Some(Arc::clone(&checks.borrow_and_update()));
        loop {
            if let Some(specifier) = specifier.take() {
                tokio::select! {
                    sent = self.send_specifier(&specifier, responses) => sent?,
                    end = self.health_stream_end(peer, &mut stream) => return Err(end),
                }
            }
            let message = tokio::select! {
                message = next(&mut requests, limiter.ready_at()) => message,
                Ok(()) = checks.changed() => {
                    specifier = Some(Arc::clone(&checks.borrow_and_update()));
                    continue;
                }
                end = self.health_stream_end(peer, &mut stream) => return Err(end),
            };
            let Some(message) = message.map_err(|error| self.read_failure(peer, error))? else {
                return Ok(());
            };
            if limiter.take(1, Instant::now()) >= MAX_FLOOD {
                self.hub.counters().closed(CloseReason::Flood);
                let message = "the client exceeds the rate limit for health reports";
                return Err(Status::resource_exhausted(message));
            }
            match HealthMessage::from(message) {
                HealthMessage::Report(endpoints) if stream.is_newest() => {
                    if checks.has_changed().is_err() {
                        // A newer stream took its place, and has ended.
                        let before = Arc::clone(&checks.borrow());
                        checks = self.admission.health_checks(&client, &node);
                        let current = Arc::clone(&checks.borrow_and_update());
                        specifier = Some(current).filter(|current| *current != before);
                    }
                    self.admission.health_reported(&client, endpoints);
                }
                // In a hot restart, the new process counts.
                HealthMessage::Report(_) => {}
                HealthMessage::Request(_) => {
                    let message = "only the first message may be a `health_check_request`";
                    return Err(Status::invalid_argument(message));
                }
            }
        }
    }

    async fn send_specifier(
        &self,
        specifier: &HealthCheckSpecifier,
        responses: &mpsc::Sender<Message>,
    ) -> Result<(), Status> {
        let sending = responses.send(frame(specifier, std::iter::empty()));
        let sent = timeout(SLOW_READER_DEADLINE, sending).await.map_err(|_| {
            self.hub.counters().closed(CloseReason::SlowReader);
            Status::resource_exhausted("the client reads too slowly")
        })?;
        sent.map_err(|_| Status::cancelled("the client has disconnected"))
    }

    /// Returns the final status when a stream must end.
    async fn health_stream_end(&self, peer: &Peer, stream: &mut HealthStream) -> Status {
        let end = tokio::select! {
            // The sender lives as long as the stream, or has sent its last value.
            Ok(end) = stream.end.wait_for(Option::is_some) => end.clone(),
            end = self.stream_end(peer) => return end,
        };
        match end {
            Some(HealthStreamEnd::Disconnected(reason)) => {
                peer.leave();
                Status::permission_denied(&*reason)
            }
            Some(HealthStreamEnd::Displaced) | None => {
                self.hub.counters().closed(CloseReason::TooManyStreams);
                let message =
                    "this client has opened newer health discovery streams: the limit is two";
                Status::resource_exhausted(message)
            }
        }
    }
}
