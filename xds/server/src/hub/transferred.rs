//! The NACKs of clients that are connected to a different server of the same resources. A client that moves here is not sent
//! again what it NACKed there.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;
use ironmesh_xds_wire::ResourceType;

use super::{ClientKey, Hub, Nack};

/// The NACKs of each such client.
pub(super) type Transferred = HashMap<ClientKey, BTreeMap<(ResourceType, Arc<str>), Nack>>;

impl Hub {
    /// Replaces the NACKs of a client that is connected to a different server. They count from its next stream here on,
    /// unless that is one of a new process. Ignores a client that is connected here.
    pub fn transfer_nacks(
        &self,
        client: &ClientKey,
        nacks: BTreeMap<(ResourceType, Arc<str>), Nack>,
    ) {
        let mut clients = self.clients.lock();
        let known = clients.by_key.get(client).map(|known| &known.status);
        if known.is_some_and(|status| status.streams > 0) {
            return;
        }
        // What it NACKed here before may have been ACKed there.
        if nacks.is_empty() && known.is_none_or(|status| status.nacks.is_empty()) {
            clients.transferred.remove(client);
        } else {
            clients.transferred.insert(Arc::clone(client), nacks);
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_xds_wire::Node;
    use ironmesh_xds_wire::ResourceType::Route;

    use super::*;
    use crate::simulated::SimulatedClient;
    use crate::test_resources::{route, set};

    fn nacks(hub: &Hub) -> usize {
        hub.status_of("x").map_or(0, |status| status.nacks.len())
    }

    #[test]
    fn transferred_nacks_count_for_a_client_that_resumes_here() {
        let (hub, client) = (Arc::<Hub>::default(), ClientKey::from("x"));
        let set = set([route("r", 1)]);
        let version = set.of(Route)["r"].version();
        let nack = Nack {
            version,
            message: "no such thing".to_owned(),
            is_certain: true,
            keeps_earlier: true,
        };
        let all = BTreeMap::from([((Route, Arc::from("r")), nack)]);
        hub.transfer_nacks(&client, all.clone());
        let moved = SimulatedClient::reconnect(&hub, "x", Node::default());
        assert_eq!(nacks(&hub), 1);
        hub.transfer_nacks(&client, BTreeMap::new());
        assert_eq!(nacks(&hub), 1, "it is connected here");
        drop(moved);
        // It has ACKed the version elsewhere, and comes back.
        hub.transfer_nacks(&client, BTreeMap::new());
        let moved = SimulatedClient::reconnect(&hub, "x", Node::default());
        assert_eq!(nacks(&hub), 0);
        drop(moved);
        // A new process has NACKed nothing.
        hub.transfer_nacks(&client, all);
        let started = SimulatedClient::connect(&hub, "x", Node::default());
        assert_eq!(nacks(&hub), 0);
        drop(started);
    }
}
