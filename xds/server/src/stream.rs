//! What the streams of both variants have in common: what they give to the world around them, and how
//! long they wait for what.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::{ErrorDetail, ResourceType, Version};

use crate::subscription;

/// How long a push waits for its ACK before everything else goes on without it (invariant 6).
pub const ACK_DEADLINE: Duration = Duration::from_secs(15);

/// How long after its beginning a stream brings no removals. A client that connects again asks for one
/// type after the other; until it has asked for all, what no longer refers to a cluster cannot be told.
///
/// Nor for so long after the refusal of a listener or of routes: what stays in force instead may name what
/// is to go, and who publishes has this time to keep it.
pub const REMOVAL_GRACE: Duration = Duration::from_secs(1);

/// The size at which a response is full; what does not fit goes with the next, after the ACK.
pub(crate) const FULL_RESPONSE: usize = 256 * 1024;

/// How many types that we do not serve one stream may ask for.
const MAX_UNKNOWN_TYPES: usize = 32;

/// How long the name of such a type may be.
const MAX_TYPE_URL: usize = 256;

/// What a stream gives to the world around it.
#[derive(Debug)]
pub enum StreamOutput<R> {
    /// To be sent.
    Send(R),
    /// There is news of what the client has.
    Acked(Acked),
    /// The client refused a push.
    Nacked(Nacked),
    /// The client has not answered a push of this type within [`ACK_DEADLINE`].
    Late(ResourceType),
    /// The stream is to be closed, for this reason.
    Close(&'static str),
}

/// A push that the client refused.
#[derive(Debug, Clone)]
pub struct Nacked {
    /// Its type.
    pub resource_type: ResourceType,
    /// What was in it, and in which versions.
    pub resources: Vec<(Arc<str>, Version)>,
    /// Why, in the client's words.
    pub error: ErrorDetail,
    /// Whether it is known which resource is refused: there was only this one. Otherwise each is
    /// tried again by itself.
    pub is_final: bool,
    /// Whether the client keeps an earlier version of all of them. Also `true` where that is not known.
    pub keeps_earlier: bool,
}

impl Nacked {
    /// Whether what stays in force because of this may name other resources.
    pub(crate) fn is_of_what_refers(&self) -> bool {
        self.is_final && matches!(self.resource_type, ResourceType::Listener | ResourceType::Route)
    }
}

/// News of what the client has: it took a push, or it said what it has from an earlier stream.
#[derive(Debug, Clone)]
pub struct Acked {
    /// The type.
    pub resource_type: ResourceType,
    /// What was in the push, and what it removed.
    pub names: Vec<Arc<str>>,
}

/// The types that a client asks for and that we do not serve. They are bounded (invariant 10).
#[derive(Debug, Default)]
pub(crate) struct UnknownTypes {
    types: BTreeSet<String>,
    /// What the names took that were asked for. They are not kept, but each is an answer.
    size: usize,
}

impl UnknownTypes {
    /// Takes note of one, and says whether it is new; or why the stream is to be closed.
    pub(crate) fn insert(
        &mut self,
        type_url: &str,
        names: &[String],
    ) -> Result<bool, &'static str> {
        if type_url.len() > MAX_TYPE_URL {
            return Err("the client asks for a resource type of too long a name");
        }
        let is_new = self.types.insert(type_url.to_owned());
        self.size += subscription::size_of(names);
        if self.types.len() > MAX_UNKNOWN_TYPES {
            return Err("the client asks for too many unknown resource types");
        }
        Ok(is_new)
    }

    /// What it takes in memory, or has taken, about.
    pub(crate) fn size(&self) -> usize {
        self.size + subscription::size_of(&self.types)
    }
}
