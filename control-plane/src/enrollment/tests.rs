//! Tokens and renewals against the real store, authority and register.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use ironmesh_catalog::{
    CertificateRecognition, Domain, DriverName, JoinToken, JournalQuery, Labels, Locality, Mesh,
    ProxyId, Revocation, Secret, TrustDomain, UnknownFields,
};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_cert::{BearerToken, TokenUsage};
use ironmesh_cert::{MachineRequest, generate_proxy_key_and_csr};
use ironmesh_config_settings::Settings;
use ironmesh_store::{KeyEncryptionKey, MeshState, Store};
use jiff::SignedDuration;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tempfile::TempDir;

use super::*;
use crate::register::CertificateFirstUse;
use crate::test_disk::TestDisk;

struct World {
    folder: TempDir,
    state: Arc<MeshState>,
    disk: Arc<TestDisk>,
    enroller: Arc<MachineEnrollment>,
    machines: Arc<Machines>,
    now: Timestamp,
}

fn peer(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 40_000))
}

fn request() -> MachineRequest {
    MachineRequest::parse(&generate_proxy_key_and_csr().unwrap().1).unwrap()
}

fn world() -> World {
    open(tempfile::tempdir().unwrap())
}

fn open(folder: TempDir) -> World {
    let (key, path) = (folder.path().join("kek"), folder.path().join("state"));
    let kek = KeyEncryptionKey::load_or_create(&key, Store::database_exists(&path)).unwrap();
    let store = Arc::new(Store::open(&path, kek).unwrap());
    let state = MeshState::new(Arc::<Store>::clone(&store));
    let (domain, now) = (Domain::default(), Timestamp::now());
    let mesh = Mesh { trust_domain: TrustDomain::new(domain.clone()), domain };
    let authority = Authority::open(&*state, &mesh.trust_domain, now).unwrap();
    let disk = Arc::new(TestDisk::new(store));
    let machines = Arc::<Machines>::default();
    let enroller = Arc::new(MachineEnrollment {
        mesh,
        authority: Arc::new(Mutex::new(authority)),
        register: Arc::new(Register::open(Arc::<TestDisk>::clone(&disk), now).unwrap()),
        tokens: Arc::new(TokenTable::open(Arc::<TestDisk>::clone(&disk)).unwrap()),
        alarms: Arc::default(),
        journal: Journal::new(Arc::clone(&state)),
        xds: XdsAddresses { listener: peer(1), advertise: vec![("cp".to_owned(), 15128)] },
        enrolling: Mutex::default(),
        hub: Arc::default(),
        leaves: Arc::default(),
        peers: Arc::default(),
        serving: Arc::default(),
        health: Arc::default(),
        traffic: Arc::default(),
        snapshot: watch::Sender::default().subscribe(),
        convergence: watch::Sender::default().subscribe(),
        policy: watch::Sender::default().subscribe(),
        settings: watch::Sender::new(Settings::default().reloadable()).subscribe(),
        azure: joins(&machines),
    });
    World { folder, state, disk, enroller, machines, now }
}

impl World {
    /// The same state after a restart of the control plane.
    fn restarted(self) -> Self {
        let Self { folder, state, disk, enroller, .. } = self;
        drop((state, disk, enroller));
        open(folder)
    }

    /// Another control plane on the same store.
    fn another_control_plane(&self) -> MachineEnrollment {
        let one = &self.enroller;
        MachineEnrollment {
            mesh: one.mesh.clone(),
            authority: Arc::clone(&one.authority),
            register: Arc::new(
                Register::open(Arc::<TestDisk>::clone(&self.disk), self.now).unwrap(),
            ),
            tokens: Arc::new(TokenTable::open(Arc::<TestDisk>::clone(&self.disk)).unwrap()),
            alarms: Arc::default(),
            journal: one.journal.clone(),
            xds: one.xds.clone(),
            enrolling: Mutex::default(),
            hub: Arc::default(),
            leaves: Arc::default(),
            peers: Arc::default(),
            serving: Arc::default(),
            health: Arc::default(),
            traffic: Arc::default(),
            snapshot: watch::Sender::default().subscribe(),
            convergence: one.convergence.clone(),
            policy: one.policy.clone(),
            settings: one.settings.clone(),
            azure: joins(&self.machines),
        }
    }

    fn token(&self) -> BearerToken {
        self.token_for(|_| {})
    }

    fn token_for(&self, change: impl FnOnce(&mut JoinToken)) -> BearerToken {
        let token = BearerToken::generate(TokenUsage::Join).unwrap();
        let mut record = JoinToken {
            id: token.id().clone(),
            secret_hash: token.secret_hash(),
            created_at: self.now,
            expires_at: self.now + SignedDuration::from_mins(15),
            services: vec!["shop/bookstore".parse().unwrap()],
            addresses: None,
            labels: Labels::default(),
            locality: Locality::default(),
            known_as: Vec::new(),
            machine: None,
            driver: DriverName::default(),
            used: None,
            misused: None,
            revoked: None,
            unknown: UnknownFields::default(),
        };
        change(&mut record);
        self.enroller.tokens.create(&[record], self.now).unwrap();
        token
    }

