//! The host of a request: the hosts of a service, and the host that rules compare.

use ironmesh_catalog::hosts::{hosts, is_passed_through};
use ironmesh_catalog::name::{ServiceAccount, ServicePort};
use ironmesh_catalog::service::{Port, Service};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Answer;
use super::request::Request;
use crate::routing::Routing;

/// The host of a request that a rule compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ComparedHost {
    /// The host: that of the request, as in a call by `Host`, or else that of calls of a declared upstream.
    pub host: String,
    /// The answer at a declared upstream, if it differs. There the server's sidecar sees the service's own
    /// hostname and port, whatever the application sent.
    pub at_upstream: Option<UpstreamAnswer>,
}

/// The answer to a call of a declared upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpstreamAnswer {
    /// The host that the server's sidecar sees.
    pub host: String,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// Whether a request to `port` of `service` has a host that the service does not have. Only a call of a declared
/// upstream can have it.
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

/// What is wrong with the host of a request to `port` of `service`, if it has one: a call by `Host` does not reach
/// the service with it, and at a declared upstream no rule compares it.
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
    // The caller's own sidecar compares the host that the application sends.
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

/// The same for a passthrough service, where the host decides the destination, and whether the request is for
/// this service.
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
    // Envoy prefers an exact host to a wildcard.
    let services = snapshot.specification.services.values().filter(|other| other.name != *name);
    let mut others = services.flat_map(|other| {
        let ports = other.service_ports().filter(|(_, port)| port.protocol.is_http());
        ports.map(move |(port, _)| (other, port))
    });
    let owner = others.find(|(other, port)| hosts(snapshot, caller, other, port).contains(&lower));
    owner.map(|(other, _)| {
        format!(
            "by `Host` a request to the host `{host}` reaches `{}`: ask about that service, or give a different host, {advice}",
            other.name
        )
    })
}
