//! The effect of reported application health on callers.

use super::*;
use crate::application_health::{ApplicationHealth, ApplicationState, HealthSource, PortHealth};
use crate::codes::APPLICATION_UNHEALTHY;
use crate::finding::Severity;
use crate::health_check::{HealthCheck, Probe};

fn probed() -> Service {
    let check = HealthCheck {
        port: WEB,
        probe: Probe::Tcp,
        interval: HealthCheck::INTERVAL,
        timeout: HealthCheck::TIMEOUT,
        unhealthy_threshold: 3,
        healthy_threshold: 2,
    };
    Service { health: Some(check), ..service("store") }
}

fn machines() -> [JoinRecord; 2] {
    [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.2", "store", true)]
}

fn mesh(service: Service) -> Snapshot {
    let endpoints = machines().map(|one| Endpoint::new(Provider::Consul, one.mesh_address.ip()));
    assemble_all(Mode::Strict, vec![(service, endpoints.to_vec())], &machines())
}

/// The same mesh after these reports about the applications on port 8080.
fn with_reports(snapshot: &Snapshot, reports: &[(u128, ApplicationState)]) -> Snapshot {
    let port = ServicePort::new("store".parse().unwrap(), WEB);
    let report = |(id, state): &(u128, ApplicationState)| {
        let health = ApplicationHealth {
            state: *state,
            since: Timestamp::UNIX_EPOCH,
            reason: None,
            source: HealthSource::Agent,
        };
        let ports = PortHealth::from([(8080, health)]);
        ((ProxyId(Uuid::from_u128(*id)), port.clone()), Arc::new(ports))
    };
    let health = reports.iter().map(report).collect();
    snapshot.revise(Inputs { health, ..snapshot.inputs() })
}

fn healths(snapshot: &Snapshot) -> Vec<Health> {
    of_mesh(snapshot, "store").iter().map(|one| one.health).collect()
}

/// The severities of the findings about failing applications.
fn severities(snapshot: &Snapshot) -> Vec<Severity> {
    let of_health = snapshot.findings().filter(|one| one.code == APPLICATION_UNHEALTHY);
    of_health.map(|finding| finding.severity).collect()
}

#[test]
fn failing_application_leaves_its_callers_and_returns() {
    use ApplicationState::{Healthy, Unhealthy, Unknown};
    let before = mesh(probed());
    assert_eq!(healths(&before), [Health::Healthy; 2], "unknown is used");
    let failing = with_reports(&before, &[(1, Unhealthy), (2, Healthy)]);
    assert_eq!(healths(&failing), [Health::Unhealthy, Health::Healthy]);
    assert_eq!(severities(&failing), [Severity::Warning]);
    let back = with_reports(&failing, &[(1, Healthy), (2, Healthy)]);
    assert_eq!(healths(&back), [Health::Healthy; 2]);
    assert_eq!(severities(&back), []);
    let unknown = with_reports(&failing, &[(1, Unknown)]);
    assert_eq!(healths(&unknown), [Health::Healthy; 2]);
    assert_eq!(severities(&unknown), []);
}

#[test]
fn failure_of_all_applications_raises_an_error() {
    use ApplicationState::Unhealthy;
    let snapshot = with_reports(&mesh(probed()), &[(1, Unhealthy), (2, Unhealthy)]);
    assert_eq!(healths(&snapshot), [Health::Unhealthy; 2]);
    assert_eq!(severities(&snapshot), [Severity::Error]);
    let port = ServicePort::new("store".parse().unwrap(), WEB);
    assert_eq!(snapshot.ports_without_endpoints().collect::<Vec<_>>(), [&port]);
}

#[test]
fn report_about_a_port_that_policy_does_not_probe_has_no_effect() {
    let snapshot = with_reports(&mesh(service("store")), &[(1, ApplicationState::Unhealthy)]);
    assert_eq!(healths(&snapshot), [Health::Healthy; 2]);
    assert_eq!(severities(&snapshot), []);
}

#[test]
fn endpoint_status_shows_the_reported_health() {
    let snapshot = with_reports(&mesh(probed()), &[(1, ApplicationState::Unhealthy)]);
    let statuses = snapshot.endpoint_statuses(&"store".parse().unwrap(), &Records::new());
    let states: Vec<_> =
        statuses.iter().map(|one| one.application.as_ref().map(|health| health.state)).collect();
    assert_eq!(states, [Some(ApplicationState::Unhealthy), None]);
}

#[test]
fn healthy_application_beside_a_failing_one_keeps_its_proxy_in_use() {
    let at = |port| Endpoint {
        port: Some(port),
        weight: 2,
        ..Endpoint::new(Provider::Consul, "10.0.0.1".parse().unwrap())
    };
    let snapshot =
        assemble_all(Mode::Strict, vec![(probed(), vec![at(8080), at(8081)])], &machines()[..1]);
    let snapshot = with_reports(&snapshot, &[(1, ApplicationState::Unhealthy)]);
    let all = of_mesh(&snapshot, "store");
    assert_eq!((all[0].health, all[0].weight), (Health::Healthy, 2));
}
