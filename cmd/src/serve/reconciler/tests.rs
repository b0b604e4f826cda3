use std::net::SocketAddr;

use ironmesh_catalog::{
    CertificateStore, Domain, JoinRecord, Participation, ProxyStatement, ServiceAccount,
    TrustDomain,
};
use ironmesh_config::{Document, load_documents};
use ironmesh_store::KeyEncryptionKey;
use jiff::SignedDuration;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
"#;

/// A reconciler with one joined proxy, and what it tells.
struct Place {
    _folder: TempDir,
    reconciler: Reconciler,
    outlook: Outlook,
    register: Arc<Register>,
    policy: watch::Sender<PolicyState>,
    record: JoinRecord,
}

impl Place {
    fn open(now: Timestamp) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kek = KeyEncryptionKey::load_or_create(&folder.path().join("kek"), false).unwrap();
        let store = Arc::new(Store::open(&folder.path().join("state"), kek).unwrap());
        let trust_domain = TrustDomain::new(Domain::default());
        let authority = Authority::open(&*store, &trust_domain, now).unwrap();
        let certificates: Arc<dyn CertificateStore> = Arc::<Store>::clone(&store);
        let certificates = ServiceCertificates::open(certificates).unwrap();
        let register = Arc::new(Register::open(Arc::clone(&store), now).unwrap());
        let record = JoinRecord {
            id: ProxyId(Uuid::from_u128(1)),
            services: vec!["store".parse().unwrap()],
            mesh_address: SocketAddr::from(([10, 0, 0, 1], 15003)),
            joined_at: now,
            certificate_expires_at: now + SignedDuration::from_hours(24 * 365),
            claimed_at: Some(now),
            participation: Participation::default(),
        };
        register.add(record.clone()).unwrap();
        let specification = load_documents([Document::new("p.toml", POLICY)]).specification;
        let (policy, receiver) =
            watch::channel(PolicyState { specification, ..PolicyState::default() });
        let (reconciler, outlook) = Reconciler::new(
            Mesh { domain: Domain::default(), trust_domain },
            &Settings::default(),
            store,
            Arc::new(Mutex::new(authority)),
            certificates,
            Arc::clone(&register),
            receiver,
            Arc::default(),
        )
        .unwrap();
        Self { _folder: folder, reconciler, outlook, register, policy, record }
    }

    /// Reconciles as at a tick.
    fn tick(&mut self, now: Timestamp) {
        self.reconciler.next_tick = Instant::now();
        self.reconciler.reconcile(now);
    }

    /// How many resources are encoded for what has happened since the last time.
    fn encodes(&mut self, now: Timestamp, is_tick: bool) -> u64 {
        let specification = self.policy.borrow().specification.clone().unwrap();
        let moments = &mut self.reconciler.moments;
        let before = moments.compiler().unwrap().encoded();
        moments.renew(&specification, self.register.records(), now, is_tick);
        moments.compiler().unwrap().encoded() - before
    }

    fn serial(&self) -> String {
        let account: ServiceAccount = "store".parse().unwrap();
        let snapshot = self.reconciler.moments.snapshot().unwrap();
        snapshot.certificates.get(&account).unwrap().serial.clone()
    }

    /// The version of the certificate that the proxy would be sent now.
    fn sent(&mut self) -> ironmesh_xds_wire::Version {
        let proxy = Proxy { record: self.record.clone(), statement: ProxyStatement::default() };
        let compiled = self.reconciler.moments.compiler().unwrap().compile(&proxy);
        let secrets = compiled.resources.of(ironmesh_xds_wire::ResourceType::Secret);
        secrets.get("service-cert:default/store").unwrap().version()
    }
}

fn later(now: Timestamp, hours: i64) -> Timestamp {
    now + SignedDuration::from_hours(hours)
}

#[test]
fn a_service_certificate_is_renewed_in_time_and_sent() {
    let now = Timestamp::now();
    let mut place = Place::open(now);
    place.tick(now);
    assert!(*place.outlook.ready.borrow());
    let (serial, sent) = (place.serial(), place.sent());
    place.tick(later(now, 12));
    assert_eq!((place.serial(), place.sent()), (serial.clone(), sent), "renewed too early");
    // Two thirds of its life, which is 24 h plus or minus a tenth, are over by now.
    place.tick(later(now, 18));
    assert_ne!(place.serial(), serial);
    assert_ne!(place.sent(), sent);
}

#[test]
fn the_certificate_of_the_xds_port_is_renewed_in_time() {
    let now = Timestamp::now();
    let mut place = Place::open(now);
    place.tick(later(now, 24 * 15));
    assert!(!place.outlook.tls.has_changed().unwrap());
    place.tick(later(now, 24 * 21));
    assert!(place.outlook.tls.has_changed().unwrap());
}

#[test]
fn without_a_policy_nothing_is_served() {
    let now = Timestamp::now();
    let mut place = Place::open(now);
    let good = place.policy.send_replace(PolicyState::default());
    place.tick(now);
    assert!(!*place.outlook.ready.borrow());
    place.policy.send_replace(good);
    place.reconciler.reconcile(now);
    assert!(*place.outlook.ready.borrow());
}

#[test]
fn what_changes_nothing_for_proxies_compiles_nothing_anew() {
    let now = Timestamp::now();
    let mut place = Place::open(now);
    place.tick(now);
    assert_eq!(place.encodes(now, true), 0, "a tick alone");

    let mut other = place.record.clone();
    other.id = ProxyId(Uuid::from_u128(2));
    other.claimed_at = None;
    place.register.add(other.clone()).unwrap();
    assert_eq!(place.encodes(now, false), 0, "another proxy");
    place.register.claim(other.id, now).unwrap();
    assert_eq!(place.encodes(now, false), 0, "a claim");
    let ports = [("store".parse().unwrap(), 80)].into();
    place.register.participates(other.id, &Participation(ports)).unwrap();
    assert_eq!(place.encodes(now, false), 0, "a participant whom nobody calls");
    let endpoints = &place.reconciler.moments.snapshot().unwrap().endpoints;
    assert_eq!(endpoints.values().map(|endpoints| endpoints.len()).sum::<usize>(), 1);
}
