//! The reports of NACKs for operators.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ironmesh_api::{NackView, OriginView};
use ironmesh_xds_compile::origin::Origin;
use ironmesh_xds_wire::{ResourceType, Version};

/// The compiled resources that are not active in one proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InactiveResources {
    /// The resources that it NACKs.
    pub(crate) nacked: Vec<NackReport>,
    /// The resources that are withheld because others NACK them.
    pub(crate) withheld: Vec<NackReport>,
}

/// A resource that a client NACKs, or that is withheld from it because others do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NackReport {
    /// The type of the resource.
    pub(crate) resource_type: ResourceType,
    /// The name of the resource.
    pub(crate) name: Arc<str>,
    /// The compiled version.
    pub(crate) version: Version,
    /// The message of the NACK.
    pub(crate) message: String,
    /// The fallback that is active instead.
    pub(crate) instead: Fallback,
    /// The policy objects from which it was compiled.
    pub(crate) origins: Vec<Origin>,
    /// Whether it was NACKed alone.
    pub(crate) is_certain: bool,
    /// Whether the client has an earlier version to keep.
    pub(crate) keeps_earlier: bool,
    /// All versions that were NACKed: the compiled one, and fallbacks.
    pub(crate) versions: BTreeSet<Version>,
}

impl From<&NackReport> for NackView {
    fn from(nack: &NackReport) -> Self {
        let origin = |origin: &Origin| OriginView {
            object: origin.object.clone(),
            file: origin.spot.file.to_string(),
            line: origin.spot.line,
            column: origin.spot.column,
        };
        Self {
            resource_type: nack.resource_type.to_string(),
            name: nack.name.to_string(),
            version: nack.version.to_string(),
            message: nack.message.clone(),
            fallback: nack.instead.to_string(),
            policy: nack.origins.iter().map(origin).collect(),
        }
    }
}

/// The kind of resource that is active in place of a NACKed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// The version that the client had before, if any.
    LastGood,
    /// A version that allows what both the last good version and policy allow.
    Narrowed,
    /// A version that allows nothing.
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
