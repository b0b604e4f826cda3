//! What must hold after each step, and at the end.

use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route};
use ironmesh_xds_wire::{ResourceType, SotwResponse};

use super::{POISON, Walk, covers};
use crate::test_resources::resource;

impl Walk {
    /// Looks at what has come.
    pub(super) fn look(&mut self) {
        self.was_late |= self.client.saw().iter().any(|line| line.ends_with("late"));
        for response in std::mem::take(&mut self.client.log) {
            self.check(&response);
            if response.resource_type == Cluster {
                self.clusters.extend(response.resources.iter().map(|r| Arc::clone(r.name())));
                let clusters = &response.resources;
                self.taken.retain(|name| clusters.iter().any(|r| r.name() == name));
            }
        }
        // Who is blamed is guilty.
        for ((of, name), version) in &self.client.refused {
            let is_guilty = resource(*of, name, POISON).version() == *version;
            assert!(is_guilty, "{of} {name} is blamed");
        }
    }

    fn check(&self, response: &SotwResponse) {
        let of = response.resource_type;
        for resource in &response.resources {
            assert!(covers(&self.wanted, of, resource.name()), "not asked for: {resource:?}");
        }
        let before = self.client.open.iter().filter(|open| open.nonce < response.nonce);
        let before: Vec<_> =
            before.filter(|open| !self.was_late || open.resource_type == of).collect();
        if matches!(of, Listener | Route) && !self.was_late {
            let clusters = before.iter().find(|open| open.resource_type == Cluster);
            assert!(clusters.is_none(), "clusters are not taken: {before:?}");
        }
        if of == Cluster && !self.was_late {
            let is_there = |name: &Arc<str>| response.resources.iter().any(|r| r.name() == name);
            let is_gone = |name: &&Arc<str>| {
                covers(&self.wanted, of, name)
                    && !is_there(name)
                    && !self.published.contains(of, name)
            };
            if let Some(gone) = self.taken.iter().find(is_gone) {
                assert!(before.is_empty(), "{gone} is removed, and that is not last: {before:?}");
            }
        }
        if of == Endpoint {
            for name in response.resources.iter().map(|r| r.name()) {
                let target = self.published.of(Cluster).get(name).map(|cluster| cluster.version());
                let refused = self.client.refused.get(&(Cluster, Arc::clone(name))).copied();
                let is_excused = target == refused || target.is_none() || self.is_blocked(Cluster);
                let is_sent = self.clusters.contains(name)
                    || self.client.has.contains_key(&(Cluster, Arc::clone(name)));
                if covers(&self.wanted, Cluster, name) && !is_excused {
                    assert!(is_sent, "before its cluster: {name}");
                }
            }
        }
    }

    /// Whether nothing of the type is sent, because it is not known what the client has.
    fn is_blocked(&self, of: ResourceType) -> bool {
        match of {
            Cluster => self.client.stream.clusters.is_blocked,
            Listener => self.client.stream.listeners.is_blocked,
            _ => false,
        }
    }

    pub(super) fn check_end(&self) {
        let (has, wanted) = (&self.client.has, &self.wanted);
        for resource in self.published.iter() {
            let (of, name) = (resource.resource_type(), resource.name());
            let key = (of, Arc::clone(name));
            if !covers(wanted, of, name) || self.is_blocked(of) {
                continue;
            }
            if self.client.ever_refused.get(&key) == Some(&resource.version()) {
                continue;
            }
            assert_eq!(has.get(&key), Some(resource), "it lacks {resource:?}");
            assert_eq!(self.client.stream.acked(of).get(name), Some(&resource.version()));
        }
        // Of other types a removal cannot be told.
        for (of, name) in has.keys().filter(|(of, _)| of.allows_wildcard() && !self.is_blocked(*of))
        {
            assert!(self.published.contains(*of, name), "it still has {of} {name}");
        }
    }
}
