//! Reports of the health of applications.

use ironmesh_catalog::{
    ApplicationState, Discovered, EgressMode, Inputs, LeavingProxies, Mode, Records,
    ReportedApplications, ServiceAccount, ServiceCertificate, ServicePort, Snapshot, TcpAccesses,
    TrustBundle,
};
use ironmesh_catalog::{CordonMode, MachineDrainState};
use ironmesh_config_language::{Document, load_documents};
use ironmesh_enrollment::{DrainOrder, DrainReport, HealthReport, ReportedApplication};

use super::*;

const POLICY: &str = r#"
[[service]]
namespace = "shop"
name = "bookstore"
ports = [{ port = 80, protocol = "http", target_port = 8080 }]
health = { tcp = {}, interval = "1s" }
"#;

fn snapshot(mesh: &Mesh, records: Records) -> Arc<Snapshot> {
    const NONE: [(ServiceAccount, Arc<ServiceCertificate>); 0] = [];
    let loaded = load_documents([Document::new("policy.toml", POLICY)]);
    let inputs = Inputs {
        mesh: mesh.clone(),
        mode: Mode::Strict,
        egress: EgressMode::Policy,
        specification: loaded.specification.unwrap(),
        discovered: Discovered::default(),
        records,
        revoked: Records::new(),
        leaving: LeavingProxies::new(),
        health: ReportedApplications::new(),
        certificates: NONE.into_iter().collect(),
        trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
        revoked_callers: Arc::default(),
    };
    Arc::new(Snapshot::assemble(inputs, TcpAccesses::default()))
}

fn report(service: &str, port: u16) -> HealthReport {
    let (service, target) = (service.parse().unwrap(), 8080);
    let state = ApplicationState::Unhealthy;
    let reason = Some("status 503".to_owned());
    HealthReport {
        applications: vec![ReportedApplication { service, port, target, state, reason }],
        ..HealthReport::default()
    }
}

#[test]
fn proxy_reports_about_its_own_services_alone() {
    let mut world = world();
    let token = world.token_for(|_| {});
    let enrolled = world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    let snapshot = snapshot(&world.enroller.mesh, world.enroller.register.records());
    let snapshot = watch::Sender::new(Some(snapshot)).subscribe();
    let enroller = world.another_control_plane();
    world.enroller = Arc::new(MachineEnrollment { snapshot, ..enroller });
    let proxy = verified(&enrolled.certificate);
    let send = |report| world.enroller.record_health_report(&proxy, report, peer(5), world.now);

    let error = send(report("shop/bank", 80)).unwrap_err();
    assert!(matches!(error, EnrollmentError::RequestInvalid(_)), "{error:?}");
    assert!(world.enroller.health.current().is_empty());

    let answer = send(report("shop/bookstore", 80)).unwrap();
    let [probe] = answer.probes.as_slice() else { panic!("{answer:?}") };
    assert_eq!((probe.target, probe.check.port, answer.report_in_seconds), (8080, 80, 10));
    let key = (enrolled.id, ServicePort::new("shop/bookstore".parse().unwrap(), 80));
    let current = world.enroller.health.current();
    let health = current.get(&key).unwrap().get(&8080).unwrap();
    assert_eq!(health.state, ApplicationState::Unhealthy);
    assert_eq!(health.reason.as_deref(), Some("status 503"));

    let error = send(HealthReport::default()).unwrap_err();
    assert!(matches!(error, EnrollmentError::Busy(_)), "too frequent: {error:?}");
    // An agent that has just started knows of no probe: what has failed stays out of use.
    while let Err(EnrollmentError::Busy(_)) = send(HealthReport::default()) {
        thread::yield_now();
    }
    let current = world.enroller.health.current();
    let health = current.get(&key).unwrap().get(&8080).unwrap();
    assert_eq!(health.state, ApplicationState::Unhealthy);
}

#[test]
fn report_about_a_port_without_a_probe_is_ignored() {
    let world = world();
    let token = world.token_for(|_| {});
    let enrolled = world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    let proxy = verified(&enrolled.certificate);
    let enroller = &world.enroller;
    let answer =
        enroller.record_health_report(&proxy, report("shop/bookstore", 80), peer(5), world.now);
    assert_eq!(answer.unwrap().report_in_seconds, 30, "no policy is active");
    assert!(enroller.health.current().is_empty());
}

#[test]
fn drain_order_is_repeated_until_the_machine_has_carried_it_out() {
    let world = world();
    let token = world.token_for(|_| {});
    let enrolled = world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    let proxy = verified(&enrolled.certificate);
    let (id, ordered) = (enrolled.id, world.now);
    let send = |drain: Option<MachineDrainState>| {
        let report = || HealthReport {
            agent_version: Some("0.9.1".to_owned()),
            drain: drain.map(|state| DrainReport { ordered, state }),
            ..HealthReport::default()
        };
        loop {
            match world.enroller.record_health_report(&proxy, report(), peer(5), world.now) {
                Err(EnrollmentError::Busy(_)) => thread::yield_now(),
                answer => return answer.unwrap(),
            }
        }
    };
    let answer = send(None);
    assert_eq!((answer.drain, answer.report_in_seconds), (Some(DrainOrder::default()), 30));
    let record = || world.enroller.register.get(id).unwrap();
    assert_eq!(record().versions.agent.as_deref(), Some("0.9.1"));
    let order = |mode| crate::register::CordonOrder { mode, by: None, reason: None, at: ordered };
    world.enroller.register.cordon(id, &order(CordonMode::Cordon)).unwrap();
    assert_eq!(send(None).drain, Some(DrainOrder::default()), "it keeps running");
    world.enroller.register.cordon(id, &order(CordonMode::Drain)).unwrap();
    let answer = send(None);
    let expected = DrainOrder { ordered: Some(ordered), is_done: false };
    assert_eq!((answer.drain, answer.report_in_seconds), (Some(expected), 3));
    assert_eq!(send(Some(MachineDrainState::Draining)).drain, Some(expected));
    let answer = send(Some(MachineDrainState::Drained));
    assert_eq!(answer.drain, Some(DrainOrder { is_done: true, ..expected }));
    // A machine that has booted since then runs an Envoy, and is not drained again.
    assert_eq!(send(None).drain, Some(DrainOrder { is_done: true, ..expected }));
    world.enroller.register.uncordon(id).unwrap();
    assert_eq!(send(Some(MachineDrainState::Drained)).drain, Some(DrainOrder::default()));
}

#[test]
fn version_of_an_agent_that_is_no_version_is_ignored() {
    let world = world();
    let token = world.token_for(|_| {});
    let enrolled = world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    let proxy = verified(&enrolled.certificate);
    let agent_version = Some("1.0\n\u{1b}[2J".to_owned());
    let report = HealthReport { agent_version, ..HealthReport::default() };
    world.enroller.record_health_report(&proxy, report, peer(5), world.now).unwrap();
    assert_eq!(world.enroller.register.get(enrolled.id).unwrap().versions.agent, None);
}
