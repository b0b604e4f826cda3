//! The host of a request: by what hosts a service is called, and what a rule about hosts compares.

use ironmesh_catalog::hosts::{hosts, is_passed_through};
use ironmesh_catalog::name::{ServiceAccount, ServicePort};
use ironmesh_catalog::service::{Port, Service};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::Answer;
use super::request::Request;
use crate::routing::Routing;

/// The host of a request, where a rule has compared it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedHost {
    /// What it is: as the request says, which is how a call by `Host` arrives; or else as calls of a declared
    /// upstream arrive.
    pub host: String,
    /// What a call of a declared upstream comes to, where that is something else. There the server's sidecar
    /// sees the service's own hostname and port, whatever the application wrote.
    pub at_upstream: Option<AtUpstream>,
}

/// What a call of a declared upstream comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtUpstream {
    /// The host that the server's sidecar sees.
    pub host: String,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// Whether a request to `port` of `service` says a host that is none of the service's. No call by `Host` to it
/// has that; one of a declared upstream may.
pub(super) fn is_foreign(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &Port,
    request: &Request,
) -> bool {
    let service_port = ServicePort::new(service.name.clone(), port.number);
    let is_one =
        |host: &str| hosts(snapshot, caller, service, &service_port).iter().any(|one| one == host);
    !is_passed_through(service)
        && request.host().is_some_and(|host| !is_one(&host.to_ascii_lowercase()))
}

/// What is wrong with the host of a request to `port` of `service`, if it says one: no call by `Host` to it
/// has that, and on one of a declared upstream nobody compares it.
pub(super) fn problem(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &Port,
    request: &Request,
) -> Option<String> {
    if is_passed_through(service) {
        return passed_through(snapshot, caller, service, port, request);
    }
    let host = request.host().filter(|_| is_foreign(snapshot, caller, service, port, request))?;
    let service_port = ServicePort::new(service.name.clone(), port.number);
    // The caller's own sidecar compares what the application writes.
    if service.external.is_some()
        || Routing::from(&snapshot.specification, &service.name).compares_hosts(&service_port)
    {
        return None;
    }
    let (name, hosts) = (&service.name, hosts(snapshot, caller, service, &service_port).join(", "));
    Some(format!(
        "a request to the host `{host}` does not reach `{name}`, port {}: give one of {hosts}; or leave the header host out, which a declared upstream ignores",
        port.number
    ))
}

/// The same of a service that is passed through: its host says where a request goes, and whether it is one
/// to this service at all.
fn passed_through(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &Port,
    request: &Request,
) -> Option<String> {
    let hostname = service.external.as_ref()?.hostname.as_ref()?;
    let (name, number) = (&service.name, port.number);
    let with_port = if number == 80 { String::new() } else { format!(", with the port {number}") };
    let advice = format!("one below `{hostname}`{with_port}");
    let Some(host) = request.host() else {
        return Some(format!(
            "the host of a request decides where `{name}` sends it: give the header host, {advice}"
        ));
    };
    let lower = host.to_ascii_lowercase();
    let below = hostname.as_str().trim_start_matches('*');
    let bare = match lower.strip_suffix(&format!(":{number}")) {
        None if number == 80 => Some(lower.as_str()),
        bare => bare,
    };
    let is_below = bare.is_some_and(|bare| bare.len() > below.len() && bare.ends_with(below));
    if !is_below {
        return Some(format!(
            "a request to the host `{host}` does not reach `{name}`: give {advice}"
        ));
    }
    // Envoy takes the whole host before one below a wildcard.
    let services = snapshot.specification.services.values().filter(|other| other.name != *name);
    let mut others = services.flat_map(|other| {
        let ports = other.service_ports().filter(|(_, port)| port.protocol.is_http());
        ports.map(move |(port, _)| (other, port))
    });
    let taken = others.find(|(other, port)| hosts(snapshot, caller, other, port).contains(&lower));
    taken.map(|(other, _)| {
        format!(
            "by `Host` a request to the host `{host}` reaches `{}`: ask about that service, or give a different host, {advice}",
            other.name
        )
    })
}
