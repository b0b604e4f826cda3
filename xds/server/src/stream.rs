//! The common parts of both variants of a stream: their outputs, and how long they wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::{ErrorDetail, ResourceType, Version};

use crate::subscription;

/// The time that a push waits for its ACK before everything else continues without it (invariant
/// 6).
pub const ACK_DEADLINE: Duration = Duration::from_secs(15);

/// The time after the start of a stream in which it sends no removals.
///
/// A reconnecting client requests one type after the other. Until it has requested all, resources
/// that no longer refer to a cluster cannot be pushed. The same time follows the NACK of a listener
/// or of routes: the last ACKed version may name a resource that is to be removed, and the
/// publisher has this time to keep it.
pub const REMOVAL_GRACE: Duration = Duration::from_secs(1);

/// The size at which a response is full. The rest follows in the next one, after the ACK.
pub(crate) const FULL_RESPONSE: usize = 256 * 1024;

/// The number of unsupported types that one stream may request.
const MAX_UNKNOWN_TYPES: usize = 32;

/// The maximum length of the URL of such a type.
const MAX_TYPE_URL: usize = 256;

/// An output of a stream's state machine.
#[derive(Debug)]
pub enum StreamOutput<R> {
    /// Send this response.
    Send(R),
    /// Report what the client has.
    Acked(Acked),
    /// Report that the client NACKed a push.
    Nacked(Nacked),
    /// Report that the client has not answered a push of this type within [`ACK_DEADLINE`].
    Late(ResourceType),
    /// Close the stream, for this reason.
    Close(&'static str),
}

/// A push that the client NACKed.
#[derive(Debug, Clone)]
pub struct Nacked {
    /// Its type.
    pub resource_type: ResourceType,
    /// Its resources with their versions.
    pub resources: Vec<(Arc<str>, Version)>,
    /// The client's error.
    pub error: ErrorDetail,
    /// Whether the bad resource is known, because the push had only one. Otherwise a bisection
    /// follows.
    pub is_final: bool,
    /// Whether the client keeps an earlier version of all of them. Also `true` if that is unknown.
    pub keeps_earlier: bool,
}

impl Nacked {
    /// Whether the client's last ACKed versions may name other resources because of this NACK.
    pub(crate) fn may_change_references(&self) -> bool {
        self.is_final && matches!(self.resource_type, ResourceType::Listener | ResourceType::Route)
    }
}

/// What the client has, according to an ACK or to the versions that it reported when it resumed.
#[derive(Debug, Clone)]
pub struct Acked {
    /// The type.
    pub resource_type: ResourceType,
    /// The resources and removals of the push.
    pub names: Vec<Arc<str>>,
}

/// The unsupported types that a client requests. They are limited (invariant 10).
#[derive(Debug, Default)]
pub(crate) struct UnknownTypes {
    types: BTreeSet<String>,
    /// The total size of requested names. They are not stored, but each costs a response.
    size: usize,
}

impl UnknownTypes {
    /// Adds a type and the size of its requested names. Returns whether it is new, or why the stream must be closed.
    pub(crate) fn insert(
        &mut self,
        type_url: &str,
        size_of_names: usize,
    ) -> Result<bool, &'static str> {
        if type_url.len() > MAX_TYPE_URL {
            return Err("the client requests a resource type whose URL is too long");
        }
        let is_new = self.types.insert(type_url.to_owned());
        self.size += size_of_names;
        if self.types.len() > MAX_UNKNOWN_TYPES {
            return Err("the client requests too many unknown resource types");
        }
        Ok(is_new)
    }

    /// The approximate memory of the types, and of the names so far.
    pub(crate) fn size(&self) -> usize {
        self.size + subscription::size_of(&self.types)
    }
}
