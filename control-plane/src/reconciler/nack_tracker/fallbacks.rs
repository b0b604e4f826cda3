//! Fallbacks for NACKed resources: built once, and shared while a client has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use ironmesh_xds_compile::ResourceRole;
use ironmesh_xds_compile::fallback::{closed, narrowed};
use ironmesh_xds_wire::{Resource, Version};

use super::{Fallback, ResourceKey};

/// The fallbacks that clients have.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    shared: BTreeMap<FallbackKey, (Weak<Resource>, Fallback)>,
}

/// Everything that a fallback is built from.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FallbackKey {
    name: ResourceKey,
    ideal: Version,
    last_good: Option<Version>,
    nacked: BTreeSet<Version>,
}

impl Fallbacks {
    /// The first fallback that was not NACKed: narrowed, or else closed. `None` for a resource that carries no
    /// authorization.
    pub(super) fn of(
        &mut self,
        ideal: &Resource,
        last_good: Option<&Arc<Resource>>,
        nacked: &BTreeSet<Version>,
    ) -> Option<(Arc<Resource>, Fallback)> {
        ResourceRole::authorized_port(ideal)?;
        let key = FallbackKey {
            name: (ideal.resource_type(), Arc::clone(ideal.name())),
            ideal: ideal.version(),
            last_good: last_good.map(|last_good| last_good.version()),
            nacked: nacked.clone(),
        };
        if let Some((shared, instead)) = self.shared.get(&key)
            && let Some(resource) = shared.upgrade()
        {
            return Some((resource, *instead));
        }
        let closed = closed(ideal)?;
        let narrowed = last_good.and_then(|last_good| narrowed(ideal, last_good));
        let narrowed = narrowed
            .filter(|one| one.version() != closed.version() && !nacked.contains(&one.version()));
        let instead = if narrowed.is_some() { Fallback::Narrowed } else { Fallback::Closed };
        let resource = Arc::new(narrowed.unwrap_or(closed));
        self.shared.retain(|_, (shared, _)| shared.strong_count() > 0);
        self.shared.insert(key, (Arc::downgrade(&resource), instead));
        Some((resource, instead))
    }
}
