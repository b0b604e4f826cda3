//! The task of a stream, of either variant: it moves requests, sets and time into the state
//! machine, and responses out.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ironmesh_xds_wire::{Node, ResourceType};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::Status;
use tracing::Span;

use super::{StreamRejection, Streams};
use crate::body::Message;
use crate::counters::CloseReason;
use crate::hub::{ClientKey, Connection, LiveStream, Place, RETRY_DELAY, Reconnect, Refused};
use crate::messages::{Messages, ReadError};
use crate::peer::Peer;
use crate::poll_when_woken::poll_when_woken;
use crate::rate_limiter::RateLimiter;
use crate::separate::Separate;
use crate::stream::{Nacked, StreamOutput};
use crate::variant::Variant;

/// The time that a client may take to send its node.
pub(super) const FIRST_REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// The time that a reader may take nothing before its stream ends.
pub(super) const SLOW_READER_DEADLINE: Duration = Duration::from_secs(60);

/// The interval at which a client may send requests, and the burst.
///
/// An Envoy that starts with ten thousand names and requests each by itself needs twenty thousand,
/// with the ACKs. Later requests follow the pace of pushes: each has one ACK, and a debounce of
/// some 20 ms.
const REQUEST_INTERVAL: Duration = Duration::from_millis(2);
const BURST: u32 = 20_000;

/// The size up to which a request counts as one.
const REQUEST_SIZE: usize = 64 << 10;

/// The time that the rate limit may delay a client before its stream ends.
pub(super) const MAX_FLOOD: Duration = Duration::from_secs(60);

