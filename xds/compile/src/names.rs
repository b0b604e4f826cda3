//! Names of resources (docs/reference/names.md): of which service port each is, and back.
//!
//! Dashboards and mixed versions depend on them. Only this module builds and parses such names. It parses them
//! where Envoy or a report has nothing else: a compiled resource has a [`ResourceRole`](crate::ResourceRole).

use ironmesh_catalog::{Domain, ServicePort};

/// How the names of inbound filter chains and route configurations begin.
pub(crate) const INBOUND: &str = "inbound|";

/// How the names of secrets begin that list the callers of a TCP port.
pub(crate) const CALLERS: &str = "authz:";

/// How the names of clusters end that lead to the applications behind a proxy.
const LOCAL: &str = "|local";

/// How the names of clusters end by which Envoy remembers that an application has passed its health check.
const PASSED: &str = "|passed";

/// How the names of clusters end that lead there by way of a rate limit service.
const COUNTED: &str = "|counted";

/// How the names of clusters end that lead to the chains of single callers.
const BY_CALLER: &str = "|callers";

/// How the names of listeners begin that have the chains of single callers.
const CALLERS_LISTENER: &str = "callers|";

/// How the names of listeners and route configurations of upstreams begin.
const UPSTREAM: &str = "upstream|";

/// How the names of filters begin that end the connections of withdrawn callers.
const WITHDRAWN: &str = "withdrawn:";

/// The filter of a TCP port that ends the connections of withdrawn callers, and its configuration.
pub fn withdrawals_filter(port: &ServicePort) -> String {
    format!("{WITHDRAWN}{port}")
}

/// The listener of an upstream: at a local port for which the proxy has a flag, with the flag's service port.
pub(crate) fn upstream_listener(flagged: Option<&ServicePort>, local_port: u16) -> String {
    match flagged {
        Some(port) => format!("{UPSTREAM}{port}|{local_port}"),
        None => format!("{UPSTREAM}{local_port}"),
    }
}

/// The local port of the listener of an upstream.
pub fn local_port_of_upstream(listener: &str) -> Option<u16> {
    listener.strip_prefix(UPSTREAM)?.rsplit('|').next()?.parse().ok()
}

/// The cluster through which connections to a TCP port go to the chain of their caller.
pub fn callers_cluster(port: &ServicePort) -> String {
    format!("{port}{BY_CALLER}")
}

/// The listener behind [`callers_cluster`].
pub fn callers_listener(port: &ServicePort) -> String {
    format!("{CALLERS_LISTENER}{port}")
}

/// The cluster of the applications behind a proxy.
pub fn local_cluster(port: &ServicePort) -> String {
    format!("{port}{LOCAL}")
}

/// The health check that tells whether an application has passed that of its [`local_cluster`] before.
pub fn passed_cluster(port: &ServicePort) -> String {
    format!("{port}{PASSED}")
}

/// The service port of a [`passed_cluster`].
pub fn port_of_passed_cluster(name: &str) -> Option<ServicePort> {
    name.strip_suffix(PASSED)?.parse().ok()
}

/// The cluster through which connections of a port go to be counted.
pub fn counted_cluster(port: &ServicePort) -> String {
    format!("{port}{COUNTED}")
}

/// The listener behind [`counted_cluster`].
pub fn counted_listener(port: &ServicePort) -> String {
    format!("counted|{port}")
}

/// The inbound route configuration of an HTTP port, which carries its authorization.
pub fn inbound_route(port: &ServicePort) -> String {
    format!("{INBOUND}{port}")
}

/// The SNI by which a caller's proxy names a service port: `<port>.<service>.<ns>.<domain>`.
pub fn server_name(port: &ServicePort, domain: &Domain) -> String {
    format!("{}.{}", port.port, domain.hostname(&port.service))
}

/// The service port of a [`local_cluster`].
pub fn port_of_local_cluster(name: &str) -> Option<ServicePort> {
    name.strip_suffix(LOCAL)?.parse().ok()
}

/// The service port of a [`local_cluster`], a [`counted_cluster`] or a [`callers_cluster`].
pub fn port_of_own_cluster(name: &str) -> Option<ServicePort> {
    [LOCAL, COUNTED, BY_CALLER].iter().find_map(|suffix| name.strip_suffix(suffix))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_port() {
        let port: ServicePort = "shop/bookstore|14001".parse().unwrap();
        assert_eq!(local_cluster(&port), "shop/bookstore|14001|local");
        assert_eq!(port_of_local_cluster(&local_cluster(&port)), Some(port.clone()));
        assert_eq!(port_of_local_cluster(&counted_cluster(&port)), None);
        for own in [local_cluster(&port), counted_cluster(&port), callers_cluster(&port)] {
            assert_eq!(port_of_own_cluster(&own), Some(port.clone()));
        }
        assert_eq!(port_of_own_cluster(&port.to_string()), None);
        let domain = Domain::default();
        assert_eq!(server_name(&port, &domain), "14001.bookstore.shop.mesh.internal");
    }
}