    fn join(
        &self,
        token: &BearerToken,
        request: &MachineRequest,
        from: SocketAddr,
        after: SignedDuration,
    ) -> Result<Enrolled, EnrollmentError> {
        self.enroller.join(&enrollment(token, request, None), from, self.now + after)
    }

    fn renew(
        &self,
        certificate: &str,
        request: &MachineRequest,
        after: SignedDuration,
    ) -> Result<Enrolled, EnrollmentError> {
        let renewal = ProxyRenewal { proxy: verified(certificate), request: request.clone() };
        self.enroller.renew_certificate(&renewal, peer(7), self.now + after)
    }

    /// An xDS stream with this certificate is accepted.
    fn connect(&self, certificate: &str, after: SignedDuration) {
        let proxy = verified(certificate);
        let first_use =
            CertificateFirstUse { at: self.now + after, certificate: proxy.presented() };
        self.enroller.register.record_use(proxy.identity.proxy, &first_use).unwrap();
    }

    fn stored(&self, token: &BearerToken) -> JoinToken {
        self.enroller.tokens.get(token.id()).unwrap().unwrap().value
    }

    fn findings(&self) -> Vec<String> {
        let misused = self.enroller.tokens.misused();
        let revoked = self.enroller.register.revoked();
        let is_revoked = |id| revoked.contains_key(&id);
        let name_of = |id| self.enroller.register.get(id).map(|record| record.display_name());
        let findings = self.enroller.alarms.findings(&misused, is_revoked, name_of, self.now);
        findings.iter().map(|finding| finding.code.to_string()).collect()
    }

    /// The texts of all findings.
    fn finding_texts(&self) -> Vec<String> {
        let name_of = |id| self.enroller.register.get(id).map(|record| record.display_name());
        let misused = self.enroller.tokens.misused();
        let findings = self.enroller.alarms.findings(&misused, |_| false, name_of, self.now);
        findings.into_iter().map(|finding| finding.message).collect()
    }

    fn record(&self, id: ProxyId) -> Arc<JoinRecord> {
        self.enroller.register.get(id).unwrap()
    }
}

fn enrollment(token: &BearerToken, request: &MachineRequest, address: Option<&str>) -> Enrollment {
    Enrollment {
        token: token.text(),
        request: request.clone(),
        address: address.map(|address| address.parse().unwrap()),
        name: None,
    }
}

fn verified(chain: &str) -> VerifiedProxy {
    let leaf = CertificateDer::pem_slice_iter(chain.as_bytes()).next().unwrap().unwrap();
    VerifiedProxy::read(&leaf).unwrap()
}

mod azure;
mod health;
mod leave;
mod renewal;
mod service_certificates;
mod serving;

use azure::{Machines, joins};

const AT_ONCE: SignedDuration = SignedDuration::ZERO;

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

#[test]
fn token_enrolls_one_machine_with_what_it_binds() {
    let world = world();
    let token = world.token_for(|token| {
        token.labels = [("version".to_owned(), "v2".to_owned())].into_iter().collect();
        token.locality = "eu/1".parse().unwrap();
        token.known_as = vec!["203.0.113.9".parse().unwrap()];
    });
    let request = request();
    let enrolled = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    let record = world.record(enrolled.id);
    assert_eq!(record.mesh_address, SocketAddr::from(([192, 0, 2, 5], 15003)));
    assert_eq!(record.locality, "eu/1".parse().unwrap());
    assert_eq!((record.labels.iter().count(), record.addresses.len()), (1, 1));
    assert_eq!(record.token.as_ref(), Some(token.id()));
    let credentials = record.credentials.clone().unwrap();
    assert_eq!(credentials.key, request.key_hash());
    assert_eq!(credentials.current.serial, verified(&enrolled.certificate).serial);
    let lifetime = enrolled.expires_at.duration_since(world.now);
    assert!((days(29)..=days(30)).contains(&lifetime), "{lifetime:?}");
    assert_eq!(enrolled.control_plane, [("cp".to_owned(), 15128)]);
    assert_eq!(world.stored(&token).used.unwrap().proxy, enrolled.id);
}

