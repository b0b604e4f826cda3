//! Egresses across documents: no host has two protocols, and no egress allows calls that are allowed already.

use std::collections::BTreeMap;

use ironmesh_catalog::{
    Egress, EgressMode, EgressPort, EgressProtocol, Finding, Hostname, Name, Service,
};

use super::draft::Draft;
use super::outside::mesh_service_with_hostname;
use crate::codes;

/// Reports the egresses of `draft` that conflict with other objects.
pub(super) fn check(draft: &mut Draft<'_>) {
    let externals = Externals::of(draft);
    let mut findings = Vec::new();
    for egress in draft.egresses.iter() {
        for host in &egress.hosts {
            if let Some(service) = mesh_service_with_hostname(draft, host) {
                findings.push(called_as(egress, service, host));
            }
            let http = egress.ports.iter().filter(|port| port.protocol == EgressProtocol::Http);
            let conflicting = http.filter_map(|port| externals.find(host, *port));
            findings.extend(conflicting.map(|service| external(egress, service, host)));
        }
        let passes = |namespace: &Name| {
            let known = draft.namespaces.get(&(namespace.clone(), namespace.clone()));
            known.is_some_and(|known| known.egress == Some(EgressMode::Passthrough))
        };
        if egress.sources.iter().all(|source| passes(&source.namespace)) {
            findings.push(needless(egress));
        }
    }
    draft.findings.extend(findings);
}

/// The external services, by their hosts for HTTP.
struct Externals<'a> {
    by_port: BTreeMap<(&'a Hostname, u16), &'a Service>,
    /// The external services that callers use without a port.
    plain: BTreeMap<&'a Hostname, &'a Service>,
}

impl<'a> Externals<'a> {
    fn of(draft: &Draft<'a>) -> Self {
        let mut externals = Self { by_port: BTreeMap::new(), plain: BTreeMap::new() };
        for service in draft.services.iter() {
            let external = service.external.as_ref();
            let Some(hostname) = external.and_then(|one| one.hostname.as_ref()) else { continue };
            let http: Vec<_> =
                service.ports.iter().filter(|port| port.protocol.is_http()).collect();
            for port in &http {
                externals.by_port.insert((hostname, port.number), service);
            }
            if http.len() == 1 {
                externals.plain.insert(hostname, service);
            }
        }
        externals
    }

    /// The external service for this host, or a wildcard of it, on this HTTP port.
    fn find(&self, host: &Hostname, port: EgressPort) -> Option<&'a Service> {
        let plain = || self.plain.get(host).filter(|_| port.number == 80);
        self.by_port.get(&(host, port.number)).or_else(plain).copied()
    }
}

fn called_as(egress: &Egress, own: &Service, host: &Hostname) -> Finding {
    let message = format!("hostname `{host}` already belongs to service `{}`", own.name);
    Finding::error(codes::DUPLICATE_NAME, Some(egress.spot.clone()), message)
        .label("outside of the mesh")
        .related(own.spot.clone(), "in the mesh")
        .help("traffic targets allow calls inside the mesh; an egress needs the full hostname of a host outside")
}

/// The finding for a host of two objects: a request to it could belong to either.
fn external(egress: &Egress, service: &Service, host: &Hostname) -> Finding {
    let message = format!("`{host}` already belongs to the external service `{}`", service.name);
    Finding::error(codes::DUPLICATE_NAME, Some(egress.spot.clone()), message)
        .label("names the same host over HTTP")
        .related(service.spot.clone(), "the service")
        .help("allow the callers by a traffic target with the service's account, or remove the service")
}

fn needless(egress: &Egress) -> Finding {
    let message =
        "this egress has no effect: egress is `passthrough` in the namespaces of all its sources";
    Finding::warning(codes::NEEDLESS_EGRESS, Some(egress.spot.clone()), message)
        .label("of no effect")
        .help("remove `egress = \"passthrough\"` from the namespace, or remove this egress")
}
