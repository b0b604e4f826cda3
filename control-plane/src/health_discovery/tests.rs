//! What Envoys probe, and what their reports mean.

use ironmesh_catalog::{
    Discovered, Domain, EgressMode, Inputs, LeavingProxies, Mesh, Mode, Records,
    ReportedApplications, ServiceAccount, ServiceCertificate, TcpAccesses, TrustBundle,
    TrustDomain,
};
use ironmesh_config_language::{Document, load_documents};

use super::*;
use ApplicationState::{Healthy, Unhealthy, Unknown};
use ProbeResult::{Failing, Passing, TimedOut};

const STORE: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http", target_port = 8080 }]
"#;
const PROBED: &str = "health = { tcp = {}, interval = \"1s\", timeout = \"1s\" }\n";

fn record() -> JoinRecord {
    let id = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap();
    let services = vec!["store".parse().unwrap()];
    let now = Timestamp::UNIX_EPOCH;
    JoinRecord::new(id, services, "10.0.0.1:15003".parse().unwrap(), now, now)
}

fn snapshot(policy: &str) -> Arc<Snapshot> {
    const NONE: [(ServiceAccount, Arc<ServiceCertificate>); 0] = [];
    let domain = Domain::default();
    let inputs = Inputs {
        mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode: Mode::Strict,
        egress: EgressMode::Policy,
        specification: load_documents([Document::new("policy.toml", policy)])
            .specification
            .unwrap(),
        discovered: Discovered::default(),
        records: Records::from_iter([(record().id, Arc::new(record()))]),
        revoked: Records::new(),
        leaving: LeavingProxies::new(),
        health: ReportedApplications::new(),
        certificates: NONE.into_iter().collect(),
        trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
        revoked_callers: Arc::default(),
    };
    Arc::new(Snapshot::assemble(inputs, TcpAccesses::default()))
}

struct World {
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    discovery: Arc<HealthDiscovery>,
    /// The time of the next report.
    now: Mutex<Instant>,
}

fn world(policy: &str) -> World {
    let snapshots = watch::Sender::new(Some(snapshot(policy)));
    let discovery = HealthDiscovery::new(Arc::default(), snapshots.subscribe());
    World { snapshots, discovery: Arc::new(discovery), now: Mutex::new(Instant::now()) }
}

impl World {
    fn open(&self, certificates: CertificateSource) -> watch::Receiver<Arc<HealthCheckSpecifier>> {
        self.discovery.open(&record(), NodeMetadata { certificates, ..NodeMetadata::default() })
    }

    /// Reports the result of policy's check, and that of the check which remembers a success.
    fn report(&self, result: ProbeResult, memory: ProbeResult) -> Option<ApplicationState> {
        self.report_of("default/store|80", "127.0.0.1:8080", result, memory)
    }

    fn report_of(
        &self,
        port: &str,
        address: &str,
        result: ProbeResult,
        memory: ProbeResult,
    ) -> Option<ApplicationState> {
        let endpoint = |suffix, result| EndpointReport {
            cluster: format!("{port}|{suffix}").into(),
            address: Some(address.parse().unwrap()),
            result,
        };
        let endpoints = vec![endpoint("local", result), endpoint("passed", memory)];
        self.send(endpoints);
        self.state()
    }

    /// Reports a second after the report before.
    fn send(&self, endpoints: Vec<EndpointReport>) {
        let mut now = self.now.lock();
        self.discovery.report(record().id, endpoints, *now);
        *now += Duration::from_secs(1);
    }

    fn state(&self) -> Option<ApplicationState> {
        let key = (record().id, ServicePort::new("store".parse().unwrap(), 80));
        let current = self.discovery.table.current();
        let health = current.get(&key)?.get(&8080)?;
        assert_eq!(health.source, HealthSource::Envoy);
        Some(health.state)
    }

    fn count(&self, outcome: ReportOutcome) -> u64 {
        self.discovery.counters.reports(outcome)
    }
}

#[test]
fn failure_before_the_first_success_is_unknown() {
    let world = world(&[STORE, PROBED].concat());
    let specifier = world.open(CertificateSource::Ads);
    assert_eq!(specifier.borrow().cluster_health_checks.len(), 2);
    assert_eq!(world.report(Failing, Failing), Some(Unknown));
    assert_eq!(world.report(TimedOut, Failing), Some(Unknown));
    assert_eq!(world.report(Passing, Passing), Some(Healthy));
    // A process that starts again knows of no success, and nor does its stream.
    let _specifier = world.open(CertificateSource::Ads);
    assert_eq!(world.report(Failing, Failing), Some(Unknown));
    assert_eq!(world.report(Passing, Failing), Some(Healthy));
    assert_eq!(world.report(Failing, Failing), Some(Unhealthy), "this stream has seen it pass");
}

