//! The checks after each step, and at the end.

use std::sync::Arc;

use ironmesh_xds_wire::Resource;
use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route};

use super::{Walk, poison_of};
use crate::references::REMOVALS;
use crate::scenarios::dialect::{Dialect, Push};

impl<V: Dialect> Walk<V> {
    /// Checks the new pushes.
    pub(super) fn check(&mut self) {
        self.was_late |= self.client.take_pushes().iter().any(|line| line.ends_with("late"));
        for push in std::mem::take(&mut self.client.log) {
            self.check_order(&push);
            for resource in &push.resources {
                self.check_resource(resource, push.news.contains(resource));
            }
            for name in &push.removed {
                let key = (push.of, Arc::clone(name));
                self.repeatable.remove(&key);
                self.delivered.remove(&key);
                if push.of == Endpoint {
                    self.awaiting_endpoints.remove(name);
                }
            }
        }
        for of in ResourceType::ALL {
            let in_flight = self.client.open.iter().filter(|push| push.of == of).count();
            assert!(in_flight <= 1 || self.was_late, "{in_flight} pushes of {of} are under way");
        }
        for ((of, name), version) in &self.client.nacked {
            assert_eq!(*version, poison_of(*of, name), "{of} {name} is blamed");
        }
    }

    /// Checks make before break.
    fn check_order(&self, push: &Push) {
        if matches!(push.of, Listener | Route) {
            // In the state of the world, an old resource may be sent again in place of one that
            // waits, is bisected or is uncertain: to omit a listener would remove it.
            let is_old = |one: &Arc<Resource>| {
                let is_wanted = self.published.of(push.of).get(one.name()) == Some(one);
                V::either(false, !is_wanted)
            };
            for resource in push.news.iter().filter(|one| !is_old(one)) {
                self.check_references(resource);
            }
        }
        if self.was_late {
            return;
        }
        let open = self.client.open.iter();
        let referrers = REMOVALS.iter().find(|(of, _)| *of == push.of).unwrap().1;
        let is_before = |open: &&Push| open.nonce < push.nonce && referrers.contains(&open.of);
        let before: Vec<_> = open.filter(is_before).collect();
        // In the state of the world only a cluster waits, and it is known to exist when it was
        // ACKed on this stream.
        let is_last = |name: &&Arc<str>| {
            V::either(
                !self.repeatable.contains(&(push.of, Arc::clone(name))),
                push.of == Cluster
                    && self.acked_clusters.contains(*name)
                    && !self.published.contains(Cluster, name),
            )
        };
        if let Some(gone) = push.removed.iter().find(is_last) {
            assert!(before.is_empty(), "{gone} is removed, and that is not last: {before:?}");
        }
    }

    /// Checks that what a listener or a route configuration names exists, if it can.
    fn check_references(&self, resource: &Resource) {
        let client = &self.client;
        for cluster in self.published.of(Cluster).values() {
            let key = (Cluster, Arc::clone(cluster.name()));
            // A resource that was NACKed once may still count as NACKed at a server that learned
            // too late of another version.
            let is_to_have = client.covers(Cluster, cluster.name())
                && !V::may_lack(client, &key, cluster.version())
                && !client.stream.is_blocked(Cluster);
            if is_to_have && resource.refers_to(Cluster, cluster.name()) {
                assert!(client.has.contains_key(&key), "{resource:?} names {cluster:?}");
            }
        }
    }

    fn check_resource(&mut self, resource: &Arc<Resource>, is_changed: bool) {
        let (of, name) = (resource.resource_type(), resource.name());
        assert!(self.client.covers(of, name), "not subscribed: {resource:?}");
        let key = (of, Arc::clone(name));
        let is_repeatable = self.repeatable.remove(&key);
        let before = self.delivered.insert(key, Arc::clone(resource));
        // A whole state contains all resources; and an unanswered late push is repeated.
        let may_repeat = V::either(false, of.allows_wildcard() || self.was_late);
        let is_first = is_repeatable || before.as_ref() != Some(resource);
        assert!(is_first || may_repeat, "sent twice: {resource:?}");
        match of {
            Cluster => {
                // A cluster of a whole state may be requested, or uncertain, though it is not new.
                self.repeatable.insert((Endpoint, Arc::clone(name)));
                if is_changed && self.client.covers(Endpoint, name) {
                    self.awaiting_endpoints.insert(Arc::clone(name));
                }
            }
            Endpoint => {
                self.awaiting_endpoints.remove(name);
                let cluster = (Cluster, Arc::clone(name));
                let target = self.published.of(Cluster).get(name).map(|cluster| cluster.version());
                // Rule 2 covers clusters that are still to be sent. (A server that learned too late
                // of another version does not send what was NACKed once.)
                let may_lack = |version| V::may_lack(&self.client, &cluster, version);
                let is_to_come = target.is_some_and(|version| !may_lack(version));
                let is_repeatable = !is_to_come || self.client.stream.is_blocked(Cluster);
                if self.client.covers(Cluster, name) && !is_repeatable {
                    assert!(self.delivered.contains_key(&cluster), "before its cluster: {name}");
                }
            }
            _ => {}
        }
    }

    pub(super) fn check_end(&self) {
        let client = &self.client;
        for resource in self.published.iter() {
            let (of, name) = (resource.resource_type(), resource.name());
            let key = (of, Arc::clone(name));
            if !client.covers(of, name)
                || client.stream.is_blocked(of)
                || V::may_lack(client, &key, resource.version())
            {
                continue;
            }
            assert_eq!(client.has.get(&key), Some(resource), "it lacks {resource:?}");
            assert_eq!(client.stream.acked(of).get(name), Some(resource.version()));
        }
        for (of, name) in client.has.keys() {
            let may_keep = V::either(false, !of.allows_wildcard() || client.stream.is_blocked(*of));
            assert!(may_keep || self.published.contains(*of, name), "it still has {of} {name}");
        }
        // In the state of the world, the absence of endpoints cannot be expressed.
        let is_expressible =
            |name: &Arc<str>| V::either(true, self.published.contains(Endpoint, name));
        let waits = |name: &&Arc<str>| {
            let key = (Endpoint, Arc::clone(name));
            let wanted = self.published.of(Endpoint).get(name).map(|one| one.version());
            // A resource that was NACKed once may still count as NACKed at a server that learned
            // too late of another version.
            let may_lack = wanted.is_some_and(|version| V::may_lack(client, &key, version));
            !client.nacked.contains_key(&key) && !may_lack && is_expressible(name)
        };
        assert_eq!(
            self.awaiting_endpoints.iter().find(waits),
            None,
            "a cluster waits for its endpoints"
        );
    }
}
