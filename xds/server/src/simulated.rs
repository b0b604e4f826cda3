//! Clients without sockets, for the tests of publishers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ironmesh_xds_wire::{ErrorDetail, Node, Resource, ResourceMap, ResourceSet, ResourceType};

use crate::hub::{Connection, Hub, LiveStream, Reconnect};
use crate::overlay::Overlay;
use crate::stream::{Acked, Nacked};

/// The address of a client without an explicit one.
const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A client with one stream, which ends on drop. It ACKs and NACKs when the test says so.
#[derive(Debug)]
pub struct SimulatedClient {
    connection: Connection,
    has: BTreeMap<ResourceType, ResourceMap>,
}

impl SimulatedClient {
    /// Connects a client that has nothing.
    pub fn connect(hub: &Arc<Hub>, client: &str, node: Node) -> Self {
        Self::begin(hub, client, node, Reconnect::Fresh, HERE)
    }

    /// The same from `address`.
    pub fn connect_from(hub: &Arc<Hub>, client: &str, node: Node, address: SocketAddr) -> Self {
        Self::begin(hub, client, node, Reconnect::Fresh, address)
    }

    /// Connects a client that resumes with resources.
    pub fn reconnect(hub: &Arc<Hub>, client: &str, node: Node) -> Self {
        Self::begin(hub, client, node, Reconnect::Resumed, HERE)
    }

    #[expect(clippy::expect_used, reason = "for tests: a panic is a failed test")]
    fn begin(
        hub: &Arc<Hub>,
        client: &str,
        node: Node,
        reconnect: Reconnect,
        address: SocketAddr,
    ) -> Self {
        let live = LiveStream::begin(address, true);
        let connection = hub.connect(client.into(), node, reconnect, usize::MAX, live);
        let connection = connection.expect("there is no bound");
        Self { connection, has: BTreeMap::new() }
    }

    /// The set published to it.
    pub fn set(&self) -> ResourceSet {
        self.connection.sets.borrow().clone().unwrap_or_default()
    }

    /// ACKs its whole set, including removals.
    pub fn ack_all(&mut self) {
        let set = self.set();
        for resource_type in ResourceType::ALL {
            self.ack_type(&set, resource_type);
        }
    }

    /// ACKs the resources of one type.
    pub fn ack(&mut self, resource_type: ResourceType) {
        let set = self.set();
        self.ack_type(&set, resource_type);
    }

    fn ack_type(&mut self, set: &ResourceSet, resource_type: ResourceType) {
        let has = set.of(resource_type);
        if self.has.get(&resource_type) == Some(has) {
            return;
        }
        self.has.insert(resource_type, has.clone());
        let ack = Acked { resource_type, names: has.keys().cloned().collect() };
        self.connection.acked(&ack, Overlay::all_of(has));
    }

    /// Takes the NACKed resources that were sent to it again since the last call.
    pub fn take_retried(&mut self) -> Vec<(ResourceType, Arc<str>)> {
        let retries = &mut self.connection.retries;
        if !retries.has_changed().unwrap_or_default() {
            return Vec::new();
        }
        retries.borrow_and_update().to_vec()
    }

    /// NACKs a published resource.
    ///
    /// # Panics
    ///
    /// If its set has no such resource: a NACK of nothing would make a test pass.
    #[expect(clippy::expect_used, reason = "for tests: a panic is a failed test")]
    pub fn nack(&self, resource_type: ResourceType, name: &str, message: &str) {
        let set = self.set();
        let resource: &Arc<Resource> = set.of(resource_type).get(name).expect("it is to have it");
        self.connection.nacked(&Nacked {
            resource_type,
            resources: vec![(Arc::clone(resource.name()), resource.version())],
            error: ErrorDetail { code: 13, message: message.to_owned() },
            is_final: true,
            keeps_earlier: self.has.get(&resource_type).is_some_and(|has| has.contains_key(name)),
        });
    }
}