impl Streams {
    /// Runs one stream until it ends; `Ok` if the client ended it. `only` is the type of a service
    /// that has no other.
    pub(super) async fn run<V: Variant>(
        &self,
        peer: &Peer,
        only: Option<ResourceType>,
        mut requests: Messages<V::Message>,
        responses: &mpsc::Sender<Message>,
    ) -> Result<(), Status> {
        let first = tokio::select! {
            first = timeout(FIRST_REQUEST_DEADLINE, requests.next()) => first,
            end = self.stream_end(peer) => return Err(end),
        };
        let first = first.map_err(|_| Status::unavailable("no request received"))?;
        let first = first.map_err(|error| self.read_failure(peer, error))?;
        let Some(first) = first else { return Ok(()) };
        let mut limiter = RateLimiter::new(REQUEST_INTERVAL, BURST);
        limiter.take(cost(&first), Instant::now());
        let mut request = request::<V>(first, only)?;
        let node = V::node(&mut request).take().filter(|node| !node.id.is_empty());
        let node = node.ok_or_else(|| {
            Status::invalid_argument("the first request of a stream must have a node with an id")
        })?;
        let node_id = node.id.clone();
        let disconnections = self.hub.disconnections();
        let client = self.admit(peer, &node)?;
        // Before the admission is completed: a client without a place is not claimed either.
        let place = self.take_place(peer, &client).await?;
        self.complete(peer, &node, &client).await?;
        let reconnect = match (V::is_fresh(&request), only) {
            (true, None) => Reconnect::Fresh,
            (true, Some(_)) => Reconnect::PerhapsFresh,
            (false, _) if V::type_url(&mut request) == ResourceType::Cluster.url() => {
                Reconnect::ResumedWithClusters
            }
            (false, _) => Reconnect::Resumed,
        };
        let limit = self.limits.streams_per_client;
        let live = LiveStream::begin(peer.address, only.is_none());
        let connection = self.hub.connect(client, node.clone(), reconnect, limit, live).map_err(|client| {
            self.hub.counters().closed(CloseReason::TooManyStreams);
            tracing::warn!(%client, address = %peer.address, limit, reason = "too many streams of this client", "xDS stream rejected");
            Status::resource_exhausted(format!("this client has too many streams: the limit is {limit}"))
        });
        let mut connection = connection?;
        place.iter().for_each(Place::opened);
        Span::current().record("client", &*connection.client);
        if disconnections.has_changed().unwrap_or(true) {
            // It may be this client, between its admission and the registration of its stream.
            self.admit(peer, &node)?;
        }
        drop((node, disconnections));
        tracing::info!(client = %connection.client, address = %peer.address, "xDS stream opened");
        let mut variant = V::open(&mut connection);
        if only.is_none() {
            variant.resend_endpoints(&connection.take_unanswered());
        }
        let mut stream = Separate::new(variant, only);
        // Created once and not at each iteration, which would register and deregister a waker each
        // time.
        let end = self.end(peer, Arc::clone(&connection.client), connection.disconnects.clone());
        let mut end = pin!(poll_when_woken(end));
        let mut timer = pin!(sleep_until(Instant::now()));
        let set = connection.sets.borrow_and_update().clone();
        let mut has_set = set.is_some();
        let mut outputs = set.map_or_else(Vec::new, |set| stream.on_set(set, Instant::now()));
        outputs.extend(self.answer(&mut stream, &request, &mut connection));
        drop(request);
        let end = loop {
            let delivered = tokio::select! {
                biased;
                delivered = deliver(stream.variant(), &connection, outputs, responses) => delivered,
                // Even while the task waits for a slow reader.
                end = end.as_mut() => Err(end),
            };
            if let Err(end) = delivered {
                break Err(end);
            }
            if has_set {
                // The initial versions are compared, and reported as far as possible.
                connection.initial_versions_compared();
            }
            let deadline = stream.deadline();
            // A timer that ends too early costs less than to set it for each push.
            let is_late = |deadline: &Instant| *deadline < timer.deadline() || timer.is_elapsed();
            if let Some(deadline) = deadline.filter(is_late) {
                timer.as_mut().reset(deadline);
            }
            outputs = tokio::select! {
                message = next(&mut requests, limiter.ready_at()) => match message {
                    Ok(Some(message)) if limiter.take(cost(&message), Instant::now()) >= MAX_FLOOD => {
                        connection.counters().closed(CloseReason::Flood);
                        break Err(Status::resource_exhausted("the client exceeds the rate limit for requests"));
                    }
                    Ok(Some(message)) => match self::request::<V>(message, only) {
                        Ok(mut request) => {
                            let node = V::node(&mut request).as_ref();
                            if node.is_some_and(|node| node.id != node_id) {
                                break Err(Status::invalid_argument("the node id changed within the stream"));
                            }
                            self.answer(&mut stream, &request, &mut connection)
                        }
                        Err(status) => break Err(status),
                    },
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(self.read_failure(peer, error)),
                },
                Ok(()) = connection.sets.changed() => {
                    let set = connection.sets.borrow_and_update().clone();
                    has_set |= set.is_some();
                    set.map_or_else(Vec::new, |set| stream.on_set(set, Instant::now()))
                }
                Ok(()) = connection.retries.changed() => {
                    let retries = Arc::clone(&connection.retries.borrow_and_update());
                    retries.iter().flat_map(|(of, name)| stream.on_retry(*of, name, Instant::now())).collect()
                }
                () = timer.as_mut(), if deadline.is_some() => {
                    let now = Instant::now();
                    let is_due = deadline.is_some_and(|deadline| now >= deadline);
                    if is_due { stream.on_timeout(now) } else { Vec::new() }
                }
                end = end.as_mut() => break Err(end),
            };
        };
        let reason = end.as_ref().err().map(ToString::to_string);
        tracing::info!(client = %connection.client, reason, "xDS stream closed");
        end
    }

    /// Admits a new stream of a client, and completes the admission.
    pub(super) async fn admit_new(&self, peer: &Peer, node: &Node) -> Result<ClientKey, Status> {
        let client = self.admit(peer, node)?;
        self.complete(peer, node, &client).await?;
        Ok(client)
    }

    async fn complete(&self, peer: &Peer, node: &Node, client: &ClientKey) -> Result<(), Status> {
        let completed = self.admission.complete(client, peer).await;
        completed.map_err(|rejection| self.rejected(peer, node, rejection))
    }

    /// The place of a client, unless the server has as many clients as it may. Then the connection ends, too: on it, the
    /// client would try this server again.
    async fn take_place(&self, peer: &Peer, client: &ClientKey) -> Result<Option<Place>, Status> {
        let Some(most) = self.limits.clients else { return Ok(None) };
        let mut place = self.hub.take_place(client, most);
        if place.as_ref().is_err_and(|refused| *refused == Refused::Again) {
            tokio::select! {
                () = sleep(RETRY_DELAY) => {}
                end = self.stream_end(peer) => return Err(end),
            }
            place = self.hub.take_place(client, most);
        }
        place.map(Some).map_err(|_| {
            peer.leave();
            self.hub.counters().closed(CloseReason::TooManyClients);
            if let Some(suppressed) = self.rejection_log.now(client.as_bytes().to_vec()) {
                tracing::warn!(%client, address = %peer.address, limit = most, suppressed, reason = "client limit reached", "xDS stream rejected");
            }
            Status::resource_exhausted(format!(
                "this control plane has reached its limit of {most} proxies: connect to a different address of the control plane"
            ))
        })
    }

