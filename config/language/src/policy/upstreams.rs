//! Upstreams across documents: each names one port of its service.

use ironmesh_catalog::{Finding, PolicyUpstream, Service};

use super::draft::Draft;
use crate::codes;
use crate::limits::FINDINGS;

/// Reports the upstreams of `draft` that do not name one port of an existing service. A service that does not exist
/// is reported as a missing reference.
pub(super) fn check(draft: &mut Draft<'_>) {
    let upstreams = draft.services.iter().flat_map(|service| &service.upstreams);
    let findings = upstreams.filter_map(|upstream| {
        let name = &upstream.service;
        let service = draft.services.get(&(name.namespace.clone(), name.name.clone()))?;
        upstream.port_of(service).is_none().then(|| finding(upstream, service))
    });
    let findings: Vec<_> = findings.take(FINDINGS + 1).collect();
    draft.findings.extend(findings);
}

fn finding(upstream: &PolicyUpstream, service: &Service) -> Finding {
    let (name, local_port) = (&service.name, upstream.local_port);
    let ports: Vec<_> =
        service.ports.iter().map(|port| format!("{} (`{}`)", port.number, port.name)).collect();
    let spot = Some(upstream.spot.clone());
    let error = |code, message: String, label: &str| {
        Finding::error(code, spot.clone(), message)
            .label(label)
            .related(service.spot.clone(), "the service is defined here")
    };
    if ports.is_empty() {
        let message =
            format!("service `{name}` has no ports, so local port {local_port} cannot lead to it");
        return error(codes::NOT_FOUND, message, "nothing to call")
            .help("give the service `ports`, or remove the upstream");
    }
    let of_service = format!("the service has the ports: {}", ports.join(", "));
    if upstream.port.is_some() {
        let message = format!("`{upstream}` names no port of service `{name}`");
        error(codes::NOT_FOUND, message, "not found").help(of_service)
    } else {
        let message =
            format!("`{upstream}` names none of the {} ports of service `{name}`", ports.len());
        error(codes::INVALID_VALUE, message, "ambiguous").help(format!("add `port`: {of_service}"))
    }
}
