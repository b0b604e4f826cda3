//! How one client stands with each resource, for people and tools that look at it.

use std::sync::Arc;

use ironmesh_xds_wire::{Node, Resource, ResourceSet, ResourceType, Version};

use crate::hub::{ClientStatus, Nack};

/// What a client is to have, and how it stands with that.
#[derive(Debug, Clone)]
pub struct Report {
    /// What it said of itself when it last connected.
    pub node: Arc<Node>,
    /// How many streams it has open.
    pub streams: usize,
    /// All that it is to have, by type and then by name, and behind that what it has and is to have no more.
    pub resources: Vec<ResourceStatus>,
}

/// How a client stands with one resource.
#[derive(Debug, Clone)]
pub struct ResourceStatus {
    /// The type of the resource.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// What the client is to have; `None` where it is to let it go.
    pub wanted: Option<Arc<Resource>>,
    /// The version that it has taken last; `None` where it has taken none on a stream that is open.
    pub acked: Option<Version>,
    /// What it refuses: `wanted`, or another version in place of which that is wanted.
    pub nack: Option<Nack>,
}

/// How a client stands with one resource, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceState {
    /// It has what it is to have.
    Acked,
    /// It refuses what it is to have.
    Nacked,
    /// It has another version, and has not answered to the wanted one: that may be on its way, or wait for
    /// something.
    Stale,
    /// It has taken no version, and refuses none: perhaps it has not asked.
    NotAcked,
    /// It has what it is to have no more, and has not said yet that it has let it go.
    PendingRemoval,
}

impl ResourceState {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Acked => "taken",
            Self::Nacked => "refused",
            Self::Stale => "behind",
            Self::NotAcked => "not_taken",
            Self::PendingRemoval => "leaving",
        }
    }
}

impl ResourceStatus {
    /// In a word.
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
