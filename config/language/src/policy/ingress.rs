//! Ingress across documents: backends refer to HTTP ports of mesh services, and entries of one service do not
//! collide.
//!
//! Which services share a proxy is not known here: the control plane reports collisions at a proxy.

use std::collections::BTreeMap;

use ironmesh_catalog::{
    Finding, Hostname, IngressBackend, IngressEntry, IngressPort, IngressSource, Service,
    ServiceName, ServicePort,
};

use super::draft::Draft;
use crate::codes;

/// Reports the ingress backends of `draft` that conflict with the services, or with each other.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut findings = Vec::new();
    let mut seen = CheckedEntries::default();
    for object in draft.ingress_backends.iter() {
        for backend in &object.backends {
            let Some(service) = find(draft, &backend.port.service) else { continue };
            findings.extend(unfit(service, backend));
            findings.extend(seen.collision(backend));
        }
        findings.extend(without_addresses(draft, object));
        findings.extend(found_by_a_provider(draft, object));
    }
    draft.findings.extend(findings);
}

fn find<'a>(draft: &Draft<'a>, name: &ServiceName) -> Option<&'a Service> {
    draft.services.get(&(name.namespace.clone(), name.name.clone()))
}

/// A service that cannot have ingress.
fn unfit(service: &Service, backend: &IngressPort) -> Option<Finding> {
    let (name, number) = (&service.name.name, backend.port.port);
    let finding = |code, message: String, label: &str, help: String| {
        let finding = Finding::error(code, Some(backend.spot.clone()), message).label(label);
        Some(finding.related(service.spot.clone(), "the service is defined here").help(help))
    };
    if service.external.is_some() {
        let message =
            format!("service `{name}` is outside of the mesh, where no proxy accepts ingress");
        let help = "name a service of the mesh".to_owned();
        return finding(codes::INVALID_VALUE, message, "an external service", help);
    }
    if service.is_subset() {
        let whole = &service.served_as().name;
        let message =
            format!("service `{name}` is a part of `{whole}`, and is not served by itself");
        return finding(codes::INVALID_VALUE, message, "a part", format!("name `{whole}`"));
    }
    let Some(port) = service.port(number) else {
        let ports: Vec<_> = service.ports.iter().map(|port| port.number.to_string()).collect();
        let help = match ports.as_slice() {
            [] => "the service has no ports, so nothing can call it".to_owned(),
            ports => format!("the service has the ports: {}", ports.join(", ")),
        };
        let message = format!("service `{name}` has no port {number}");
        return finding(codes::NOT_FOUND, message, "not found", help);
    };
    if port.protocol.is_http() {
        return None;
    }
    let message =
        format!("port {number} of service `{name}` is of `{}`: ingress is for HTTP", port.protocol);
    let help = "name a port of `http`, `http2`, `grpc` or `grpc-web`".to_owned();
    finding(codes::INVALID_VALUE, message, "not HTTP", help)
}

/// The ingress entries checked so far.
#[derive(Default)]
struct CheckedEntries<'a> {
    entries: BTreeMap<(&'a ServicePort, &'static str), &'a IngressPort>,
    /// By service.
    ports: BTreeMap<(&'a ServiceName, u16), &'a IngressPort>,
    hosts: BTreeMap<(&'a ServiceName, &'a Hostname), &'a IngressPort>,
}

impl<'a> CheckedEntries<'a> {
    /// The collision of `backend` with an earlier one.
    fn collision(&mut self, backend: &'a IngressPort) -> Option<Finding> {
        let ServicePort { service, port } = &backend.port;
        let protocol = backend.entry.protocol();
        if let Some(first) = self.entries.insert((&backend.port, protocol), backend) {
            let what = format!("port {port} of service `{}` over `{protocol}`", service.name);
            let help = "put all settings for it into one ingress backend";
            return Some(collision(backend, first, &what, help));
        }
        match &backend.entry {
            IngressEntry::Http { port } => {
                let first = self.ports.insert((service, *port), backend)?;
                let what = format!("port {port} of the proxies of `{}`", service.name);
                Some(collision(backend, first, &what, "give one of them another `ingress_port`"))
            }
            IngressEntry::Https { hosts, .. } => {
                let mut twice = hosts
                    .iter()
                    .filter_map(|host| Some((host, self.hosts.insert((service, host), backend)?)));
                let (host, first) = twice.next()?;
                let what = format!("`{host}` at the proxies of `{}`", service.name);
                Some(collision(backend, first, &what, "give each port names of its own"))
            }
        }
    }
}

fn collision(second: &IngressPort, first: &IngressPort, what: &str, help: &str) -> Finding {
    let message = format!("{what} is used twice by ingress");
    Finding::error(codes::INGRESS_COLLISION, Some(second.spot.clone()), message)
        .label("the second")
        .related(first.spot.clone(), "the first")
        .help(help)
}

/// The finding for a source without known addresses.
fn without_addresses(draft: &Draft<'_>, object: &IngressBackend) -> Vec<Finding> {
    let finding = |source: &IngressSource| {
        let IngressSource::Service(name) = source else { return None };
        let service = find(draft, name)?;
        let why = if service.is_subset() {
            format!("is a part of `{}`", service.served_as().name)
        } else if service.external.is_some() && service.endpoints.providers().is_none() {
            "is looked up by its hostname".to_owned()
        } else {
            return None;
        };
        let message = format!("source `{}` {why}: from where it calls is not known", name.name);
        let finding = Finding::error(codes::INVALID_VALUE, Some(object.spot.clone()), message);
        let finding = finding.label("a source without addresses");
        Some(
            finding
                .related(service.spot.clone(), "it is defined here")
                .help("name ranges of IP addresses"),
        )
    };
    object.sources.iter().filter_map(finding).collect()
}

/// The finding for a source service whose endpoints an external provider discovers. A user who may register endpoints
/// there could grant itself access, so ingress does not use their addresses.
fn found_by_a_provider(draft: &Draft<'_>, object: &IngressBackend) -> Vec<Finding> {
    let finding = |source: &IngressSource| {
        let IngressSource::Service(name) = source else { return None };
        let service = find(draft, name)?;
        let by = service.endpoints.providers()?.external().next()?;
        let message = format!(
            "source `{}` does not include the endpoints that {by} finds: only those that policy lists, and proxies enrolled for the service",
            name.name
        );
        let finding =
            Finding::warning(codes::DISCOVERED_INGRESS_SOURCE, Some(object.spot.clone()), message);
        let help = "let the callers' proxies join, or name ranges of IP addresses";
        Some(
            finding
                .label(format!("its endpoints come from {by}"))
                .related(service.spot.clone(), "it is defined here")
                .help(help),
        )
    };
    object.sources.iter().filter_map(finding).collect()
}
