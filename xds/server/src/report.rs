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
    pub taken: Option<Version>,
    /// What it refuses: `wanted`, or another version in place of which that is wanted.
    pub refused: Option<Nack>,
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
    Behind,
    /// It has taken no version, and refuses none: perhaps it has not asked.
    NotTaken,
    /// It has what it is to have no more, and has not said yet that it has let it go.
    Leaving,
}

impl ResourceState {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Acked => "taken",
            Self::Nacked => "refused",
            Self::Behind => "behind",
            Self::NotTaken => "not_taken",
            Self::Leaving => "leaving",
        }
    }
}

impl ResourceStatus {
    /// In a word.
    pub fn standing(&self) -> ResourceState {
        let Some(wanted) = self.wanted.as_ref().map(|wanted| wanted.version()) else {
            return ResourceState::Leaving;
        };
        match (self.taken, &self.refused) {
            (Some(taken), _) if taken == wanted => ResourceState::Acked,
            (_, Some(nack)) if nack.version == wanted => ResourceState::Nacked,
            (Some(_), _) => ResourceState::Behind,
            (None, _) => ResourceState::NotTaken,
        }
    }
}

impl Report {
    pub(crate) fn new(status: &ClientStatus, set: &ResourceSet) -> Self {
        let mut resources: Vec<_> = set.iter().map(|wanted| stands(status, wanted)).collect();
        for resource_type in ResourceType::ALL {
            let names = status.taken_names(resource_type).into_iter();
            let leaving = names.filter(|name| !set.contains(resource_type, name));
            resources.extend(leaving.map(|name| ResourceStatus {
                resource_type,
                name: Arc::clone(name),
                wanted: None,
                taken: status.taken(resource_type, name),
                refused: None,
            }));
        }
        Self { node: Arc::clone(&status.node), streams: status.streams, resources }
    }
}

fn stands(status: &ClientStatus, wanted: &Arc<Resource>) -> ResourceStatus {
    let (resource_type, name) = (wanted.resource_type(), Arc::clone(wanted.name()));
    let taken = status.taken(resource_type, &name);
    let refused = status.nacks.get(&(resource_type, Arc::clone(&name))).cloned();
    ResourceStatus { resource_type, name, wanted: Some(Arc::clone(wanted)), taken, refused }
}

#[cfg(test)]
mod tests;
