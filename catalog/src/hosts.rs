//! The hosts of a service port over HTTP: those that the listener for calls by `Host` routes to it
//! (docs/concepts/traffic.md).
//!
//! This module owns the list, for the compiler and for verdicts. It never resolves names.

use std::fmt;

use crate::name::{Domain, Name, ServiceAccount, ServiceName, ServicePort};
use crate::service::{External, Resolution, Service};
use crate::snapshot::Snapshot;

/// The hosts that are reserved for services of the mesh.
#[derive(Clone, Copy)]
pub struct MeshHosts<'a> {
    /// The domain of the mesh.
    pub domain: &'a Domain,
    /// Whether policy defines a service.
    pub is_service: &'a dyn Fn(&ServiceName) -> bool,
}

impl fmt::Debug for MeshHosts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeshHosts({})", self.domain)
    }
}

impl MeshHosts<'_> {
    /// Whether a host, with or without a port, is reserved: no external service has it, even if the caller may not
    /// call the service of that name.
    pub fn contain(self, host: &str) -> bool {
        let name = host.split(':').next().unwrap_or(host);
        let below = name.strip_suffix(self.domain.as_str());
        let is_below = below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        is_below || short_name(name).is_some_and(|name| (self.is_service)(&name))
    }

    /// The hosts by which `caller` calls a service port ([`hosts`]).
    pub fn of_port(
        self,
        caller: &ServiceAccount,
        service: &Service,
        port: &ServicePort,
    ) -> Vec<String> {
        let name = &service.name;
        let mut names =
            vec![format!("{}.{}", name.name, name.namespace), self.domain.hostname(name)];
        if name.namespace == caller.namespace {
            names.push(name.name.to_string());
        }
        let others = service.ports.iter().filter(|other| other.number != port.port);
        let is_plain = port.port == 80 || !others.into_iter().any(|other| other.protocol.is_http());
        // A passthrough service has no name of the mesh as a host.
        let names = if is_passed_through(service) { Vec::new() } else { names };
        let mut hosts: Vec<_> = names.iter().map(|name| format!("{name}:{}", port.port)).collect();
        if is_plain {
            hosts.extend(names);
        }
        let external = service.external.iter();
        let outside = external.flat_map(|external| outside(external, port, is_plain));
        hosts.extend(outside.filter(|host| !self.contain(host)));
        hosts.sort();
        hosts
    }
}

/// The hosts by which `caller` calls a service port: three forms of its name and its external hostname, each
/// with the port, and without it for port 80 or else the only HTTP port. (A wildcard domain of Envoy does not
/// match a host with a port.) Sorted; Envoy ignores case.
pub fn hosts(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &ServicePort,
) -> Vec<String> {
    let is_service = |name: &ServiceName| snapshot.service(name).is_some();
    let mesh = MeshHosts { domain: &snapshot.mesh.domain, is_service: &is_service };
    mesh.of_port(caller, service, port)
}

/// The hosts of an external service port outside the mesh.
pub fn outside(external: &External, port: &ServicePort, is_plain: bool) -> Vec<String> {
    let Some(hostname) = &external.hostname else { return Vec::new() };
    let with_port = format!("{hostname}:{}", port.port);
    // The default port of passthrough is 80.
    let is_plain = match external.resolution {
        Resolution::Passthrough => port.port == 80,
        Resolution::Static | Resolution::Dns => is_plain,
    };
    if is_plain { vec![hostname.to_string(), with_port] } else { vec![with_port] }
}

/// Whether the host of a request decides its destination, as `passthrough` sets it.
pub fn is_passed_through(service: &Service) -> bool {
    service.external.as_ref().is_some_and(|one| one.resolution == Resolution::Passthrough)
}

/// Whether a host is reserved for services of the mesh in a snapshot ([`MeshHosts::contain`]).
pub fn is_mesh_host(snapshot: &Snapshot, host: &str) -> bool {
    let is_service = |name: &ServiceName| snapshot.service(name).is_some();
    MeshHosts { domain: &snapshot.mesh.domain, is_service: &is_service }.contain(host)
}

/// The service name in a short hostname, if it has that form.
pub fn short_name(hostname: &str) -> Option<ServiceName> {
    let (name, namespace) = hostname.split_once('.')?;
    Some(ServiceName::new(Name::new(namespace).ok()?, Name::new(name).ok()?))
}
