//! By what hosts a service port is called over HTTP: what the listener that routes by `Host` takes for a
//! call of it (docs/concepts/traffic.md), and what a question about a request may say.

use crate::name::{Name, ServiceAccount, ServiceName, ServicePort};
use crate::service::{External, Resolution, Service};
use crate::snapshot::Snapshot;

/// The hosts by which `caller` calls a service port: three forms of its name, and what it is called
/// outside, each with the port, and without it for port 80 or else the only HTTP port. (A wildcard domain
/// of Envoy's would not match a host with a port.) In order; Envoy compares them in any case.
pub fn hosts(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &ServicePort,
) -> Vec<String> {
    let name = &service.name;
    let mut names =
        vec![format!("{}.{}", name.name, name.namespace), snapshot.mesh.domain.hostname(name)];
    if name.namespace == caller.namespace {
        names.push(name.name.to_string());
    }
    let others = service.ports.iter().filter(|other| other.number != port.port);
    let is_plain = port.port == 80 || !others.into_iter().any(|other| other.protocol.is_http());
    // What goes where its host says goes nowhere by a name of the mesh.
    let names = if is_passed_through(service) { Vec::new() } else { names };
    let mut hosts: Vec<_> = names.iter().map(|name| format!("{name}:{}", port.port)).collect();
    if is_plain {
        hosts.extend(names);
    }
    let external = service.external.iter();
    let outside = external.flat_map(|external| outside(external, port, is_plain));
    hosts.extend(outside.filter(|host| !is_of_the_mesh(snapshot, host)));
    hosts.sort();
    hosts
}

/// By what hosts an external service port is called besides the names that it has in the mesh.
pub fn outside(external: &External, port: &ServicePort, is_plain: bool) -> Vec<String> {
    let Some(hostname) = &external.hostname else { return Vec::new() };
    let with_port = format!("{hostname}:{}", port.port);
    // Where it is not written, the port that is passed through is 80.
    let is_plain = match external.resolution {
        Resolution::Passthrough => port.port == 80,
        Resolution::Static | Resolution::Dns => is_plain,
    };
    if is_plain { vec![hostname.to_string(), with_port] } else { vec![with_port] }
}

/// Whether calls of a service go where their host says.
pub fn is_passed_through(service: &Service) -> bool {
    service.external.as_ref().is_some_and(|one| one.resolution == Resolution::Passthrough)
}

/// Whether a host, with or without a port, is that of a service of the mesh, or could be: no external
/// service has it, whether the caller may call that one or not.
pub fn is_of_the_mesh(snapshot: &Snapshot, host: &str) -> bool {
    let name = host.split(':').next().unwrap_or(host);
    let domain = snapshot.mesh.domain.as_str();
    let is_below =
        name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    is_below || short_name(name).is_some_and(|name| snapshot.service(&name).is_some())
}

/// The service of the mesh that is called so, if there is one of that name.
pub fn short_name(hostname: &str) -> Option<ServiceName> {
    let (name, namespace) = hostname.split_once('.')?;
    Some(ServiceName::new(Name::new(namespace).ok()?, Name::new(name).ok()?))
}