#[test]
fn new_control_plane_tells_a_failure_from_a_slow_start() {
    let world = world(&[STORE, PROBED].concat());
    let _specifier = world.open(CertificateSource::Ads);
    // The time limit and the interval are a second here: policy's first probe may still be open, or may have failed just
    // before the first success, so that policy's check needs two more.
    for _ in 0..3 {
        assert_eq!(world.report(TimedOut, Passing), Some(Unknown));
    }
    assert_eq!(world.report(TimedOut, Passing), Some(Unhealthy), "Envoy remembers the success");
    assert_eq!(world.report(Passing, Passing), Some(Healthy));
}

#[test]
fn check_that_remembers_may_pass_first() {
    let world = world(&[STORE, PROBED].concat());
    let _specifier = world.open(CertificateSource::Ads);
    for _ in 0..3 {
        assert_eq!(world.report(Failing, Passing), Some(Unknown));
        assert_eq!(world.report(Failing, Failing), Some(Unknown));
    }
    assert_eq!(world.report(Failing, Passing), Some(Unknown));
    assert_eq!(world.report(Passing, Passing), Some(Healthy));
}

/// A85.
#[test]
fn report_about_other_endpoints_is_ignored_and_counted() {
    let world = world(&[STORE, PROBED].concat());
    let _specifier = world.open(CertificateSource::Ads);
    let others = [
        ("default/bank|80", "127.0.0.1:8080"),
        ("default/store|81", "127.0.0.1:8080"),
        ("default/store|80", "127.0.0.1:9090"),
        ("default/store|80", "10.0.0.9:8080"),
        ("nonsense", "127.0.0.1:8080"),
    ];
    for (port, address) in others {
        assert_eq!(world.report_of(port, address, Failing, Passing), None, "{port} {address}");
    }
    assert_eq!(world.count(ReportOutcome::OtherEndpoints), 5);
    let many = EndpointReport { cluster: "".into(), address: None, result: Failing };
    world.send(vec![many; MAX_ENDPOINTS + 1]);
    assert_eq!(world.count(ReportOutcome::TooLarge), 1);
    assert!(world.discovery.table.current().is_empty());
}

#[test]
fn envoy_with_an_agent_probes_nothing_and_is_ignored() {
    let world = world(&[STORE, PROBED].concat());
    let specifier = world.open(CertificateSource::Agent);
    assert_eq!(specifier.borrow().cluster_health_checks, []);
    assert!(specifier.borrow().interval.is_some());
    assert_eq!(world.report(Failing, Passing), None);
    assert_eq!(world.count(ReportOutcome::AgentReports), 1);
}

#[test]
fn command_is_unknown_with_the_reason() {
    let command = "health = { command = \"check\" }\n";
    let world = world(&[STORE, command].concat());
    let specifier = world.open(CertificateSource::Ads);
    assert_eq!(specifier.borrow().cluster_health_checks, []);
    world.send(Vec::new());
    assert_eq!(world.state(), Some(Unknown));
    let current = world.discovery.table.current();
    let health = current.values().next().unwrap().get(&8080).unwrap();
    assert_eq!(health.reason.as_deref(), Some(NO_COMMANDS));
}

#[tokio::test]
async fn open_stream_gets_a_new_specifier_when_policy_changes() {
    let world = world(STORE);
    let end = CancellationToken::new();
    let following = tokio::spawn(Arc::clone(&world.discovery).follow(end.clone()));
    let mut specifier = world.open(CertificateSource::Ads);
    assert_eq!(specifier.borrow_and_update().cluster_health_checks, []);
    tokio::task::yield_now().await;
    for (policy, checks) in [([STORE, PROBED].concat(), 2), (STORE.to_owned(), 0)] {
        world.snapshots.send_replace(Some(snapshot(&policy)));
        specifier.changed().await.unwrap();
        assert_eq!(specifier.borrow_and_update().cluster_health_checks.len(), checks);
    }
    end.cancel();
    following.await.unwrap().unwrap();
}

#[test]
fn interval_of_reports_follows_the_size_of_the_mesh() {
    let seconds =
        [(0, 1), (500, 1), (501, 2), (1000, 2), (1001, 4), (10_000, 32), (1_000_000, 256)];
    for (proxies, seconds) in seconds {
        assert_eq!(report_interval(proxies), Duration::from_secs(seconds), "{proxies}");
    }
}
