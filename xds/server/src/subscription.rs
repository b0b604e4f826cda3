//! What a client has subscribed to, of one type.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::{ResourceMap, ResourceType};

use crate::overlay::Overlay;

/// The name that stands for all resources of a type.
const WILDCARD: &str = "*";

/// How much memory the names on one stream may take, of all types together. Ten thousand services are
/// about 4 MiB: a name of each for its endpoints and its routes, and what a client brings along.
pub(crate) const MAX_SIZE: usize = 16 << 20;

/// What a name takes besides its bytes, about.
const NAME_OVERHEAD: usize = 64;

/// What these names take in memory, about.
pub(crate) fn size_of<'a>(names: impl IntoIterator<Item = &'a String>) -> usize {
    names.into_iter().map(|name| name.len() + NAME_OVERHEAD).sum()
}

/// The subscriptions of a stream to one type.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Whether the client has asked for the type at all.
    pub(crate) has_begun: bool,
    /// Whether it has ever asked for something by name.
    pub(crate) has_named: bool,
    resource_type: ResourceType,
    pub(crate) is_wildcard: bool,
    pub(crate) names: Overlay<()>,
    /// What the names take in memory, about.
    size: usize,
}

/// What one list of a request adds to the subscriptions, or takes from them.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The names.
    pub(crate) names: Vec<Arc<str>>,
    /// Whether the client wants all resources from now on, or no longer.
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

    /// Whether the client wants `name`.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains_key(name)
    }

    /// What the names take in memory, about.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Takes names out. Those are returned that were in.
    pub(crate) fn unsubscribe(&mut self, names: &[String]) -> Change {
        let mut change = Change::default();
        for name in names {
            if self.resource_type.allows_wildcard() && name == WILDCARD {
                change.wildcard |= std::mem::take(&mut self.is_wildcard);
            } else if let Some((name, ())) = self.names.take(name) {
                self.size -= name.len() + NAME_OVERHEAD;
                change.names.push(name);
            }
        }
        change
    }

    /// Puts `names` in the place of all that was there, as each request of the state-of-the-world variant
    /// does. Those are returned that were not in, and whether the client wants all from now on; the
    /// others that were in are dropped.
    pub(crate) fn replace(&mut self, names: &[String]) -> Change {
        // "Legacy wildcard": no names ask for all, as long as the client has never given one.
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

    /// Holds the names as those of `resources`, where they mostly are.
    pub(crate) fn share(&mut self, resources: &ResourceMap) {
        self.names.share(resources);
    }

    /// Puts names in. All are returned, also those that were in: "the server must respond with all
    /// resources in `resource_names_subscribe`".
    pub(crate) fn subscribe(&mut self, names: &[String]) -> Change {
        let mut change = Change::default();
        // "Legacy wildcard": a first request without names asks for all. Envoy does, also when it
        // connects again and lists what it has in `initial_resource_versions`.
        let is_legacy = !self.has_begun && names.is_empty() && self.resource_type.allows_wildcard();
        self.has_begun = true;
        if is_legacy {
            change.wildcard = !std::mem::replace(&mut self.is_wildcard, true);
        }
        for name in names {
            if self.resource_type.allows_wildcard() && name == WILDCARD {
                change.wildcard |= !std::mem::replace(&mut self.is_wildcard, true);
                continue;
            }
            let known = self.names.name(name);
            change.names.push(known.unwrap_or_else(|| self.insert(name)));
        }
        change
    }
}
