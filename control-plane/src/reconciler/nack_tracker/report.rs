//! What operators are told of what is refused.

use std::fmt;
use std::sync::Arc;

use ironmesh_xds_compile::origin::Origin;
use ironmesh_xds_wire::{ResourceType, Version};

/// What of what policy asks for is not in force in a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InactiveResources {
    /// What it refuses.
    pub(crate) refused: Vec<Refusal>,
    /// What others refuse, and it has not been asked.
    pub(crate) withheld: Vec<Refusal>,
}

/// Something of what a client is to have that it refuses, or that is withheld from it because others do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Of which type it is.
    pub(crate) resource_type: ResourceType,
    /// What it is called.
    pub(crate) name: Arc<str>,
    /// The version that policy asks for.
    pub(crate) version: Version,
    /// Why, in the words of who refuses it.
    pub(crate) message: String,
    /// What is in force instead.
    pub(crate) instead: Fallback,
    /// The policy behind it.
    pub(crate) origins: Vec<Origin>,
}

/// What is in force in place of what is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// What the client had before, if anything.
    LastGood,
    /// What was allowed before and is allowed now as well.
    Narrowed,
    /// Nothing is allowed.
    Closed,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LastGood => "last_good",
            Self::Narrowed => "narrowed",
            Self::Closed => "closed",
        })
    }
}
