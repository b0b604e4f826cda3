//! The sync status of one client, resource by resource, for people and tools.

use std::sync::Arc;

use ironmesh_xds_wire::{Node, Resource, ResourceSet, ResourceType, Version};

use crate::hub::{ClientStatus, Nack};

/// The resource set of a client, with the sync status of each resource.
#[derive(Debug, Clone)]
pub struct Report {
    /// The node of its latest stream.
    pub node: Arc<Node>,
    /// The number of open streams.
    pub streams: usize,
    /// All resources of its set, by type and name, followed by those that it still has and that are
    /// gone from the set.
    pub resources: Vec<ResourceStatus>,
}

/// The sync status of a client with one resource.
#[derive(Debug, Clone)]
pub struct ResourceStatus {
    /// The type of the resource.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// The published resource; `None` if it is gone from the set.
    pub wanted: Option<Arc<Resource>>,
    /// The version ACKed last; `None` if no open stream has ACKed one.
    pub acked: Option<Version>,
    /// The client's NACK: of `wanted`, or of another version in whose place that was published.
    pub nack: Option<Nack>,
}

/// How a client stands with one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceState {
    /// The client has ACKed the published version.
    Acked,
    /// The client has NACKed the published version.
    Nacked,
    /// The client has another version, and has not replied to the published one, which may be in
    /// flight or wait for something.
    Stale,
    /// The client has ACKed and NACKed no version. Perhaps it is not subscribed.
    NotAcked,
    /// The client has the resource, which is gone from the set, and has not ACKed its removal yet.
    PendingRemoval,
}

impl ResourceState {
    /// The value in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Nacked => "nacked",
            Self::Stale => "stale",
            Self::NotAcked => "not_sent",
            Self::PendingRemoval => "removing",
        }
    }
}

impl ResourceStatus {
    /// The state of the resource at the client.
    pub fn state(&self) -> ResourceState {
        let Some(wanted) = self.wanted.as_ref().map(|wanted| wanted.version()) else {
            return ResourceState::PendingRemoval;
        };
        match (self.acked, &self.nack) {
            (Some(acked), _) if acked == wanted => ResourceState::Acked,
            (_, Some(nack)) if nack.version == wanted => ResourceState::Nacked,
            (Some(_), _) => ResourceState::Stale,
            (None, _) => ResourceState::NotAcked,
        }
    }

    /// Whether it is a secret that the client does not have: it requests those that its other
    /// resources refer to, and the set may have more.
    pub fn is_unrequested_secret(&self) -> bool {
        self.resource_type == ResourceType::Secret && self.state() == ResourceState::NotAcked
    }
}

impl Report {
    pub(crate) fn new(status: &ClientStatus, set: &ResourceSet) -> Self {
        let mut resources: Vec<_> =
            set.iter().map(|wanted| resource_status(status, wanted)).collect();
        for resource_type in ResourceType::ALL {
            let names = status.acked_names(resource_type).into_iter();
            let leaving = names.filter(|name| !set.contains(resource_type, name));
            resources.extend(leaving.map(|name| ResourceStatus {
                resource_type,
                name: Arc::clone(name),
                wanted: None,
                acked: status.acked_version(resource_type, name),
                nack: None,
            }));
        }
        Self { node: Arc::clone(&status.node), streams: status.streams, resources }
    }
}

fn resource_status(status: &ClientStatus, wanted: &Arc<Resource>) -> ResourceStatus {
    let (resource_type, name) = (wanted.resource_type(), Arc::clone(wanted.name()));
    let acked = status.acked_version(resource_type, &name);
    let nack = status.nacks.get(&(resource_type, Arc::clone(&name))).cloned();
    ResourceStatus { resource_type, name, wanted: Some(Arc::clone(wanted)), acked, nack }
}

#[cfg(test)]
mod tests;
