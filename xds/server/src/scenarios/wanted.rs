//! The subscription of a model client to one type.

use std::collections::BTreeSet;

use ironmesh_xds_wire::ResourceType;

/// The subscription of a client to a type that it has requested.
#[derive(Debug, Default, Clone)]
pub(crate) struct Wanted {
    has_begun: bool,
    /// Whether it has named a resource or the star on this stream.
    has_named: bool,
    /// Whether it is subscribed to the wildcard.
    pub(crate) all: bool,
    pub(crate) names: BTreeSet<String>,
}

impl Wanted {
    /// Unsubscribes from names.
    pub(crate) fn unsubscribe(&mut self, of: ResourceType, names: &[&str]) {
        for name in names {
            self.all &= !is_star(of, name);
            self.names.remove(*name);
        }
    }

    /// Subscribes to further names. A first request without names subscribes to all (R31).
    pub(crate) fn subscribe(&mut self, of: ResourceType, names: &[&str]) {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.all |= is_first && names.is_empty() && of.allows_wildcard();
        self.all |= names.iter().any(|name| is_star(of, name));
        let names = names.iter().map(|&name| name.to_owned());
        self.has_named |= names.len() > 0;
        self.names.extend(names.filter(|name| !is_star(of, name)));
    }

    /// The subscription as one list, as in the first request of a stream, and in the state of the
    /// world in each request. A client that has never named anything subscribes to all with an
    /// empty list.
    pub(crate) fn requested_names(&self) -> Vec<String> {
        let star = (self.all && self.has_named).then(|| "*".to_owned());
        star.into_iter().chain(self.names.iter().cloned()).collect()
    }

    /// Replaces the subscription with this list.
    pub(crate) fn replace(&mut self, of: ResourceType, names: &[String]) {
        self.has_begun = true;
        self.has_named |= !names.is_empty();
        self.all = of.allows_wildcard() && !self.has_named;
        self.all |= names.iter().any(|name| is_star(of, name));
        self.names = names.iter().filter(|name| !is_star(of, name)).cloned().collect();
    }

    pub(crate) fn covers(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }

    pub(crate) fn is_nothing(&self) -> bool {
        !self.all && self.names.is_empty()
    }
}

fn is_star(of: ResourceType, name: &str) -> bool {
    of.allows_wildcard() && name == "*"
}
