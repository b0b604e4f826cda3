//! Ways in from outside of the mesh: a filter chain on the mesh port for those who come by TLS, and a
//! listener of its own for those who come in plaintext.
//!
//! Who may ask for what is judged where that of the mesh's own callers is, in the route configuration of the
//! service port ([`crate::authorization`]): so a withdrawal holds for the next request on open connections,
//! also on those of a chain that is gone and drains.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::codes::INGRESS_COLLISION;
use ironmesh_catalog::{
    Application, Finding, Hostname, IngressEntry, IngressPort, IngressRule, Proxy, Service,
    ServicePort, Snapshot,
};
use ironmesh_sidecar::ports;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{CidrRange, TrafficDirection};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{
    Filter, FilterChain, FilterChainMatch, Listener,
};

use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use crate::http::{Side, connection_manager};
use crate::inbound::HANDSHAKE_TIMEOUT;
use crate::shape::{cidr, listener, number};
use crate::telemetry::Telling;
use crate::{held_open, names, tls};

/// What the ways in to one proxy have taken of it.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    proxy: &'a Proxy,
    snapshot: &'a Snapshot,
    hosts: BTreeMap<&'a Hostname, &'a ServicePort>,
    /// By whom: none is the proxy itself.
    ports: BTreeMap<u16, Option<&'a ServicePort>>,
}

/// What lets callers in to a service port.
#[derive(Debug)]
pub(crate) enum Way {
    /// By a chain of the inbound listener.
    Chain(Box<FilterChain>),
    /// By a listener of its own.
    Listener(Box<Listener>),
}

impl<'a> Taken<'a> {
    /// By the proxy itself alone.
    pub(crate) fn new(proxy: &'a Proxy, snapshot: &'a Snapshot) -> Self {
        let mut ports = BTreeSet::from([proxy.record.mesh_address.port()]);
        let bind = proxy.bind();
        // There are its own listeners for the machine as well.
        if bind == proxy.local_address() || bind.is_unspecified() {
            ports.extend([ports::ADMIN, ports::METRICS, ports::OUTBOUND_HTTP]);
            ports.extend(proxy.statement.upstreams.iter().map(|upstream| upstream.local_port));
        }
        Self {
            proxy,
            snapshot,
            hosts: BTreeMap::new(),
            ports: ports.into_iter().map(|port| (port, None)).collect(),
        }
    }

    /// Keeps what ways in cannot have, where an application of the proxy listens at its mesh address.
    pub(crate) fn by_applications(&mut self, applications: &[Application]) {
        if self.proxy.app_address() == self.proxy.bind() {
            self.ports.extend(applications.iter().map(|one| (one.port, None)));
        }
    }

    /// What lets callers in to `port` of `service` by `way`; why it does not where another has taken that
    /// before: Envoy would refuse the listener, and with it all that it serves.
    pub(crate) fn take(
        &mut self,
        service: &Service,
        port: &'a ServicePort,
        filters: Vec<HttpFilter>,
        way: &'a IngressRule,
        telling: Telling<'_>,
    ) -> Result<Way, Box<Finding>> {
        match &way.entry {
            IngressEntry::Http { port: number } => {
                if let Some(by) = self.ports.get(number) {
                    let by = by.map_or_else(|| "the machine".to_owned(), ToString::to_string);
                    let help = "give one of them another port: `ingress_port`";
                    return Err(self.collision(port, way, &format!("port {number}"), &by, help));
                }
                self.ports.insert(*number, Some(port));
                let listener =
                    http_listener(self.proxy, service, port, filters, way, *number, telling);
                Ok(Way::Listener(Box::new(listener)))
            }
            IngressEntry::Https { hosts, skips_client_certificates } => {
                for host in hosts {
                    if is_of_the_mesh(self.snapshot, host) {
                        let (what, by) = (format!("`{host}`"), "the mesh");
                        let help = "name hosts outside of its domain, or a service's own hostname";
                        return Err(self.collision(port, way, &what, by, help));
                    }
                    if let Some(by) = self.hosts.get(host) {
                        let help = "give each of them names of its own: `sni_hosts`";
                        let by = by.to_string();
                        return Err(self.collision(port, way, &format!("`{host}`"), &by, help));
                    }
                }
                self.hosts.extend(hosts.iter().map(|host| (host, port)));
                let asks = !skips_client_certificates;
                let chain = https_chain(service, port, filters, way, hosts, asks, telling);
                Ok(Way::Chain(Box::new(chain)))
            }
        }
    }

