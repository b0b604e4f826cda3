//! The client status discovery service (CSDS, `envoy.service.status.v3`): a client is told how it stands
//! in the eyes of the server.
//!
//! Each sees itself, and nobody else, whatever it asks for: its certificate says who it is, as on every
//! other stream (invariant 2). No secret is told, not even to the client whose it is.

use std::time::Duration;

use hyper::body::Incoming;
use ironmesh_xds_wire::pb::envoy::config::core::v3 as core;
use ironmesh_xds_wire::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse,
};
use ironmesh_xds_wire::{Node, frame};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::Streams;
use super::run::{FIRST_REQUEST_DEADLINE, MAX_FLOOD, SLOW_READER_DEADLINE, next};
use crate::body::{Message, MessageBody};
use crate::counters::Closed;
use crate::messages::Messages;
use crate::peer::Peer;

mod matchers;
mod told;

/// The name of the service.
pub(super) const NAME: &str = "envoy.service.status.v3.ClientStatusDiscoveryService";

impl Streams {
    /// A call of one of the methods.
    pub(super) fn client_status(
        &self,
        method: &str,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<MessageBody>, Status> {
        let is_stream = match method {
            "FetchClientStatus" => false,
            "StreamClientStatus" => true,
            _ => {
                let words = "only FetchClientStatus and StreamClientStatus are served";
                return Err(Status::unimplemented(words));
            }
        };
        self.open(request, move |streams, peer, requests, responses| async move {
            streams.tell_status(&peer, requests, &responses, is_stream).await
        })
    }

    /// Answers each request of a stream, or the one of a single call.
    async fn tell_status(
        &self,
        peer: &Peer,
        mut requests: Messages<ClientStatusRequest>,
        responses: &mpsc::Sender<Message>,
        is_stream: bool,
    ) -> Result<(), Status> {
        // Answers are large, and what waits in one is held for nobody else: so there is one at a time.
        let Some(mut pace) = peer.status_turn() else {
            self.hub.counters().closed(Closed::TooManyStreams);
            let words =
                "this connection has a stream or call of this service already, and one is the most";
            return Err(Status::resource_exhausted(words));
        };
        // Only the first request of a stream must have it.
        let mut node = None;
        loop {
            let patience = if node.is_none() { FIRST_REQUEST_DEADLINE } else { Duration::MAX };
            let request = tokio::select! {
                request = timeout(patience, next(&mut requests, pace.ready_at())) => request,
                end = self.is_to_end(peer) => return Err(end),
            };
            let request = request.map_err(|_| Status::unavailable("no request came"))?;
            let request = request.map_err(|error| self.unread(peer, error))?;
            let Some(mut request) = request else { return Ok(()) };
            if pace.take(1, Instant::now()) >= MAX_FLOOD {
                self.hub.counters().closed(Closed::Flood);
                return Err(Status::resource_exhausted("the client asks without end"));
            }
            if let Some(again) = request.node.take() {
                node = Some(Node::from(again));
            }
            let known = node.as_ref().filter(|node| !node.id.is_empty()).ok_or_else(|| {
                Status::invalid_argument(
                    "the first request must have a `node` with the client's own id",
                )
            })?;
            let response = self.status_of(peer, known, &request)?;
            let frame = frame(&response, std::iter::empty());
            tokio::select! {
                sent = timeout(SLOW_READER_DEADLINE, responses.send(frame)) => match sent {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Ok(()),
                    Err(_) => {
                        self.hub.counters().closed(Closed::SlowReader);
                        return Err(Status::resource_exhausted("the client reads too slowly"));
                    }
                },
                end = self.is_to_end(peer) => return Err(end),
            }
            if !is_stream {
                return Ok(());
            }
        }
    }

    /// The client itself, if it is among those that it asks for. It is admitted anew each time: it may have
    /// been shut out meanwhile.
    fn status_of(
        &self,
        peer: &Peer,
        node: &Node,
        request: &ClientStatusRequest,
    ) -> Result<ClientStatusResponse, Status> {
        let client = self.admit(peer, node)?;
        if !matchers::matches(&request.node_matchers, &node.id)? {
            return Ok(ClientStatusResponse::default());
        }
        let config = match self.hub.report(&client) {
            Some(report) => told::config(&report, request.exclude_resource_contents),
            // It has had no stream of xDS yet.
            None => ClientConfig { node: Some(core::Node::from(node)), ..ClientConfig::default() },
        };
        Ok(ClientStatusResponse { config: vec![config] })
    }
}
