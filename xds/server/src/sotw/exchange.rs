//! The requests and responses of one resource type: what a request means, given the last response.

use ironmesh_xds_wire::{ErrorDetail, ResourceType, SotwRequest};
use tokio::time::Instant;

use crate::stream::ACK_DEADLINE;
use crate::subscription::{Change, Subscription};

/// The subscription of the client to one type, and the state of the last response.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) subscription: Subscription,
    last: Option<Last>,
    /// Whether the client started without a version.
    pub(crate) is_fresh: bool,
    /// Whether an ACK was late and none has arrived since.
    pub(crate) is_lagging: bool,
}

/// The last response. Only this one can be ACKed or NACKed: a request with another nonce was
/// written before the client had read it.
#[derive(Debug)]
struct Last {
    nonce: String,
    sent_at: Instant,
    is_late: bool,
    is_answered: bool,
}

/// The meaning of a request.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    /// Whether it is the first of its type on the stream.
    pub(crate) is_first: bool,
    /// Whether it was written before the client had read the last response. Then it gets no
    /// response.
    pub(crate) is_stale: bool,
    /// The ACK or NACK of the last response.
    pub(crate) reply: Option<Reply>,
    /// The names and the wildcard that it adds to the subscription.
    pub(crate) added: Change,
    /// Whether it equals an earlier one, and so requests again: Envoy does that when it warms again
    /// what it has had before (R15).
    pub(crate) is_repeated: bool,
}

#[derive(Debug)]
pub(crate) enum Reply {
    Acked,
    Nacked(ErrorDetail),
}

impl Exchange {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            subscription: Subscription::new(resource_type),
            last: None,
            is_fresh: false,
            is_lagging: false,
        }
    }

    /// Handles a request.
    pub(crate) fn on_request(&mut self, request: &SotwRequest) -> ParsedRequest {
        let is_first = !self.subscription.has_begun;
        self.is_fresh |= is_first && request.version_info.is_empty();
        let nonce = self.last.as_ref().map_or("", |last| &last.nonce);
        // The first request may have a nonce of an earlier stream, which means nothing.
        if !is_first && request.nonce != nonce {
            // A request with the newest nonce follows, with all names, and gets the response (R13).
            // Only names that are dropped here and added there must not be lost.
            let added = self.subscription.replace(&request.names);
            return ParsedRequest {
                is_first,
                is_stale: true,
                reply: None,
                added,
                is_repeated: false,
            };
        }
        // The error alone, not the version, distinguishes a NACK from an ACK (R10).
        let mut reply = None;
        let mut was_answered = false;
        if let Some(last) = &mut self.last {
            was_answered = std::mem::replace(&mut last.is_answered, true);
            if !was_answered {
                self.is_lagging = false;
                reply = Some(request.error.clone().map_or(Reply::Acked, Reply::Nacked));
            }
        }
        let names_before = self.subscription.names.len();
        let was_wildcard = self.subscription.is_wildcard;
        let added = self.subscription.replace(&request.names);
        let is_same = added.names.is_empty()
            && self.subscription.names.len() == names_before
            && self.subscription.is_wildcard == was_wildcard;
        let is_repeated = was_answered && is_same && request.error.is_none();
        ParsedRequest { is_first, is_stale: false, reply, added, is_repeated }
    }

    /// Records that a response was sent.
    pub(crate) fn sent(&mut self, nonce: u64, now: Instant) {
        self.last = Some(Last {
            nonce: nonce.to_string(),
            sent_at: now,
            is_late: false,
            is_answered: false,
        });
    }

    /// Whether nothing more may be sent now, because a response waits for its ACK or NACK.
    pub(crate) fn is_busy(&self) -> bool {
        self.last.as_ref().is_some_and(|last| !last.is_answered && !last.is_late)
    }

    /// Whether a response was sent on this stream.
    pub(crate) fn has_sent(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the last response is unanswered, in time or not.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.last.as_ref().is_some_and(|last| !last.is_answered)
    }

    /// Stops waiting for a late ACK. Returns whether it did.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let is_busy = self.is_busy();
        let Some(last) = self.last.as_mut().filter(|_| is_busy) else { return false };
        last.is_late = now >= last.sent_at + ACK_DEADLINE;
        self.is_lagging |= last.is_late;
        last.is_late
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let last = self.last.as_ref().filter(|_| self.is_busy())?;
        Some(last.sent_at + ACK_DEADLINE)
    }
}