    fn collision(
        &self,
        port: &ServicePort,
        way: &IngressRule,
        what: &str,
        by: &str,
        help: &str,
    ) -> Box<Finding> {
        let id = self.proxy.record.id;
        let message = format!(
            "proxy {id} lets nobody in to `{port}` by {what}, which is taken there by {by}"
        );
        // As it is written now: a policy that says the same may be of an older text.
        let key = (way.policy.namespace.clone(), way.policy.name.clone());
        let written = self.snapshot.specification.ingress_backends.get(&key);
        let is_it = |one: &&IngressPort| one.port == *port && one.entry == way.entry;
        let backend = written.and_then(|policy| policy.backends.iter().find(is_it));
        Box::new(
            Finding::error(INGRESS_COLLISION, backend.map(|one| one.spot.clone()), message)
                .help(help),
        )
    }
}

/// Whether a name may be taken for one that proxies of the mesh ask each other for: that of a service port,
/// or all below the hostname of a service, or more.
fn is_of_the_mesh(snapshot: &Snapshot, host: &Hostname) -> bool {
    let domain = snapshot.mesh.domain.as_str();
    let (is_wildcard, name) = match host.as_str().strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, host.as_str()),
    };
    let below = if name == domain { Some("") } else { name.strip_suffix(domain) };
    let is_above = domain.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    match below {
        Some("") => true,
        Some(labels) if labels.ends_with('.') => {
            is_wildcard || labels.split('.').filter(|label| !label.is_empty()).count() > 2
        }
        _ => is_wildcard && is_above,
    }
}

/// The chain for those who ask for one of these names. Who offers no ALPN or another than the mesh's comes here
/// as well as who offers that one: a name is the mesh's or that of a way in, never both.
fn https_chain(
    service: &Service,
    port: &ServicePort,
    filters: Vec<HttpFilter>,
    way: &IngressRule,
    hosts: &[Hostname],
    asks: bool,
    telling: Telling<'_>,
) -> FilterChain {
    FilterChain {
        name: name(port, way),
        filter_chain_match: Some(FilterChainMatch {
            server_names: hosts.iter().map(ToString::to_string).collect(),
            transport_protocol: "tls".to_owned(),
            source_prefix_ranges: source_ranges(way),
            ..FilterChainMatch::default()
        }),
        transport_socket: tls::ingress(&service.account, asks),
        transport_socket_connect_timeout: Some(HANDSHAKE_TIMEOUT),
        filters: vec![manager(
            service,
            port,
            filters,
            Side::Ingress { has_certificate: asks, max_duration: service.max_connection_duration },
            telling,
        )],
        ..FilterChain::default()
    }
}

fn http_listener(
    proxy: &Proxy,
    service: &Service,
    port: &ServicePort,
    filters: Vec<HttpFilter>,
    way: &IngressRule,
    at: u16,
    telling: Telling<'_>,
) -> Listener {
    let ranges = source_ranges(way);
    let only_these = FilterChainMatch { source_prefix_ranges: ranges, ..Default::default() };
    let chain = FilterChain {
        name: name(port, way),
        filter_chain_match: (!only_these.source_prefix_ranges.is_empty()).then_some(only_these),
        filters: vec![manager(
            service,
            port,
            filters,
            Side::Ingress { has_certificate: false, max_duration: service.max_connection_duration },
            telling,
        )],
        ..FilterChain::default()
    };
    // The port is in its name: one that moves is made at the new place before it breaks at the old one.
    let name = format!("{}|{at}", name(port, way));
    Listener {
        traffic_direction: TrafficDirection::Inbound.into(),
        filter_chains: vec![chain],
        per_connection_buffer_limit_bytes: number(held_open::INGRESS_BUFFER),
        ..listener(name, proxy.bind(), at)
    }
}

fn manager(
    service: &Service,
    port: &ServicePort,
    filters: Vec<HttpFilter>,
    side: Side,
    telling: Telling<'_>,
) -> Filter {
    let ServicePort { service: called, port: number } = port;
    connection_manager(
        side,
        service.escaped_slashes,
        format!("ingress_{}_{}_{number}", called.namespace, called.name),
        names::inbound_route(port),
        filters,
        telling,
    )
}

fn name(port: &ServicePort, way: &IngressRule) -> String {
    format!("ingress|{port}|{}", way.entry.protocol())
}

/// From where connections are taken at all. Only where policy alone says that: the addresses of services come
/// and go, and with each the connections of the chain would be drained. The routes look at all of them.
fn source_ranges(way: &IngressRule) -> Vec<CidrRange> {
    way.fixed_ranges().into_iter().flatten().map(|range| cidr(*range)).collect()
}
