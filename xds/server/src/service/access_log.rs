//! The access log service (`envoy.service.accesslog.v3`): a client tells of calls that it has served.
//!
//! What is told goes to whoever decides who may connect ([`Admission::logged`]); nothing is kept here.
//! Each worker of an Envoy has a connection of its own for it, with a stream or two, and none as long as
//! there is nothing to tell. A client that tells much is read slowly, and the rest it forgets itself; it
//! is not cut, since its callers may have a lot to be told of.
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

/// How long a client may tell nothing before its stream ends: it opens another when there is something.
const SILENCE: Duration = Duration::from_secs(30);

/// What a message may be large to count as one.
const MESSAGE_SIZE: usize = 16 << 10;

impl Streams {
    /// A call of one of the methods.
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

    /// Reads what a client tells, to the end of its stream.
    async fn read_log(
        &self,
        peer: &Peer,
        mut requests: Messages<StreamAccessLogsMessage>,
        responses: &mpsc::Sender<Message>,
    ) -> Result<(), Status> {
        let Some(_permit) = requests.quota().log() else {
            self.hub.counters().closed(CloseReason::TooManyStreams);
            // Its connection has the seat of one that xDS may need.
            peer.leave_if_idle();
            let message = "too many streams tell of calls, of this client or of all: what this one would tell is lost";
            return Err(Status::resource_exhausted(message));
        };
        let _open = peer.open();
        let mut disconnections = self.hub.disconnections();
        let mut known: Option<(Node, _)> = None;
        loop {
            let patience = if known.is_none() { FIRST_REQUEST_DEADLINE } else { SILENCE };
            let ready_at = requests.quota().log_limiter().lock().ready_at();
            // (What it is slowed by is not its silence.)
            let patience = patience + ready_at.saturating_duration_since(Instant::now());
            let message = tokio::select! {
                message = timeout(patience, next(&mut requests, ready_at)) => message,
                Ok(()) = disconnections.changed(), if known.is_some() => {
                    if let Some((node, _)) = &known {
                        // Perhaps it was this client: then its connection ends too.
                        self.admit(peer, node).inspect_err(|_| peer.leave())?;
                    }
                    continue;
                }
                end = self.stream_end(peer) => return Err(end),
            };
            let message = match message {
                Ok(message) => message.map_err(|error| self.read_failure(peer, error))?,
                Err(_) if known.is_none() => return Err(Status::unavailable("no message came")),
                Err(_) => None,
            };
            let Some(message) = message else {
                // There is room: it is the only one.
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
                let client = self.admit(peer, &node)?;
                &known.insert((node, client)).1
            };
            self.admission.logged(client, calls);
        }
    }
}
