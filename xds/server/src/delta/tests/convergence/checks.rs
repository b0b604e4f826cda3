//! What must hold after each step, and at the end.

use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route};
use ironmesh_xds_wire::{DeltaResponse, Resource};

use super::{Walk, covers};

impl Walk {
    /// Looks at what has come.
    pub(super) fn look(&mut self) {
        self.was_late |= self.client.saw().iter().any(|line| line.ends_with("late"));
        for (of, response) in std::mem::take(&mut self.client.log) {
            self.check_order(of, &response);
            for resource in &response.resources {
                self.check_resource(resource);
            }
            for name in &response.removed {
                let key = (of, Arc::clone(name));
                self.excused.remove(&key);
                self.brought.remove(&key);
                if of == Endpoint {
                    self.owed.remove(name);
                }
            }
        }
    }

    fn check_order(&self, of: ResourceType, response: &DeltaResponse) {
        if self.was_late {
            return;
        }
        let before: Vec<_> =
            self.client.open.iter().filter(|(_, open)| open.nonce < response.nonce).collect();
        if matches!(of, Listener | Route) {
            assert!(
                before.iter().all(|(of, _)| *of != Cluster),
                "clusters are not taken: {before:?}"
            );
        }
        let is_asked = |name: &Arc<str>| self.excused.contains(&(of, Arc::clone(name)));
        if !response.removed.iter().all(is_asked) {
            assert!(before.is_empty(), "removals are not last: {before:?}");
        }
    }

    fn check_resource(&mut self, resource: &Arc<Resource>) {
        let (of, name) = (resource.resource_type(), resource.name());
        let key = (of, Arc::clone(name));
        assert!(covers(&self.wanted, of, name), "not asked for: {resource:?}");
        let is_excused = self.excused.remove(&key);
        let before = self.brought.insert(key, Arc::clone(resource));
        assert!(is_excused || before.as_ref() != Some(resource), "sent twice: {resource:?}");
        let cluster = (Cluster, Arc::clone(name));
        match of {
            Cluster => {
                self.excused.insert((Endpoint, Arc::clone(name)));
                if covers(&self.wanted, Endpoint, name) {
                    self.owed.insert(Arc::clone(name));
                }
            }
            Endpoint => {
                self.owed.remove(name);
                let target = self.published.of(Cluster).get(name).map(|cluster| cluster.version());
                let is_refused = self.client.refused.get(&cluster).copied() == target;
                if covers(&self.wanted, Cluster, name) && !is_refused {
                    assert!(self.brought.contains_key(&cluster), "before its cluster: {name}");
                }
            }
            _ => {}
        }
    }

    pub(super) fn check_end(&self) {
        let (has, wanted) = (&self.client.has, &self.wanted);
        for resource in self.published.iter() {
            let (of, name) = (resource.resource_type(), resource.name());
            let key = (of, Arc::clone(name));
            if !covers(wanted, of, name) {
                continue;
            }
            if self.client.refused.get(&key) == Some(&resource.version()) {
                continue;
            }
            assert_eq!(has.get(&key), Some(&resource.version()), "it lacks {resource:?}");
            assert_eq!(self.client.stream.acked(of).get(name), Some(&resource.version()));
        }
        for (of, name) in has.keys() {
            assert!(self.published.contains(*of, name), "it still has {of} {name}");
        }
        let waits =
            |name: &&Arc<str>| !self.client.refused.contains_key(&(Endpoint, Arc::clone(name)));
        assert_eq!(self.owed.iter().find(waits), None, "a cluster waits for its endpoints");
    }
}
