//! The test harness: a reconciler with simulated proxies, and the feeds that it publishes.

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_catalog::{CertificateStore, Domain, JoinRecord, Mesh, ProxyId, TrustDomain};
use ironmesh_cert::{Authority, ServiceCertificates};
use ironmesh_config_language::{Document, load_documents};
use ironmesh_config_settings::Settings;
use ironmesh_store::{KeyEncryptionKey, MeshState, Store};
use ironmesh_xds_server::Hub;
use ironmesh_xds_server::simulated::SimulatedClient;
use ironmesh_xds_wire::Node;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::health_table::HealthTable;
use crate::leave_table::LeaveTable;
use crate::peers::Peers;
use crate::policy_source::PolicyState;
use crate::reconciler::{EndpointsOptions, Reconciler, StatusFeeds};
use crate::register::Register;
use crate::serving_table::ServingTable;
use crate::test_disk::TestDisk;

pub(super) struct Harness {
    pub(super) folder: TempDir,
    pub(super) reconciler: Reconciler,
    pub(super) feeds: StatusFeeds,
    pub(super) register: Arc<Register>,
    /// The disk of the register.
    pub(super) disk: Arc<TestDisk>,
    pub(super) leaves: Arc<LeaveTable>,
    pub(super) serving: Arc<ServingTable>,
    pub(super) health: Arc<HealthTable>,
    pub(super) policy: watch::Sender<PolicyState>,
    pub(super) hub: Arc<Hub>,
    pub(super) now: Timestamp,
}

impl Harness {
    pub(super) fn open(policy: &str) -> Self {
        Self::open_with(policy, EndpointsOptions::default())
    }

    pub(super) fn open_with(policy: &str, endpoints: EndpointsOptions) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), policy, endpoints)
    }

    /// This control plane after a restart without a clean shutdown.
    pub(super) fn restarted(self, policy: &str, endpoints: EndpointsOptions) -> Self {
        let Self { folder, reconciler, register, disk, hub, .. } = self;
        drop((reconciler, register, disk, hub));
        Self::in_folder(folder, policy, endpoints)
    }

    /// This control plane after a clean shutdown and a restart.
    pub(super) fn restarted_cleanly(mut self, policy: &str, endpoints: EndpointsOptions) -> Self {
        self.reconciler.store_rest();
        self.restarted(policy, endpoints)
    }

    fn in_folder(folder: TempDir, policy: &str, endpoints: EndpointsOptions) -> Self {
        let now = Timestamp::now();
        let path = folder.path().join("state");
        let exists = Store::database_exists(&path);
        let kek = KeyEncryptionKey::load_or_create(&folder.path().join("kek"), exists).unwrap();
        let store = Arc::new(Store::open(&path, kek).unwrap());
        let state = MeshState::new(Arc::<Store>::clone(&store));
        let trust_domain = TrustDomain::new(Domain::default());
        let authority = Authority::open(&*state, &trust_domain, now).unwrap();
        let certificate_store: Arc<dyn CertificateStore> = Arc::<MeshState>::clone(&state);
        let certificates = ServiceCertificates::open(Arc::clone(&certificate_store)).unwrap();
        let disk = Arc::new(TestDisk::new(Arc::clone(&store)));
        let register = Arc::new(Register::open(Arc::<TestDisk>::clone(&disk), now).unwrap());
        let (leaves, serving) = <(Arc<LeaveTable>, Arc<ServingTable>)>::default();
        let health = Arc::<HealthTable>::default();
        let (policy, receiver) = watch::channel(state_of(policy));
        let hub = Arc::<Hub>::default();
        let (reconciler, feeds, _) = Reconciler::new(
            Mesh { domain: Domain::default(), trust_domain },
            &Settings::default(),
            store,
            state,
            certificate_store,
            Arc::new(Mutex::new(authority)),
            certificates,
            Arc::clone(&register),
            Arc::clone(&leaves),
            Arc::clone(&serving),
            Arc::clone(&health),
            receiver,
            endpoints,
            Arc::clone(&hub),
        )
        .unwrap();
        Self {
            folder,
            reconciler,
            feeds,
            register,
            disk,
            leaves,
            serving,
            health,
            policy,
            hub,
            now,
        }
    }

    /// Enrolls proxy number `number` for these services, without connecting it.
    pub(super) fn join(&self, number: u8, services: &[&str]) -> JoinRecord {
        self.join_at(number, SocketAddr::from(([10, 0, 0, number], 15003)), services)
    }

    /// Enrolls proxy number `number` at this mesh address, without connecting it.
    pub(super) fn join_at(
        &self,
        number: u8,
        mesh_address: SocketAddr,
        services: &[&str],
    ) -> JoinRecord {
        let record = JoinRecord {
            claimed_at: Some(self.now),
            ..JoinRecord::new(
                ProxyId(Uuid::from_u128(number.into())),
                services.iter().map(|name| name.parse().unwrap()).collect(),
                mesh_address,
                self.now,
                self.now + SignedDuration::from_hours(24 * 365),
            )
        };
        self.register.add(record.clone()).unwrap();
        record
    }

    /// Connects an enrolled proxy.
    pub(super) fn connect(&self, record: &JoinRecord) -> SimulatedClient {
        SimulatedClient::connect(&self.hub, &record.id.to_string(), node(record))
    }

    /// Reconnects proxy number `number`, which still has its resources.
    pub(super) fn returning(&self, number: u8) -> SimulatedClient {
        let record = self.register.get(ProxyId(Uuid::from_u128(number.into()))).unwrap();
        SimulatedClient::reconnect(&self.hub, &record.id.to_string(), node(&record))
    }

    /// Enrolls and connects a proxy.
    pub(super) fn proxy(&self, number: u8, services: &[&str]) -> SimulatedClient {
        self.connect(&self.join(number, services))
    }

    /// Lets the reconciler follow peers, of which nothing is known yet.
    pub(super) fn follow_peers(&mut self) -> Arc<Peers> {
        let peers = Arc::<Peers>::default();
        self.reconciler.follow_shared(Arc::default(), Arc::clone(&peers));
        peers
    }

    /// The revision of the active policy.
    pub(super) fn revision(&self) -> String {
        let state = self.policy.borrow();
        state.specification.as_ref().map(|policy| policy.revision.to_string()).unwrap_or_default()
    }

    /// Makes another policy active for the next pass.
    pub(super) fn load_policy(&self, text: &str) {
        self.policy.send_replace(state_of(text));
    }

    /// Makes another policy active, and runs one pass.
    pub(super) fn set_policy(&mut self, text: &str) {
        self.load_policy(text);
        self.pass();
    }

    /// Runs one reconciliation pass.
    pub(super) fn pass(&mut self) {
        self.reconciler.reconcile(self.now);
    }

    /// Runs one pass as at a tick of the clock.
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.reconciler.next_tick = Instant::now();
        self.reconciler.reconcile(now);
    }

    /// Runs passes in which these clients ACK everything, until nothing changes any more.
    pub(super) fn settle(&mut self, clients: &mut [&mut SimulatedClient]) {
        for _ in 0..5 {
            self.pass();
            for client in &mut *clients {
                client.ack_all();
            }
        }
    }
}

/// The xDS node of a proxy without node metadata.
pub(super) fn node(record: &JoinRecord) -> Node {
    Node { id: record.id.to_string(), ..Node::default() }
}

fn state_of(policy: &str) -> PolicyState {
    let loaded = load_documents([Document::new("p.toml", policy)]);
    assert!(loaded.specification.is_some(), "{:#?}", loaded.findings);
    PolicyState { specification: loaded.specification, ..PolicyState::default() }
}