    /// Admits a client, or logs why its stream is rejected.
    pub(super) fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, Status> {
        if let Some(fault) = node.fault() {
            return Err(Status::invalid_argument(fault));
        }
        self.admission.admit(peer, node).map_err(|rejection| self.rejected(peer, node, rejection))
    }

    /// Counts and logs a rejected stream; its final status.
    fn rejected(&self, peer: &Peer, node: &Node, rejection: StreamRejection) -> Status {
        peer.stream_rejected();
        self.hub.counters().closed(CloseReason::Rejected);
        let owner = self.admission.owner(&peer.certificate);
        let owner =
            owner.map_or_else(|| peer.address.ip().to_string(), |client| client.to_string());
        if let Some(suppressed) = self.rejection_log.now(owner.into_bytes()) {
            tracing::warn!(address = %peer.address, node = ?node.id, reason = %rejection, suppressed, "xDS stream rejected");
        }
        Status::permission_denied(rejection.0)
    }

    /// Handles a request, unless the client has too many names on all its streams.
    fn answer<V: Variant>(
        &self,
        stream: &mut Separate<V>,
        request: &V::Request,
        connection: &mut Connection,
    ) -> Vec<StreamOutput<V::Response>> {
        let outputs = stream.on_request(request, Instant::now());
        if connection.names.set(stream.variant().size()) > self.limits.names_per_client {
            return vec![StreamOutput::Close(
                "the client subscribes to too many names on all its streams",
            )];
        }
        outputs
    }

    /// Returns the final status when a stream of a client must end.
    async fn end(
        &self,
        peer: &Peer,
        client: ClientKey,
        mut cut: watch::Receiver<Arc<str>>,
    ) -> Status {
        let reason = tokio::select! {
            Ok(()) = cut.changed() => Arc::clone(&cut.borrow()),
            end = self.stream_end(peer) => return end,
        };
        self.hub.counters().closed(CloseReason::Disconnected);
        tracing::warn!(%client, address = %peer.address, %reason, "xDS stream aborted");
        // Its connection ends too.
        peer.leave();
        Status::permission_denied(&*reason)
    }

    /// The final status of a client whose next request cannot be read.
    pub(super) fn read_failure(&self, peer: &Peer, error: ReadError) -> Status {
        match error {
            ReadError::Status(status) => status,
            ReadError::QuotaExceeded(exceeded) => {
                self.hub.counters().closed(CloseReason::QuotaExceeded);
                tracing::warn!(address = %peer.address, reason = %exceeded, "xDS stream aborted");
                Status::resource_exhausted(exceeded.to_string())
            }
        }
    }

    /// Returns the final status when the streams of a peer must end.
    pub(super) async fn stream_end(&self, peer: &Peer) -> Status {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Status::unavailable("the control plane is shutting down"),
            () = peer.end_of_streams() => if peer.has_expired() {
                self.hub.counters().closed(CloseReason::Expired);
                tracing::warn!(address = %peer.address, reason = "certificate expired", "xDS stream aborted");
                Status::permission_denied("the certificate of this connection has expired: renew it and connect again")
            } else {
                Status::unavailable("the connection is closing: connect again")
            },
        }
    }
}

/// Reads the next request, not before `ready_at`: until then, what the client sends waits in
/// HTTP/2, up to the flow-control window.
pub(super) async fn next<M: prost::Message + Default>(
    requests: &mut Messages<M>,
    ready_at: Instant,
) -> Result<Option<M>, ReadError> {
    // A sleep yields to other tasks even if the time has passed.
    if ready_at > Instant::now() {
        sleep_until(ready_at).await;
    }
    requests.next().await
}

/// The number of requests that a request counts for.
fn cost(message: &impl prost::Message) -> u32 {
    u32::try_from(1 + message.encoded_len() / REQUEST_SIZE).unwrap_or(u32::MAX)
}

/// Decodes a message, and checks its type: an aggregated stream requires one; other streams may
/// omit it, and must not have another (R5).
fn request<V: Variant>(
    message: V::Message,
    only: Option<ResourceType>,
) -> Result<V::Request, Status> {
    let mut request = V::Request::from(message);
    let type_url = V::type_url(&mut request);
    match only {
        None if type_url.is_empty() => {
            return Err(Status::invalid_argument(
                "a request of an aggregated stream must have a type",
            ));
        }
        Some(only) if type_url.is_empty() => only.url().clone_into(type_url),
        Some(only) if type_url != only.url() => {
            let message = format!("this service serves only the type {}", only.url());
            return Err(Status::invalid_argument(message));
        }
        _ => {}
    }
    Ok(request)
}

