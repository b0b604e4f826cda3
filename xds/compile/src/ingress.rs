//! Ingress: a filter chain on the mesh port for TLS callers outside the mesh, and a listener of its
//! own for plaintext callers.
//!
//! The route configuration of the service port authorizes them together with the mesh's own callers
//! ([`crate::rbac`]): so a withdrawal applies to the next request on open connections,
//! even on those of a removed chain that drains.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::codes::INGRESS_COLLISION;
use ironmesh_catalog::{
    Application, Domain, Finding, Hostname, IngressEntry, IngressPort, IngressRule, Proxy, Service,
    ServicePort,
};
use ironmesh_sidecar::ports;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{CidrRange, TrafficDirection};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{
    Filter, FilterChain, FilterChainMatch, Listener,
};

use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use crate::http::{Side, connection_manager};
use crate::inbound::HANDSHAKE_TIMEOUT;
use crate::mesh_view::MeshView;
use crate::shape::{cidr, listener, number};
use crate::telemetry::ServiceTelemetry;
use crate::{held_open, names, tls};

/// The hosts and ports of one proxy that ingress rules, or the proxy itself, already use.
#[derive(Debug)]
pub(crate) struct UsedAddresses<'a> {
    proxy: &'a Proxy,
    mesh: MeshView<'a>,
    hosts: BTreeMap<&'a Hostname, &'a ServicePort>,
    /// The service port that uses each; `None` is the proxy itself.
    ports: BTreeMap<u16, Option<&'a ServicePort>>,
}

/// The resource that opens ingress to a service port.
#[derive(Debug)]
pub(crate) enum IngressResource {
    /// A chain of the inbound listener.
    Chain(Box<FilterChain>),
    /// A listener of its own.
    Listener(Box<Listener>),
}

impl<'a> UsedAddresses<'a> {
    /// The addresses that the proxy itself uses, with upstreams at `local_ports`.
    pub(crate) fn new(
        proxy: &'a Proxy,
        mesh: MeshView<'a>,
        local_ports: impl IntoIterator<Item = u16>,
    ) -> Self {
        let mut ports = BTreeSet::from([proxy.record.mesh_address.port()]);
        let bind = proxy.bind();
        // Its own local listeners are there as well.
        if bind == proxy.local_address() || bind.is_unspecified() {
            ports.extend([ports::ADMIN, ports::METRICS, ports::OUTBOUND_HTTP]);
            ports.extend(local_ports);
        }
        Self {
            proxy,
            mesh,
            hosts: BTreeMap::new(),
            ports: ports.into_iter().map(|port| (port, None)).collect(),
        }
    }

    /// Adds the ports of applications, if they listen at the proxy's mesh address.
    pub(crate) fn add_applications(&mut self, applications: &[Application]) {
        if self.proxy.app_address() == self.proxy.bind() {
            self.ports.extend(applications.iter().map(|one| (one.port, None)));
        }
    }

    /// Opens ingress to `port` of `service` by `rule`. Returns a finding if another rule already
    /// uses the address: Envoy would reject the whole listener.
    pub(crate) fn add(
        &mut self,
        service: &Service,
        port: &'a ServicePort,
        filters: Vec<HttpFilter>,
        rule: &'a IngressRule,
        telemetry: ServiceTelemetry<'_>,
    ) -> Result<IngressResource, Box<Finding>> {
        match &rule.entry {
            IngressEntry::Http { port: number } => {
                if let Some(by) = self.ports.get(number) {
                    let by = by.map_or_else(|| "the machine".to_owned(), ToString::to_string);
                    let help = "give one of them another port: `ingress_port`";
                    return Err(self.collision(port, rule, &format!("port {number}"), &by, help));
                }
                self.ports.insert(*number, Some(port));
                let listener =
                    http_listener(self.proxy, service, port, filters, rule, *number, telemetry);
                Ok(IngressResource::Listener(Box::new(listener)))
            }
            IngressEntry::Https { hosts, skips_client_certificates } => {
                for host in hosts {
                    if is_mesh_host(self.mesh.domain(), host) {
                        let (what, by) = (format!("`{host}`"), "the mesh");
                        let help = "name hosts outside of its domain, or a service's own hostname";
                        return Err(self.collision(port, rule, &what, by, help));
                    }
                    if let Some(by) = self.hosts.get(host) {
                        let help = "give each of them names of its own: `sni_hosts`";
                        let by = by.to_string();
                        return Err(self.collision(port, rule, &format!("`{host}`"), &by, help));
                    }
                }
                self.hosts.extend(hosts.iter().map(|host| (host, port)));
                let requires_certificate = !skips_client_certificates;
                let source = self.proxy.metadata.certificates;
                let chain = https_chain(
                    service,
                    port,
                    filters,
                    rule,
                    hosts,
                    requires_certificate,
                    telemetry,
                );
                let chain = FilterChain {
                    transport_socket: tls::ingress(&service.account, source, requires_certificate),
                    ..chain
                };
                Ok(IngressResource::Chain(Box::new(chain)))
            }
        }
    }

