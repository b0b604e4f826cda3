//! What stands in for what is refused: made once, and shared for as long as somebody is given it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use ironmesh_xds_compile::fallback::{carries_authorization, closed, narrowed};
use ironmesh_xds_wire::{Resource, Version};

use super::{Fallback, Name};

/// The stand-ins that somebody is given.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    given: BTreeMap<Key, (Weak<Resource>, Fallback)>,
}

/// All that a stand-in follows from.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: Name,
    ideal: Version,
    last_good: Option<Version>,
    refused: BTreeSet<Version>,
}

impl Fallbacks {
    /// The first that is not among the refused versions: narrowed, or else closed. `None` for what
    /// carries no authorization.
    pub(super) fn of(
        &mut self,
        ideal: &Resource,
        last_good: Option<&Arc<Resource>>,
        refused: &BTreeSet<Version>,
    ) -> Option<(Arc<Resource>, Fallback)> {
        if !carries_authorization(ideal) {
            return None;
        }
        let key = Key {
            name: (ideal.resource_type(), Arc::clone(ideal.name())),
            ideal: ideal.version(),
            last_good: last_good.map(|last_good| last_good.version()),
            refused: refused.clone(),
        };
        if let Some((given, instead)) = self.given.get(&key)
            && let Some(resource) = given.upgrade()
        {
            return Some((resource, *instead));
        }
        let closed = closed(ideal)?;
        let narrowed = last_good.and_then(|last_good| narrowed(ideal, last_good));
        let narrowed = narrowed
            .filter(|one| one.version() != closed.version() && !refused.contains(&one.version()));
        let instead = if narrowed.is_some() { Fallback::Narrowed } else { Fallback::Closed };
        let resource = Arc::new(narrowed.unwrap_or(closed));
        self.given.retain(|_, (given, _)| given.strong_count() > 0);
        self.given.insert(key, (Arc::downgrade(&resource), instead));
        Some((resource, instead))
    }
}
