//! The versions that a client reports when it resumes: what it has from an earlier stream.

use foldhash::HashMap;
use ironmesh_xds_wire::{InitialVersions, ResourceMap, Version};

use super::TypeStream;
use crate::overlay::Overlay;

/// A reported version; `None` if no control plane can have sent it.
type ReportedVersion = Option<Version>;

/// The initial versions of a first request, by name. The client chooses the names, so the hash has
/// a random key.
#[derive(Debug, Default)]
pub(super) struct Reported<'a>(HashMap<&'a str, &'a str>);

impl<'a> Reported<'a> {
    pub(super) fn new(versions: &'a InitialVersions) -> Self {
        Self(versions.iter().collect())
    }

    /// Whether the client reports to have `name`.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The reported version of `name`.
    fn version(&self, name: &str) -> Option<ReportedVersion> {
        self.0.get(name).map(|version| version.parse().ok())
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
        // A client that reports few resources stores those itself.
        let none = ResourceMap::new();
        let resources = if resources.len() <= 2 * reported.0.len() { resources } else { &none };
        let mut known = Overlay::with_base(resources, |name| version(name, covers_all));
        if known.len() < reported.0.len() {
            for name in reported.0.keys().filter(|name| !resources.contains_key(name)) {
                if let Some(version) = version(name, false) {
                    known.insert((*name).into(), version);
                }
            }
        }
        self.acked = known.certain();
        self.known = known;
    }
}