/// Saves for the client's next stream what it must know of this one.
fn save_for_next_stream<V: Variant>(
    stream: &V,
    resource_type: ResourceType,
    connection: &Connection,
) {
    stream.save_for_next_stream(resource_type, connection);
    if resource_type == ResourceType::Cluster {
        connection.keep_unanswered(stream.unanswered_clusters());
    }
}

/// Carries out the outputs of the state machine.
async fn deliver<V: Variant>(
    stream: &V,
    connection: &Connection,
    outputs: Vec<StreamOutput<V::Response>>,
    responses: &mpsc::Sender<Message>,
) -> Result<(), Status> {
    let client = &connection.client;
    for output in outputs {
        match output {
            StreamOutput::Send(response) => {
                tracing::debug!(%client, ?response, "pushed");
                let frame = V::frame(&response);
                if let Some(push) = V::pushed(&response, frame.iter().map(Bytes::len).sum()) {
                    let resource_type = push.resource_type;
                    connection.counters().pushed(resource_type);
                    connection.record_push(resource_type, push.bytes);
                    connection.observe_push(&push);
                    save_for_next_stream(stream, resource_type, connection);
                }
                send(frame, connection, responses).await?;
            }
            StreamOutput::Acked(ack) => {
                connection.counters().acked(ack.resource_type);
                connection.record_ack(ack.resource_type);
                connection.observe_answer(ack.resource_type, None);
                connection.acked(&ack, stream.acked(ack.resource_type));
                save_for_next_stream(stream, ack.resource_type, connection);
            }
            StreamOutput::Nacked(nacked) => {
                connection.counters().nacked(nacked.resource_type);
                connection.record_nack(nacked.resource_type);
                connection.observe_answer(nacked.resource_type, Some(&nacked.error.message));
                let is_new = connection.nacked(&nacked);
                save_for_next_stream(stream, nacked.resource_type, connection);
                log_nack(client, &nacked, is_new);
            }
            StreamOutput::Late(resource_type) => {
                connection.counters().late_response(resource_type);
                tracing::warn!(%client, %resource_type, action = "continuing without its ACK", "push not answered within 15 s");
            }
            StreamOutput::Close(reason) => {
                connection.counters().closed(CloseReason::TooManyNames);
                return Err(Status::resource_exhausted(reason));
            }
        }
    }
    Ok(())
}

/// Adds a frame to the queue of the client, and waits for a slow reader as long as it may take.
async fn send(
    frame: Message,
    connection: &Connection,
    responses: &mpsc::Sender<Message>,
) -> Result<(), Status> {
    let has_left = || Status::cancelled("the client has disconnected");
    // Nearly always there is room, and no timer is needed.
    let frame = match responses.try_send(frame) {
        Ok(()) => return Ok(()),
        Err(TrySendError::Closed(_)) => return Err(has_left()),
        Err(TrySendError::Full(frame)) => frame,
    };
    if let Ok(sent) = timeout(SLOW_READER_DEADLINE, responses.send(frame)).await {
        return sent.map_err(|_| has_left());
    }
    connection.counters().closed(CloseReason::SlowReader);
    Err(Status::resource_exhausted("the client reads too slowly"))
}

/// Logs a NACK: as a warning if it needs attention, and only once.
fn log_nack(client: &str, nacked: &Nacked, is_new: bool) {
    let Nacked { resource_type, resources, error, is_final, .. } = nacked;
    let names: Vec<_> = resources.iter().map(|(name, _)| name).collect();
    let reason = &error.message;
    if names.is_empty() {
        // The push consisted of removals only: nothing can be bisected.
        tracing::warn!(client, %resource_type, reason, "proxy NACKed removals");
    } else if !is_final {
        tracing::debug!(client, %resource_type, ?names, reason, action = "bisecting the push", "proxy NACKed resources");
    } else if is_new {
        tracing::warn!(client, %resource_type, ?names, reason, action = "not sending these versions to this proxy again", "proxy NACKed resources");
    } else {
        tracing::debug!(client, %resource_type, ?names, reason, "proxy NACKed resources again");
    }
}

#[cfg(test)]
mod tests;
