//! The client status discovery service (CSDS, `envoy.service.status.v3`): a client sees its own
//! sync status.
//!
//! Each client sees itself only, whatever it requests: its certificate identifies it, as on every
//! other stream (invariant 2). No answer contains a secret, not even the client's own.
//!
//! An answer is large, newly built, and stored for its client alone. So it is built on a thread
//! where no stream waits for it, and each client has one until HTTP/2 has released its last byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use ironmesh_xds_wire::pb::envoy::config::core::v3 as core;
use ironmesh_xds_wire::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse,
};
use ironmesh_xds_wire::{Node, frame};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::Streams;
use super::run::{FIRST_REQUEST_DEADLINE, MAX_FLOOD, SLOW_READER_DEADLINE, next};
use crate::body::{Message, MessageBody};
use crate::counters::CloseReason;
use crate::hub::{ClientKey, Hub};
use crate::memory_quota::MemoryQuota;
use crate::messages::Messages;
use crate::peer::Peer;

mod config;
mod matchers;

/// The name of the service.
pub(super) const NAME: &str = "envoy.service.status.v3.ClientStatusDiscoveryService";

impl Streams {
    /// Handles a call of one of the methods.
    pub(super) fn client_status(
        &self,
        method: &str,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<MessageBody>, Status> {
        let is_stream = match method {
            "FetchClientStatus" => false,
            "StreamClientStatus" => true,
            _ => {
                let message = "only FetchClientStatus and StreamClientStatus are served";
                return Err(Status::unimplemented(message));
            }
        };
        self.open(request, move |streams, peer, requests, responses| async move {
            let _open = peer.open();
            streams.serve_status(&peer, requests, &responses, is_stream).await
        })
    }

    /// Answers each request of a stream, or the one of a unary call.
    async fn serve_status(
        &self,
        peer: &Peer,
        mut requests: Messages<ClientStatusRequest>,
        responses: &mpsc::Sender<Message>,
        is_stream: bool,
    ) -> Result<(), Status> {
        let Some(mut limiter) = peer.status_permit() else {
            self.hub.counters().closed(CloseReason::TooManyStreams);
            let message = "this connection already has a stream or call of this service, and the limit is one";
            return Err(Status::resource_exhausted(message));
        };
        // Only the first request of a stream must have it.
        let mut node = None;
        let mut disconnections = self.hub.disconnections();
        loop {
            let patience = if node.is_none() { FIRST_REQUEST_DEADLINE } else { Duration::MAX };
            let request = tokio::select! {
                request = timeout(patience, next(&mut requests, limiter.ready_at())) => request,
                Ok(()) = disconnections.changed(), if node.is_some() => {
                    if let Some(node) = &node {
                        // It may be this client: then its connection ends too.
                        self.admit(peer, node).inspect_err(|_| peer.leave())?;
                    }
                    continue;
                }
                end = self.stream_end(peer) => return Err(end),
            };
            let request = request.map_err(|_| Status::unavailable("no request received"))?;
            let request = request.map_err(|error| self.read_failure(peer, error))?;
            let Some(mut request) = request else { return Ok(()) };
            if limiter.take(1, Instant::now()) >= MAX_FLOOD {
                self.hub.counters().closed(CloseReason::Flood);
                return Err(Status::resource_exhausted(
                    "the client exceeds the rate limit for status requests",
                ));
            }
            if let Some(again) = request.node.take() {
                node = Some(Node::from(again));
            }
            let known = node.as_ref().filter(|node| !node.id.is_empty()).ok_or_else(|| {
                Status::invalid_argument(
                    "the first request must have a `node` with the client's own id",
                )
            })?;
            let permit = tokio::select! {
                permit = timeout(SLOW_READER_DEADLINE, requests.quota().answer()) => permit,
                () = responses.closed() => return Ok(()),
                end = self.stream_end(peer) => return Err(end),
            };
            let permit = permit.map_err(|_| {
                self.hub.counters().closed(CloseReason::SlowReader);
                Status::resource_exhausted(
                    "the client has not read its previous answer, on this or another connection",
                )
            })?;
            let answer = tokio::select! {
                answer = self.status_answer(peer, known, request, requests.quota(), permit) => answer?,
                () = responses.closed() => return Ok(()),
                end = self.stream_end(peer) => return Err(end),
            };
            // The queue is empty: another answer would hold the permit.
            if responses.try_send(answer).is_err() {
                return Ok(());
            }
            if !is_stream {
                return Ok(());
            }
        }
    }

    /// Builds the answer, if the request selects this client. Admission runs for each request: the
    /// client may have been revoked meanwhile.
    async fn status_answer(
        &self,
        peer: &Peer,
        node: &Node,
        request: ClientStatusRequest,
        quota: &MemoryQuota,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Message, Status> {
        let client = self.admit_new(peer, node).await?;
        let is_selected = matchers::matches(&request.node_matchers, &node.id)?;
        let (hub, node, building) = (Arc::clone(&self.hub), node.clone(), quota.building().await);
        let answer = move || {
            let response = if is_selected {
                status_of(&hub, &client, &node, request.exclude_resource_contents)
            } else {
                ClientStatusResponse::default()
            };
            drop(building);
            with_permit(frame(&response, std::iter::empty()), permit)
        };
        let answer = tokio::task::spawn_blocking(answer).await;
        answer.map_err(|error| Status::internal(format!("the status cannot be built: {error}")))
    }
}

/// The sync status of a client. It takes as long as encoding the client's resource set.
fn status_of(
    hub: &Hub,
    client: &ClientKey,
    node: &Node,
    exclude_contents: bool,
) -> ClientStatusResponse {
    let config = match hub.report(client) {
        Some(report) => config::client_config(&report, exclude_contents),
        // The client has had no xDS stream yet.
        None => ClientConfig { node: Some(core::Node::from(node)), ..ClientConfig::default() },
    };
    ClientStatusResponse { config: vec![config] }
}

/// Attaches its client's permit to a message, until its last byte is released.
fn with_permit(message: Message, permit: Option<OwnedSemaphorePermit>) -> Message {
    let permit = Arc::new(permit);
    let held = |bytes| Bytes::from_owner(AnswerBytes { bytes, _permit: Arc::clone(&permit) });
    message.into_iter().map(held).collect()
}

/// Bytes with the permit of their client.
struct AnswerBytes {
    bytes: Bytes,
    _permit: Arc<Option<OwnedSemaphorePermit>>,
}

impl AsRef<[u8]> for AnswerBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