    fn collision(
        &self,
        port: &ServicePort,
        rule: &IngressRule,
        what: &str,
        by: &str,
        help: &str,
    ) -> Box<Finding> {
        let id = self.proxy.record.id;
        let message = format!(
            "proxy {id} opens no ingress to `{port}` by {what}, which {by} uses there already"
        );
        // By its current source location: an equal rule may come from an older text.
        let key = (rule.policy.namespace.clone(), rule.policy.name.clone());
        let written = self.mesh.ingress_backend(&key);
        let is_it = |one: &&IngressPort| one.port == *port && one.entry == rule.entry;
        let backend = written.and_then(|policy| policy.backends.iter().find(is_it));
        Box::new(
            Finding::error(INGRESS_COLLISION, backend.map(|one| one.spot.clone()), message)
                .object(id)
                .help(help),
        )
    }
}

/// Whether a host could be a name by which proxies of the mesh call each other: that of a service
/// port, a wildcard below the hostname of a service, or a wider one.
fn is_mesh_host(domain: &Domain, host: &Hostname) -> bool {
    let domain = domain.as_str();
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

/// The chain for these SNI names, without its TLS context, whatever ALPN the caller offers: a name belongs either to the
/// mesh or to ingress, never to both.
fn https_chain(
    service: &Service,
    port: &ServicePort,
    filters: Vec<HttpFilter>,
    rule: &IngressRule,
    hosts: &[Hostname],
    requires_certificate: bool,
    telemetry: ServiceTelemetry<'_>,
) -> FilterChain {
    FilterChain {
        name: name(port, rule),
        filter_chain_match: Some(FilterChainMatch {
            server_names: hosts.iter().map(ToString::to_string).collect(),
            transport_protocol: "tls".to_owned(),
            source_prefix_ranges: source_ranges(rule),
            ..FilterChainMatch::default()
        }),
        transport_socket_connect_timeout: Some(HANDSHAKE_TIMEOUT),
        filters: vec![manager(
            service,
            port,
            filters,
            Side::Ingress {
                has_certificate: requires_certificate,
                max_duration: service.max_connection_duration,
            },
            telemetry,
        )],
        ..FilterChain::default()
    }
}

fn http_listener(
    proxy: &Proxy,
    service: &Service,
    port: &ServicePort,
    filters: Vec<HttpFilter>,
    rule: &IngressRule,
    at: u16,
    telemetry: ServiceTelemetry<'_>,
) -> Listener {
    let ranges = source_ranges(rule);
    let only_these = FilterChainMatch { source_prefix_ranges: ranges, ..Default::default() };
    let chain = FilterChain {
        name: name(port, rule),
        filter_chain_match: (!only_these.source_prefix_ranges.is_empty()).then_some(only_these),
        filters: vec![manager(
            service,
            port,
            filters,
            Side::Ingress { has_certificate: false, max_duration: service.max_connection_duration },
            telemetry,
        )],
        ..FilterChain::default()
    };
    // The name contains the port: a rule that moves opens at the new port before the old one
    // closes.
    let name = format!("{}|{at}", name(port, rule));
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
    telemetry: ServiceTelemetry<'_>,
) -> Filter {
    let ServicePort { service: called, port: number } = port;
    connection_manager(
        side,
        service.escaped_slashes,
        format!("ingress_{}_{}_{number}", called.namespace, called.name),
        names::inbound_route(port),
        filters,
        telemetry,
    )
}

fn name(port: &ServicePort, rule: &IngressRule) -> String {
    format!("ingress|{port}|{}", rule.entry.protocol())
}

/// The source ranges of connections, only if policy fixes them. Addresses of services come and go,
/// and each change would drain the chain's connections. The routes check all of them.
fn source_ranges(rule: &IngressRule) -> Vec<CidrRange> {
    rule.fixed_ranges().into_iter().flatten().map(|range| cidr(*range)).collect()
}
