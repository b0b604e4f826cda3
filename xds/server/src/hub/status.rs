//! How far a client has come, as its streams have said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::{Node, ResourceType, Version};

use crate::overlay::Overlay;

/// What a client has refused, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack {
    /// The refused version. It is not sent to this client again, but by [`Hub::retry`](super::Hub::retry).
    pub version: Version,
    /// Why it is refused.
    pub message: String,
    /// Whether it was refused alone. Otherwise it is known only that something is refused of all that
    /// came with it, as where it is not known what a client had before.
    pub is_certain: bool,
    /// Whether the client keeps an earlier version of the resource. Also `true` where that is not known.
    pub keeps_earlier: bool,
}

/// How far a client has come.
#[derive(Debug, Clone, Default)]
pub struct ClientStatus {
    /// How many streams it has open.
    pub streams: usize,
    /// What it said of itself when it last connected.
    pub node: Arc<Node>,
    /// How often it has come with nothing, as a process that has just begun does. Such a one refuses
    /// nothing yet: what stood in the way of the one before may have been put right.
    pub process_starts: u64,
    /// What it refuses now.
    pub nacks: BTreeMap<(ResourceType, Arc<str>), Nack>,
    /// The stream on which it is about to say which clusters it has.
    pub(super) unreported_clusters: Option<u64>,
    /// What each stream has taken, by the stream's number and the type. A word goes with its stream.
    pub(super) acked: BTreeMap<(u64, ResourceType), Overlay<Version>>,
}

impl ClientStatus {
    /// Whether the client has taken this version of this resource. Streams of one client may each be
    /// about other resources, or be of two Envoys in a hot restart: of each resource the newest
    /// stream decides that has taken it in any version.
    pub fn has(&self, resource_type: ResourceType, name: &str, version: Version) -> bool {
        self.acked_version(resource_type, name) == Some(version)
    }

    /// The version of a resource that the client has taken last.
    pub(crate) fn acked_version(&self, resource_type: ResourceType, name: &str) -> Option<Version> {
        let mut acked = self.acked.iter().rev().filter(|((_, of), _)| *of == resource_type);
        acked.find_map(|(_, acked)| acked.get(name))
    }

    /// The names of a type that the client has taken and not let go.
    pub(crate) fn acked_names(&self, resource_type: ResourceType) -> BTreeSet<&Arc<str>> {
        let acked = self.acked.iter().filter(|((_, of), _)| *of == resource_type);
        acked.flat_map(|(_, acked)| acked.names()).collect()
    }

    /// Whether the client has taken a resource of this name, or may have and is about to say so.
    pub(super) fn may_have(&self, resource_type: ResourceType, name: &str) -> bool {
        if resource_type == ResourceType::Cluster && self.unreported_clusters.is_some() {
            return true;
        }
        let mut acked = self.acked.iter().filter(|((_, of), _)| *of == resource_type);
        acked.any(|(_, acked)| acked.contains_key(name))
    }

    /// A stream has said which clusters the client has, or has ended.
    pub(super) fn clusters_reported(&mut self, stream: u64) {
        if self.unreported_clusters == Some(stream) {
            self.unreported_clusters = None;
        }
    }
}

/// What whoever keeps a client supplied must know when something has happened to it.
#[derive(Debug, Clone)]
pub struct ClientChange {
    /// How many streams it has open.
    pub streams: usize,
    /// What it said of itself when it last connected: the same value for as long as it says no other.
    pub node: Arc<Node>,
    /// How often it has come with nothing ([`ClientStatus::process_starts`]).
    pub process_starts: u64,
    /// What it refuses now.
    pub nacks: BTreeMap<(ResourceType, Arc<str>), Nack>,
    /// Whether it has been published what it is to have since it has come.
    pub has_set: bool,
}