#[test]
fn hundred_machines_with_one_token_yield_one_proxy() {
    let world = world();
    let token = world.token();
    let requests: Vec<_> = (0..100).map(|_| request()).collect();
    // Two control planes share the store.
    let others = world.another_control_plane();
    let won = thread::scope(|scope| {
        let mut all = Vec::new();
        for (request, number) in requests.iter().zip(0..) {
            let enroller = if number % 2 == 0 { &world.enroller } else { &others };
            let enrollment = enrollment(&token, request, None);
            all.push(scope.spawn(move || enroller.join(&enrollment, peer(5), world.now).is_ok()));
        }
        all.into_iter().map(|one| one.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!(won, 1);
    drop(others);
    let world = world.restarted();
    assert_eq!(world.enroller.register.all_records().len(), 1);
    assert_eq!(world.findings(), ["IM0741"]);
}

#[test]
fn repeated_request_of_the_machine_yields_its_certificate_for_five_minutes() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    let world = world.restarted();
    let again = world.join(&token, &request, peer(6), SignedDuration::from_mins(4)).unwrap();
    assert_eq!((again.id, &again.certificate), (first.id, &first.certificate));
    let late = world.join(&token, &request, peer(5), SignedDuration::from_mins(6));
    assert_eq!(late.unwrap_err(), EnrollmentError::TokenRejected);
    let back = world.join(&token, &request, peer(5), SignedDuration::from_hours(-1));
    assert_eq!(back.unwrap_err(), EnrollmentError::TokenRejected, "the clock went back");
    assert_eq!(world.findings(), ["IM0741"], "after five minutes, the same key is no exception");
    assert_eq!(world.enroller.register.all_records().len(), 1);
}

#[test]
fn second_use_raises_an_alarm_until_the_token_is_revoked() {
    let world = world();
    let token = world.token();
    world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    let error = world.join(&token, &request(), peer(66), AT_ONCE).unwrap_err();
    assert_eq!(error, EnrollmentError::TokenRejected);
    assert_eq!(world.findings(), ["IM0741"]);
    let texts = world.finding_texts();
    assert!(texts[0].contains("it had enrolled proxy bookstore-1 from 192.0.2.5:"), "{texts:?}");
    let world = world.restarted();
    assert_eq!(world.findings(), ["IM0741"], "the alarm survives a restart");
    let revocation = Revocation::by_operator(world.now, None);
    world.enroller.tokens.revoke(token.id(), &revocation).unwrap();
    assert!(world.findings().is_empty());
}

#[test]
fn unusable_tokens_look_the_same() {
    let world = world();
    let other_mesh = self::world().token();
    let expired = world.token_for(|token| token.expires_at = world.now);
    let revoked = world.token();
    let revocation = Revocation::by_operator(world.now, None);
    world.enroller.tokens.revoke(revoked.id(), &revocation).unwrap();
    for token in [&other_mesh, &expired, &revoked] {
        let error = world.join(token, &request(), peer(5), AT_ONCE).unwrap_err();
        assert_eq!(error, EnrollmentError::TokenRejected);
    }
    let whole = world.token().text();
    let truncated = whole.expose().get(..40).unwrap().to_owned();
    let enrollment =
        Enrollment { token: Secret::new(truncated), request: request(), address: None, name: None };
    let error = world.enroller.join(&enrollment, peer(5), world.now).unwrap_err();
    assert_eq!(error, EnrollmentError::TokenRejected);
    // A right id with a wrong secret.
    let own = world.token_for(|token| token.secret_hash = other_mesh.secret_hash());
    let error = world.join(&own, &request(), peer(5), AT_ONCE).unwrap_err();
    assert_eq!(error, EnrollmentError::TokenRejected);
    assert!(world.enroller.register.all_records().is_empty());
}

#[test]
fn address_outside_the_range_leaves_the_token_unused() {
    let world = world();
    let token = world.token_for(|token| token.addresses = Some("192.0.2.0/30".parse().unwrap()));
    let rejected = |stated: Option<&str>, from| {
        let enrollment = enrollment(&token, &request(), stated);
        match world.enroller.join(&enrollment, peer(from), world.now).unwrap_err() {
            EnrollmentError::AddressRejected(reason) => reason,
            error => panic!("{error}"),
        }
    };
    for (stated, from) in [(None, 5), (Some("192.0.2.1"), 5), (Some("192.0.2.9"), 1)] {
        assert!(rejected(stated, from).contains("192.0.2.0/30"), "{stated:?} {from}");
    }
    assert!(rejected(Some("0.0.0.0"), 1).contains("0.0.0.0"));
    world.join(&token, &request(), peer(2), AT_ONCE).unwrap();
}

#[test]
fn token_used_before_a_crash_serves_only_the_same_machine() {
    let world = world();
    let (token, request) = (world.token(), request());
    let stored = world.enroller.tokens.get(token.id()).unwrap().unwrap();
    let used = ironmesh_catalog::TokenUse {
        at: world.now,
        from: peer(5),
        key: request.key_hash(),
        proxy: ProxyId(uuid::Uuid::from_u128(1)),
    };
    let record = JoinToken { used: Some(used), ..stored.value };
    world.enroller.tokens.put(&record, stored.version).unwrap();
    let world = world.restarted();
    let other = world.join(&token, &self::request(), peer(5), AT_ONCE);
    assert_eq!(other.unwrap_err(), EnrollmentError::TokenRejected);
    let enrolled = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    assert_eq!(enrolled.id, ProxyId(uuid::Uuid::from_u128(1)));
    let again = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    assert_eq!(again.certificate, enrolled.certificate);
}

#[test]
fn full_disk_enrolls_no_machine_and_loses_no_token() {
    let world = world();
    let (token, request) = (world.token(), request());
    // Each write of an enrollment fails once, in turn.
    for writes in 0.. {
        world.disk.fail_after(Some(writes));
        let joined = world.join(&token, &request, peer(5), AT_ONCE);
        world.disk.fail_after(None);
        match joined {
            Ok(enrolled) => {
                assert!(writes > 0, "nothing failed");
                let stored = world.record(enrolled.id);
                assert_eq!(stored.credentials.as_ref().unwrap().key, request.key_hash());
                break;
            }
            Err(EnrollmentError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let again = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    assert_eq!(world.enroller.register.all_records().len(), 1);
    let current = world.record(again.id).credentials.clone().unwrap().current;
    assert_eq!(verified(&again.certificate).serial, current.serial);
}

#[test]
fn text_of_a_token_is_not_in_the_state() {
    let world = world();
    let (unused, used) = (world.token(), world.token());
    world.join(&used, &request(), peer(5), AT_ONCE).unwrap();
    let state = world.folder.path().join("state");
    let files = fs_err::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.is_file()).collect();
    assert!(!files.is_empty());
    for (path, token) in files.iter().flat_map(|path| [(path, &unused), (path, &used)]) {
        let text = token.text();
        let secret = text.expose().rsplit('_').next().unwrap().as_bytes();
        let content = fs_err::read(path).unwrap();
        assert!(!content.windows(secret.len()).any(|part| part == secret), "{}", path.display());
    }
}

#[test]
fn record_of_an_earlier_version_is_bound_by_its_first_renewal() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    let mut record = (*world.record(first.id)).clone();
    record.credentials = None;
    world.enroller.register.add(record).unwrap();
    world.renew(&first.certificate, &request, days(1) / 2).unwrap();
    let credentials = world.record(first.id).credentials.clone().unwrap();
    assert_eq!(credentials.key, request.key_hash());
    let predecessor = credentials.predecessor.unwrap();
    assert_eq!(predecessor.serial, verified(&first.certificate).serial);
    assert_eq!(predecessor.issued_at, world.record(first.id).enrolled_at);
}

#[test]
fn certificate_newer_than_a_restored_state_is_accepted_with_a_finding() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    world.connect(&first.certificate, AT_ONCE);
    let before = world.record(first.id);
    let second = world.renew(&first.certificate, &request, days(18)).unwrap();
    // The state is restored to before the renewal.
    world.enroller.register.add((*before).clone()).unwrap();
    let recognition = before.recognize(&verified(&second.certificate).presented(), world.now);
    assert_eq!(recognition, CertificateRecognition::Newer);
    world.renew(&second.certificate, &request, days(36)).unwrap();
    assert_eq!(world.findings(), ["IM0743"]);
    let credentials = world.record(first.id).credentials.clone().unwrap();
    let predecessor = credentials.predecessor.unwrap();
    assert_eq!(predecessor.serial, verified(&second.certificate).serial);
}

#[test]
fn journal_names_each_enrollment_renewal_and_rejection() {
    let world = world();
    let (token, request) = (world.token(), request());
    let first = world.join(&token, &request, peer(5), AT_ONCE).unwrap();
    world.renew(&first.certificate, &request, SignedDuration::from_mins(1)).unwrap();
    world.join(&token, &self::request(), peer(66), AT_ONCE).unwrap_err();
    world.enroller.journal.flush();
    let (entries, _) = world.state.journal(&JournalQuery::default()).unwrap();
    let of = |kind: JournalKind| entries.iter().filter(move |entry| entry.kind == kind);
    let rejected: Vec<_> = of(JournalKind::Enroll).filter(|entry| entry.is_rejected()).collect();
    assert_eq!((of(JournalKind::Enroll).count(), rejected.len()), (2, 1));
    assert_eq!(rejected[0].who, Actor::Machine { token: Some(token.id().clone()), vm_id: None });
    assert_eq!(rejected[0].origin.as_deref(), Some("192.0.2.66:40000"));
    assert_eq!(rejected[0].subject.services, ["shop/bookstore".parse().unwrap()]);
    let renewed: Vec<_> = of(JournalKind::Renew).collect();
    assert_eq!((renewed.len(), renewed[0].subject.proxy), (1, Some(first.id)));
}
