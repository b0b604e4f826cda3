//! Whether a client is synced: it has ACKed all of its set, and has nothing else.
//!
//! Evaluated at each change of the set and at each ACK, in the time of what differs: a settled stream shares its map of
//! versions with the set. This module never decides which set a client should have.

use ironmesh_xds_wire::{ResourceMap, ResourceSet, ResourceType, Version};

use super::{Client, Hub};
use crate::overlay::Overlay;
use crate::references::PARTS;

impl Hub {
    /// Whether a client is connected and synced with the set that was published to it last.
    pub fn is_synced(&self, client: &str) -> bool {
        let clients = self.clients.lock();
        clients.by_key.get(client).is_some_and(|client| client.status.is_synced())
    }
}

impl Client {
    /// Publishes a set, and evaluates again the types that differ from the set before.
    pub(super) fn set_published(&mut self, set: ResourceSet) {
        let before = self.set.send_replace(Some(set));
        self.evaluate(|of, set| {
            before.as_ref().is_none_or(|before| !before.of(of).ptr_eq(set.of(of)))
        });
    }

    /// Evaluates one type again, or all of them, after a change of what the client has ACKed.
    pub(super) fn update_sync(&mut self, only: Option<ResourceType>) {
        self.evaluate(|of, _| only.is_none_or(|only| only == of));
    }

    /// Evaluates the types again that may have changed.
    fn evaluate(&mut self, may_have_changed: impl Fn(ResourceType, &ResourceSet) -> bool) {
        let set = self.set.borrow();
        let mut behind = [true; ResourceType::ALL.len()];
        if let Some(set) = &*set {
            let types = ResourceType::ALL.into_iter().zip(self.status.behind);
            for (is_behind, (of, was_behind)) in behind.iter_mut().zip(types) {
                *is_behind = if may_have_changed(of, set) {
                    !is_synced(of, self.acked(of), set.of(of))
                } else {
                    was_behind
                };
            }
        }
        drop(set);
        self.status.behind = behind;
    }

    /// The versions of a type that decide: those of the newest aggregated stream, because a hot restart has two. Without
    /// one, those of the newest stream that ACKed the type.
    fn acked(&self, of: ResourceType) -> Option<&Overlay<Version>> {
        if let Some(stream) = self.newest_aggregated() {
            return self.status.acked.get(&(stream, of));
        }
        let mut acked = self.status.acked.iter().rev().filter(|((_, acked), _)| *acked == of);
        acked.next().map(|(_, acked)| acked)
    }

    /// The number of the newest aggregated stream.
    pub(super) fn newest_aggregated(&self) -> Option<u64> {
        let mut newest = self.live.iter().rev().filter(|(_, stream)| stream.is_aggregated);
        newest.next().map(|(number, _)| *number)
    }
}

/// Whether a client that has ACKed these versions of a type is synced with these resources.
fn is_synced(of: ResourceType, acked: Option<&Overlay<Version>>, resources: &ResourceMap) -> bool {
    // A client requests the secrets and configurations of filters that its other resources refer
    // to. The set may have more.
    let may_lack = PARTS.contains(&of);
    let Some(acked) = acked else { return may_lack || resources.is_empty() };
    if !may_lack && acked.len() < resources.len() {
        return false;
    }
    acked.differences(resources).all(|(name, version)| match version {
        None => may_lack,
        // A client drops names of other types when nothing refers to them, and reports no ACK of that.
        Some(_) => !of.allows_wildcard() && !resources.contains_key(name),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ironmesh_xds_wire::Node;
    use ironmesh_xds_wire::ResourceType::{Cluster, Listener};

    use super::*;
    use crate::simulated::SimulatedClient;
    use crate::test_resources::{cluster, listener, secret, set};

    fn connect(hub: &Arc<Hub>) -> SimulatedClient {
        SimulatedClient::connect(hub, "x", Node::default())
    }

    #[test]
    fn client_is_synced_once_it_has_acked_the_last_resource() {
        let hub = Arc::<Hub>::default();
        let mut client = connect(&hub);
        assert!(!hub.is_synced("x") && !hub.is_synced("unknown"));
        hub.publish("x", set([cluster("a", 1), listener("l", 1), secret("unused", 1)]));
        client.ack(Cluster);
        assert!(!hub.is_synced("x"));
        client.ack(Listener);
        assert!(hub.is_synced("x"), "no resource refers to the secret");
        hub.publish("x", set([cluster("a", 1), listener("l", 1)]));
        assert!(hub.is_synced("x"), "nothing that it has differs");
        hub.publish("x", set([cluster("a", 1), listener("l", 2)]));
        assert!(!hub.is_synced("x"));
        hub.publish("x", set([listener("l", 3)]));
        client.ack(Listener);
        assert!(!hub.is_synced("x"), "it still has the cluster");
        client.ack(Cluster);
        assert!(hub.is_synced("x"));
        drop(client);
        assert!(!hub.is_synced("x"));
    }

    #[test]
    fn change_states_whether_the_client_left_synced() {
        let hub = Arc::<Hub>::default();
        let left_synced = || {
            let changes = hub.take_changed();
            let [(_, change)] = &changes[..] else { panic!("{changes:?}") };
            (change.streams == 0).then_some(change.was_synced)
        };
        let mut client = connect(&hub);
        hub.publish("x", set([listener("l", 1)]));
        client.ack(Listener);
        drop(client);
        assert_eq!(left_synced(), Some(true));
        let client = connect(&hub);
        hub.publish("x", set([listener("l", 2)]));
        drop(client);
        assert_eq!(left_synced(), Some(false));
    }

    #[test]
    fn newest_aggregated_stream_decides_whether_the_client_is_synced() {
        let hub = Arc::<Hub>::default();
        let mut parent = connect(&hub);
        hub.publish("x", set([listener("l", 1)]));
        parent.ack_all();
        let mut child = connect(&hub);
        assert!(!hub.is_synced("x"));
        parent.nack(Listener, "l", "late");
        assert!(hub.status_of("x").unwrap().nacks.is_empty());
        child.ack_all();
        assert!(hub.is_synced("x"));
        drop(parent);
        assert!(hub.is_synced("x"));
    }
}
