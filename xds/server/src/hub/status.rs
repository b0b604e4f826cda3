//! The status of a client: what its streams have ACKed and NACKed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::{Node, ResourceType, Version};

use crate::overlay::Overlay;

/// A client's NACK of a resource, with the client's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack {
    /// The NACKed version. It is not sent to this client again, except by
    /// [`Hub::retry`](super::Hub::retry).
    pub version: Version,
    /// The client's error.
    pub message: String,
    /// Whether the resource was NACKed alone. Otherwise only the push as a whole is known to be
    /// bad, for example if the state that the client had before is unknown.
    pub is_certain: bool,
    /// Whether the client keeps an earlier version of the resource. Also `true` if that is unknown.
    pub keeps_earlier: bool,
}

/// How far a client has ACKed its resource set.
#[derive(Debug, Clone, Default)]
pub struct ClientStatus {
    /// The number of open streams.
    pub streams: usize,
    /// The node of its latest stream.
    pub node: Arc<Node>,
    /// The number of fresh connects: a process that has just started has nothing, and NACKs nothing
    /// yet, because the reason for earlier NACKs may be gone.
    pub process_starts: u64,
    /// The current NACKs.
    pub nacks: BTreeMap<(ResourceType, Arc<str>), Nack>,
    /// The types of which it has not ACKed all of its set. All of them, if it has no set.
    pub(super) behind: [bool; ResourceType::ALL.len()],
    /// Whether it had ACKed all of its set when its last stream ended.
    pub(super) was_synced: bool,
    /// The stream whose initial versions of clusters are not known yet.
    pub(super) unreported_clusters: Option<u64>,
    /// The versions that each stream has ACKed, by the stream's number and type. They end with the
    /// stream.
    pub(super) acked: BTreeMap<(u64, ResourceType), Overlay<Version>>,
}

impl ClientStatus {
    /// Whether the client has ACKed all of the set that was published last.
    pub(super) fn is_synced(&self) -> bool {
        !self.behind.contains(&true)
    }

    /// Whether the client has ACKed this version of this resource.
    ///
    /// Streams of one client may have different resources, or belong to two Envoys in a hot
    /// restart. For each resource, the newest stream that has ACKed any version of it decides.
    pub fn has(&self, resource_type: ResourceType, name: &str, version: Version) -> bool {
        self.acked_version(resource_type, name) == Some(version)
    }

    /// The version of a resource that the client has ACKed last.
    pub(crate) fn acked_version(&self, resource_type: ResourceType, name: &str) -> Option<Version> {
        let mut acked = self.acked.iter().rev().filter(|((_, of), _)| *of == resource_type);
        acked.find_map(|(_, acked)| acked.get(name))
    }

    /// The names of a type that the client has ACKed and not removed.
    pub(crate) fn acked_names(&self, resource_type: ResourceType) -> BTreeSet<&Arc<str>> {
        let acked = self.acked.iter().filter(|((_, of), _)| *of == resource_type);
        acked.flat_map(|(_, acked)| acked.names()).collect()
    }

    /// Records that a stream's clusters are known, or that the stream has ended.
    pub(super) fn clusters_reported(&mut self, stream: u64) {
        if self.unreported_clusters == Some(stream) {
            self.unreported_clusters = None;
        }
    }
}

/// What the publisher needs to know about a client that has changed.
#[derive(Debug, Clone)]
pub struct ClientChange {
    /// The number of open streams.
    pub streams: usize,
    /// The node of its latest stream: the same `Arc` while the node is unchanged.
    pub node: Arc<Node>,
    /// The number of fresh connects ([`ClientStatus::process_starts`]).
    pub process_starts: u64,
    /// The current NACKs.
    pub nacks: BTreeMap<(ResourceType, Arc<str>), Nack>,
    /// Whether a set was published since the client connected.
    pub has_set: bool,
    /// Whether the client had ACKed all of its published set when its last stream ended. Says nothing while it is
    /// connected: more may be published at any time.
    pub was_synced: bool,
}
