//! The versions that a client reports when it resumes: what it has from an earlier stream.

use std::collections::HashMap;

use ironmesh_xds_wire::{InitialVersions, ResourceMap, Version};

use super::TypeStream;
use crate::overlay::Overlay;

/// A reported version; `None` if no control plane can have sent it.
type ReportedVersion = Option<Version>;

/// The initial versions of a request, if it is the first one of its type.
#[derive(Debug)]
pub(super) enum Reported<'a> {
    /// Exactly these resources, as nearly always when the control plane has restarted.
    Exactly(&'a ResourceMap),
    /// Others, by name. The client chooses the names, so the hash has a random key.
    Others(HashMap<&'a str, &'a str>),
}

impl<'a> Reported<'a> {
    pub(super) fn nothing() -> Self {
        Self::Others(HashMap::new())
    }

    /// Compares initial versions with the resources of the client's set.
    pub(super) fn compare(versions: &'a InitialVersions, resources: &'a ResourceMap) -> Self {
        if !versions.is_empty() && resources.has_exactly_versions(versions) {
            return Self::Exactly(resources);
        }
        Self::Others(versions.iter().collect())
    }

    /// Whether the client reports to have `name`.
    pub(super) fn contains(&self, name: &str) -> bool {
        match self {
            Self::Exactly(resources) => resources.contains_key(name),
            Self::Others(versions) => versions.contains_key(name),
        }
    }

    /// Whether the client is known, without a look at each name, to report all of these.
    pub(super) fn contains_all(&self, resources: &ResourceMap) -> bool {
        matches!(self, Self::Exactly(reported) if reported.ptr_eq(resources))
    }

    /// The number of names.
    fn len(&self) -> usize {
        match self {
            Self::Exactly(resources) => resources.len(),
            Self::Others(versions) => versions.len(),
        }
    }

    /// The reported version of `name`.
    fn version(&self, name: &str) -> Option<ReportedVersion> {
        match self {
            Self::Exactly(resources) => resources.get(name).map(|one| Some(one.version())),
            Self::Others(versions) => versions.get(name).map(|version| version.parse().ok()),
        }
    }

    /// The names that `resources` lack.
    fn names_outside(&self, resources: &ResourceMap) -> Vec<&str> {
        let names: Vec<&str> = match self {
            Self::Exactly(reported) => reported.keys().map(|name| &**name).collect(),
            Self::Others(versions) => versions.keys().copied().collect(),
        };
        names.into_iter().filter(|name| !resources.contains_key(name)).collect()
    }
}

impl TypeStream {
    /// Adopts the initial versions that the client reported.
    pub(super) fn adopt(&mut self, reported: &Reported<'_>, resources: &ResourceMap) {
        let covers_all = self.subscription.covers_all(resources);
        let version = |name: &str, is_covered: bool| {
            reported.version(name).filter(|_| is_covered || self.subscription.covers(name))
        };
        self.nacked.retain(|name, nacked| version(name, false) != Some(Some(*nacked)));
        if covers_all && reported.contains_all(resources) {
            self.known = Overlay::all_of(resources);
            self.acked = Overlay::all_of(resources);
            return;
        }
        // A client that reports few resources stores those itself.
        let none = ResourceMap::new();
        let resources = if resources.len() <= 2 * reported.len() { resources } else { &none };
        let mut known = Overlay::with_base(resources, |name| version(name, covers_all));
        if known.len() < reported.len() {
            for name in reported.names_outside(resources) {
                if let Some(version) = version(name, false) {
                    known.insert(name.into(), version);
                }
            }
        }
        self.acked = known.certain();
        self.known = known;
    }
}
