//! One task per stream, of either variant: it moves requests, sets and time into the state machine and
//! the responses out.

use std::time::Duration;

use ironmesh_xds_wire::ResourceType;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Status;

use super::Streams;
use crate::body::Message;
use crate::hub::{Coming, Connection};
use crate::listener::Peer;
use crate::messages::Messages;
use crate::separate::Separate;
use crate::stream::{Output, Refused};
use crate::variant::Variant;

/// How long a client may take to say who it is.
const FIRST_REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// How long a reader may take nothing before its stream is cut.
const SLOW_READER_DEADLINE: Duration = Duration::from_secs(60);

impl Streams {
    /// Runs one stream to its end; `Ok` where the client ended it. `only` is the type of a service
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
            () = self.shutdown.cancelled() => return Err(shutting_down()),
        };
        let first = first.map_err(|_| Status::unavailable("no request came"))??;
        let Some(first) = first else { return Ok(()) };
        let mut request = request::<V>(first, only)?;
        let node = V::node(&mut request).take().filter(|node| !node.id.is_empty());
        let node = node.ok_or_else(|| {
            Status::invalid_argument("the first request of a stream must have a node with an id")
        })?;
        let node_id = node.id.clone();
        let client = self.admission.admit(peer, &node).map_err(|refusal| {
            peer.refused();
            tracing::warn!(address = %peer.address, node = ?node_id, reason = %refusal, "xDS stream refused");
            Status::permission_denied(refusal.0)
        })?;
        let coming = match (V::is_fresh(&request), only) {
            (true, None) => Coming::Anew,
            (true, Some(_)) => Coming::PerhapsAnew,
            (false, _) => Coming::Back,
        };
        let mut connection = self.hub.connect(client, node, coming);
        tracing::info!(client = %connection.client, address = %peer.address, "xDS stream opened");
        let mut variant = V::open(&mut connection);
        if only.is_none() {
            variant.resend_endpoints(&connection.take_unanswered());
        }
        let mut stream = Separate::new(variant, only);
        let set = connection.sets.borrow_and_update().clone();
        let mut outputs = set.map_or_else(Vec::new, |set| stream.on_set(set, Instant::now()));
        outputs.extend(stream.on_request(&request, Instant::now()));
        let end = loop {
            let delivered = tokio::select! {
                delivered = deliver(stream.variant(), &connection, outputs, responses) => delivered,
                // Also while a slow reader is waited for.
                () = self.shutdown.cancelled() => Err(shutting_down()),
            };
            if let Err(end) = delivered {
                break Err(end);
            }
            let deadline = stream.deadline();
            outputs = tokio::select! {
                message = requests.next() => match message {
                    Ok(Some(message)) => match self::request::<V>(message, only) {
                        Ok(mut request) => {
                            let node = V::node(&mut request).as_ref();
                            if node.is_some_and(|node| node.id != node_id) {
                                break Err(Status::invalid_argument("the node id changed within the stream"));
                            }
                            stream.on_request(&request, Instant::now())
                        }
                        Err(status) => break Err(status),
                    },
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                },
                Ok(()) = connection.sets.changed() => {
                    let set = connection.sets.borrow_and_update().clone();
                    set.map_or_else(Vec::new, |set| stream.on_set(set, Instant::now()))
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    stream.on_timeout(Instant::now())
                }
                () = self.shutdown.cancelled() => break Err(shutting_down()),
            };
        };
        let reason = end.as_ref().err().map(ToString::to_string);
        tracing::info!(client = %connection.client, reason, "xDS stream closed");
        end
    }
}

/// Reads a message, and sees to its type: on an aggregated stream it must say one, elsewhere it may
/// leave it out, and must not say another (R5).
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
            let words = format!("this service has no other type than {}", only.url());
            return Err(Status::invalid_argument(words));
        }
        _ => {}
    }
    Ok(request)
}

fn shutting_down() -> Status {
    Status::unavailable("the control plane is shutting down")
}

/// Leaves to the client's next stream what it must know of this one.
fn leave<V: Variant>(stream: &V, resource_type: ResourceType, connection: &Connection) {
    stream.leave(resource_type, connection);
    if resource_type == ResourceType::Cluster {
        connection.keep_unanswered(stream.unanswered_clusters());
    }
}

/// Carries out what the state machine wants.
async fn deliver<V: Variant>(
    stream: &V,
    connection: &Connection,
    outputs: Vec<Output<V::Response>>,
    responses: &mpsc::Sender<Message>,
) -> Result<(), Status> {
    let client = &connection.client;
    for output in outputs {
        match output {
            Output::Send(response) => {
                tracing::debug!(%client, ?response, "pushed");
                if let Some(resource_type) = V::response_type(&response) {
                    connection.counters().pushed(resource_type);
                    leave(stream, resource_type, connection);
                }
                let frame = V::frame(&response);
                let sent = timeout(SLOW_READER_DEADLINE, responses.send(frame)).await;
                match sent {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(Status::cancelled("the client has gone")),
                    Err(_) => {
                        return Err(Status::resource_exhausted("the client reads too slowly"));
                    }
                }
            }
            Output::Acked(taken) => {
                connection.counters().acked(taken.resource_type);
                connection.acked(&taken, stream.acked(taken.resource_type));
                leave(stream, taken.resource_type, connection);
            }
            Output::Nacked(refused) => {
                connection.counters().nacked(refused.resource_type);
                let is_new = connection.nacked(&refused);
                leave(stream, refused.resource_type, connection);
                tell(client, &refused, is_new);
            }
            Output::Late(resource_type) => {
                tracing::warn!(%client, %resource_type, "the proxy has not answered for 15 s; going on without it");
            }
            Output::Close(reason) => return Err(Status::resource_exhausted(reason)),
        }
    }
    Ok(())
}

/// Logs a refusal: loudly where there is something to do about it, and no more than once.
fn tell(client: &str, refused: &Refused, is_new: bool) {
    let Refused { resource_type, resources, error, is_final } = refused;
    let names: Vec<_> = resources.iter().map(|(name, _)| name).collect();
    let reason = &error.message;
    if names.is_empty() {
        // Nothing was in it but that something is gone: there is nothing to try by itself.
        tracing::warn!(client, %resource_type, reason, "the proxy refused that resources are gone");
    } else if !is_final {
        tracing::debug!(client, %resource_type, ?names, reason, "the proxy refused resources; each is tried by itself");
    } else if is_new {
        tracing::warn!(client, %resource_type, ?names, reason, "the proxy refused resources; they are kept from it");
    } else {
        tracing::debug!(client, %resource_type, ?names, reason, "the proxy refused resources again");
    }
}
