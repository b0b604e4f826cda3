//! The subscription of a client to one type.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use ironmesh_xds_wire::{InitialVersions, NameList, ResourceMap, ResourceType};

use crate::overlay::Overlay;

/// The name of the wildcard.
const WILDCARD: &str = "*";

/// The maximum memory for names on one stream, of all types together. Ten thousand services take
/// about 4 MiB: a name of each for its endpoints and its routes, and the initial versions.
pub(crate) const MAX_SIZE: usize = 16 << 20;

/// The approximate memory of a name besides its bytes.
const NAME_OVERHEAD: usize = 64;

/// The approximate memory of these names.
pub(crate) fn size_of<'a>(names: impl IntoIterator<Item = &'a String>) -> usize {
    names.into_iter().map(|name| name.len() + NAME_OVERHEAD).sum()
}

/// The approximate memory of these names, once each is stored.
pub(crate) fn size_of_names(names: &NameList) -> usize {
    names.text_len() + names.len() * NAME_OVERHEAD
}

/// The approximate memory of the names of these versions, once each is stored.
pub(crate) fn size_of_names_in(versions: &InitialVersions) -> usize {
    versions.names_len() + versions.len() * NAME_OVERHEAD
}

/// The approximate memory of these versions with their names.
pub(crate) fn size_of_versions(versions: &InitialVersions) -> usize {
    versions.text_len() + versions.len() * 2 * NAME_OVERHEAD
}

/// The subscription of a stream to one type.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Whether the client has requested the type at all.
    pub(crate) has_begun: bool,
    /// Whether it has ever named a resource.
    pub(crate) has_named: bool,
    resource_type: ResourceType,
    pub(crate) is_wildcard: bool,
    pub(crate) names: Overlay<()>,
    /// The approximate memory of the names.
    size: usize,
}

/// The names that a request adds to the subscription, or removes from it.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The names.
    pub(crate) names: Vec<Arc<str>>,
    /// Whether they are those of all resources, in place of `names`.
    pub(crate) all: bool,
    /// Whether the wildcard is added or removed.
    pub(crate) wildcard: bool,
}

impl Subscription {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            has_begun: false,
            has_named: false,
            resource_type,
            is_wildcard: false,
            names: Overlay::default(),
            size: 0,
        }
    }

    /// Whether the client is subscribed to `name`.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains_key(name)
    }

    /// The approximate memory of the names.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Removes names. Returns those that were subscribed.
    pub(crate) fn unsubscribe(&mut self, names: &NameList) -> Change {
        let mut change = Change::default();
        for name in names.iter() {
            if self.resource_type.allows_wildcard() && name == WILDCARD {
                change.wildcard |= std::mem::take(&mut self.is_wildcard);
            } else if let Some((name, ())) = self.names.take(name) {
                self.size -= name.len() + NAME_OVERHEAD;
                change.names.push(name);
            }
        }
        change
    }

    /// Replaces the subscription by `names`, as each state-of-the-world request does. Returns the
    /// names that are new, and whether the wildcard is; all others are dropped.
    pub(crate) fn replace(&mut self, names: &[String]) -> Change {
        // "Legacy wildcard": an empty list subscribes to all, until the client names a resource.
        let is_legacy = names.is_empty() && self.is_wildcard && !self.has_named;
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.has_named |= !names.is_empty();
        let was_wildcard = self.is_wildcard;
        let asks_for_all = names.iter().any(|name| name == WILDCARD);
        self.is_wildcard = self.resource_type.allows_wildcard()
            && (is_legacy || asks_for_all || (is_first && names.is_empty()));
        let mut change =
            Change { wildcard: self.is_wildcard && !was_wildcard, ..Change::default() };
        let allows_wildcard = self.resource_type.allows_wildcard();
        let wanted: BTreeSet<_> = names.iter().map(String::as_str).collect();
        let is_dropped = |name: &&Arc<str>| !wanted.contains(&***name);
        let dropped: Vec<_> = self.names.names().filter(is_dropped).cloned().collect();
        for name in dropped {
            self.names.remove(&name);
            self.size -= name.len() + NAME_OVERHEAD;
        }
        for name in names.iter().filter(|name| !allows_wildcard || *name != WILDCARD) {
            if !self.names.contains_key(name) {
                change.names.push(self.insert(name));
            }
        }
        change
    }

    fn insert(&mut self, name: &str) -> Arc<str> {
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name), ());
        self.size += name.len() + NAME_OVERHEAD;
        name
    }

    /// Shares structure with the names of `resources`, which are mostly the same.
    pub(crate) fn share(&mut self, resources: &ResourceMap) {
        self.names.share(resources);
    }

    /// Whether the client is known, without a look at each name, to be subscribed to all of these.
    pub(crate) fn covers_all(&self, resources: &ResourceMap) -> bool {
        self.is_wildcard || self.names.has_all_of(resources)
    }

    /// Adds names. Returns all of them, even those already subscribed: "the server must respond
    /// with all resources in `resource_names_subscribe`". `resources` are those of the client's set.
    pub(crate) fn subscribe(&mut self, names: &NameList, resources: &ResourceMap) -> Change {
        let mut change = Change::default();
        // "Legacy wildcard": a first request without names subscribes to all. Envoy sends one even
        // when it reconnects with `initial_resource_versions`.
        let is_legacy = !self.has_begun && names.is_empty() && self.resource_type.allows_wildcard();
        if is_legacy {
            change.wildcard = !std::mem::replace(&mut self.is_wildcard, true);
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        // As nearly always when a client subscribes to all that its clusters or listeners need.
        if is_first && !names.is_empty() && resources.has_exactly_names(names) {
            self.names = Overlay::all_of(resources);
            self.size += size_of_names(names);
            change.all = true;
            return change;
        }
        if is_first && !names.is_empty() {
            self.names = Overlay::none_of(resources);
        }
        let mut lookup = resources.lookup_in_order();
        let (mut added, mut seen) = (Vec::new(), HashSet::new());
        for name in names.iter() {
            if self.resource_type.allows_wildcard() && name == WILDCARD {
                change.wildcard |= !std::mem::replace(&mut self.is_wildcard, true);
                continue;
            }
            // A client may repeat a name a million times.
            if !seen.insert(name) {
                continue;
            }
            if let Some(known) = self.names.name(name) {
                change.names.push(known);
                continue;
            }
            let known = lookup.get(name).map(|resource| Arc::clone(resource.name()));
            let known = known.unwrap_or_else(|| name.into());
            self.size += name.len() + NAME_OVERHEAD;
            added.push((Arc::clone(&known), ()));
            change.names.push(known);
        }
        self.names.insert_all(added);
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_name_is_subscribed_once() {
        let mut subscription = Subscription::new(ResourceType::Endpoint);
        let names: NameList = std::iter::repeat_n("a", 1000).collect();
        let change = subscription.subscribe(&names, &ResourceMap::new());
        assert_eq!(change.names, ["a".into()]);
        assert_eq!(subscription.size(), 1 + NAME_OVERHEAD);
        assert!(subscription.subscribe(&names, &ResourceMap::new()).names.len() == 1, "also again");
    }
}
