//! The access log service (`envoy.service.accesslog.v3`), by which a client reports calls that it
//! has served.
//!
//! The calls go to [`Admission::logged`]; nothing is kept here. Each worker of an Envoy has a
//! connection of its own for them, with a stream or two, and none while there is nothing to report.
//! A client that reports much is read slowly, and drops the rest itself. It is not disconnected,
//! because its callers may cause many reports.
//!
//! [`Admission::logged`]: super::Admission::logged

use std::time::Duration;

use hyper::body::Incoming;
use ironmesh_xds_wire::pb::envoy::service::accesslog::v3::{
    StreamAccessLogsMessage, StreamAccessLogsResponse,
};
use ironmesh_xds_wire::{CallLog, Node, frame};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::Streams;
use super::run::{FIRST_REQUEST_DEADLINE, next};
use crate::body::{Message, MessageBody};
use crate::counters::CloseReason;
use crate::messages::Messages;
use crate::peer::Peer;

/// The name of the service.
pub(super) const NAME: &str = "envoy.service.accesslog.v3.AccessLogService";

/// The time without a message after which a stream ends: the client opens a new stream when it has
/// something to report.
const SILENCE: Duration = Duration::from_secs(30);

/// The size up to which a message counts as one.
const MESSAGE_SIZE: usize = 16 << 10;

impl Streams {
    /// Handles a call of one of the methods.
    pub(super) fn access_log(
        &self,
        method: &str,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<MessageBody>, Status> {
        if method != "StreamAccessLogs" {
            return Err(Status::unimplemented("only StreamAccessLogs is served"));
        }
        self.open(request, move |streams, peer, requests, responses| async move {
            streams.read_log(&peer, requests, &responses).await
        })
    }

    /// Reads the reports of a client until its stream ends.
    async fn read_log(
        &self,
        peer: &Peer,
        mut requests: Messages<StreamAccessLogsMessage>,
        responses: &mpsc::Sender<Message>,
    ) -> Result<(), Status> {
        let Some(_permit) = requests.quota().log() else {
            self.hub.counters().closed(CloseReason::TooManyStreams);
            // Its connection occupies a permit that xDS may need.
            peer.leave_if_idle();
            let message = "too many access log streams, of this client or of all clients: the calls on this one are lost";
            return Err(Status::resource_exhausted(message));
        };
        let _open = peer.open();
        let mut disconnections = self.hub.disconnections();
        let mut known: Option<(Node, _)> = None;
        loop {
            let patience = if known.is_none() { FIRST_REQUEST_DEADLINE } else { SILENCE };
            let ready_at = requests.quota().log_limiter().lock().ready_at();
            // A delay by the rate limit is not silence of the client.
            let patience = patience + ready_at.saturating_duration_since(Instant::now());
            let message = tokio::select! {
                message = timeout(patience, next(&mut requests, ready_at)) => message,
                Ok(()) = disconnections.changed(), if known.is_some() => {
                    if let Some((node, _)) = &known {
                        // It may be this client: then its connection ends too.
                        self.admit(peer, node).inspect_err(|_| peer.leave())?;
                    }
                    continue;
                }
                end = self.stream_end(peer) => return Err(end),
            };
            let message = match message {
                Ok(message) => message.map_err(|error| self.read_failure(peer, error))?,
                Err(_) if known.is_none() => {
                    return Err(Status::unavailable("no message received"));
                }
                Err(_) => None,
            };
            let Some(message) = message else {
                // The queue is empty: this is the only response.
                drop(responses.try_send(frame(&StreamAccessLogsResponse {}, std::iter::empty())));
                return Ok(());
            };
            let size = prost::Message::encoded_len(&message);
            let cost = u32::try_from(1 + size / MESSAGE_SIZE).unwrap_or(u32::MAX);
            requests.quota().log_limiter().lock().take(cost, Instant::now());
            let CallLog { node, calls } = CallLog::from(message);
            let node = node.filter(|node| !node.id.is_empty());
            let client = if let Some((first, client)) = &known {
                if node.is_some_and(|again| again.id != first.id) {
                    let message = "the node id changed within the stream";
                    return Err(Status::invalid_argument(message));
                }
                client
            } else {
                let node = node.ok_or_else(|| {
                    Status::invalid_argument(
                        "the first message must have an `identifier` with a `node` that has an id",
                    )
                })?;
                let client = self.admit_new(peer, &node).await?;
                &known.insert((node, client)).1
            };
            self.admission.logged(client, calls);
        }
    }
}
