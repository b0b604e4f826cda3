//! Health discovery: how an Envoy without an agent probes the applications beside it.
//!
//! Envoy reports whether an endpoint passes, and not whether it ever has. So each application has two health checks: that of
//! policy, and one that fails never again after its first success. Together they tell a slow start from a failure, also to
//! a control plane that has just started (docs/decisions/0082).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use core::health_check::{GrpcHealthCheck, HealthChecker, HttpHealthCheck, TcpHealthCheck};
use ironmesh_catalog::{HealthCheck, Probe, ProbedApplication, ServicePort, StatusRange};
use ironmesh_xds_wire::pb::envoy::config::core::v3 as core;
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{Endpoint, endpoint::HealthCheckConfig};
use ironmesh_xds_wire::pb::envoy::service::health::v3::{
    ClusterHealthCheck, HealthCheckSpecifier, LocalityEndpoints,
};
use ironmesh_xds_wire::pb::envoy::r#type::v3::{CodecClientType, Int64Range};

use crate::names;
use crate::shape::{duration, no, number, socket, socket_address};

/// The interval of the health check that has passed: Envoy needs none any more.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What Envoy probes beside itself: applications at `address`. It reports all of them at each `interval`.
///
/// A probe that Envoy cannot run has no health check.
pub fn health_check_specifier(
    applications: &[ProbedApplication],
    address: IpAddr,
    interval: Duration,
) -> HealthCheckSpecifier {
    let mut by_port: BTreeMap<&ServicePort, (&HealthCheck, Vec<u16>)> = BTreeMap::new();
    for one in applications.iter().filter(|one| can_probe(&one.check.probe)) {
        let (_, targets) = by_port.entry(&one.service_port).or_insert((&one.check, Vec::new()));
        targets.push(one.target);
    }
    let mut cluster_health_checks = Vec::new();
    for (port, (check, targets)) in by_port {
        let Some(policy) = health_check(check) else { continue };
        let endpoint = |target: &u16| endpoint(SocketAddr::new(address, *target), &check.probe);
        let endpoints: Vec<_> = targets.iter().map(endpoint).collect();
        let has_passed = core::HealthCheck {
            unhealthy_threshold: number(u32::MAX),
            // It passes after policy's check, except at the very first probe.
            healthy_threshold: number(check.healthy_threshold.saturating_add(1)),
            no_traffic_healthy_interval: Some(duration(NEVER)),
            ..policy.clone()
        };
        let names = [names::local_cluster(port), names::passed_cluster(port)];
        for (cluster_name, check) in names.into_iter().zip([policy, has_passed]) {
            let locality = LocalityEndpoints { endpoints: endpoints.clone(), locality: None };
            cluster_health_checks.push(ClusterHealthCheck {
                cluster_name,
                health_checks: vec![check],
                locality_endpoints: vec![locality],
                ..ClusterHealthCheck::default()
            });
        }
    }
    HealthCheckSpecifier { cluster_health_checks, interval: Some(duration(interval)) }
}

/// Whether Envoy can run a probe. It runs no commands.
pub fn can_probe(probe: &Probe) -> bool {
    match probe {
        Probe::Http { .. } | Probe::Tcp | Probe::Grpc { .. } => true,
        Probe::Command { .. } | Probe::Unknown => false,
    }
}

/// The health check of policy.
fn health_check(check: &HealthCheck) -> Option<core::HealthCheck> {
    Some(core::HealthCheck {
        timeout: Some(duration(check.timeout)),
        interval: Some(duration(check.interval)),
        // These clusters have no traffic, and the default of this interval is a minute.
        no_traffic_interval: Some(duration(check.interval)),
        unhealthy_threshold: number(check.unhealthy_threshold),
        healthy_threshold: number(check.healthy_threshold),
        // A kept connection would hide a closed port.
        reuse_connection: no(),
        health_checker: Some(checker(&check.probe)?),
        ..core::HealthCheck::default()
    })
}

fn checker(probe: &Probe) -> Option<HealthChecker> {
    Some(match probe {
        Probe::Tcp => HealthChecker::TcpHealthCheck(TcpHealthCheck::default()),
        Probe::Grpc { service } => HealthChecker::GrpcHealthCheck(GrpcHealthCheck {
            service_name: service.clone().unwrap_or_default(),
            ..GrpcHealthCheck::default()
        }),
        Probe::Http { path, host, statuses, http2 } => {
            let codec = if *http2 { CodecClientType::Http2 } else { CodecClientType::Http1 };
            let range = |range: &StatusRange| statuses_between(range.first, range.last);
            HealthChecker::HttpHealthCheck(HttpHealthCheck {
                path: path.clone(),
                host: host.clone().unwrap_or_default(),
                expected_statuses: statuses.iter().map(range).collect(),
                // Otherwise such a status would make the application unhealthy at once, without a threshold.
                retriable_statuses: vec![statuses_between(100, 599)],
                codec_client_type: codec.into(),
                ..HttpHealthCheck::default()
            })
        }
        Probe::Command { .. } | Probe::Unknown => return None,
    })
}

fn statuses_between(first: u16, last: u16) -> Int64Range {
    // The end of Envoy's ranges is excluded.
    Int64Range { start: first.into(), end: i64::from(last) + 1 }
}

fn endpoint(at: SocketAddr, probe: &Probe) -> Endpoint {
    // Without it, Envoy would send the name of the cluster as the host.
    let needs_host = matches!(probe, Probe::Http { host: None, .. } | Probe::Grpc { .. });
    Endpoint {
        address: socket(socket_address(at.ip().to_string(), at.port())),
        health_check_config: needs_host.then(|| HealthCheckConfig {
            hostname: at.to_string(),
            ..HealthCheckConfig::default()
        }),
        ..Endpoint::default()
    }
}

#[cfg(test)]
mod tests;
