//! Declared upstreams outside the mesh: a local port for one host and port.
//!
//! HTTP has routes of its own here. Anything else goes by CONNECT through the proxy's own listener
//! by `Host`, which authorizes all egress: so one place decides, whatever listener a call uses.

use ironmesh_catalog::{
    EgressProtocol, EscapedSlashes, Finding, HostUpstream, Hostname, OutsideHost, Protocol, Proxy,
    ServiceAccount,
};
use ironmesh_sidecar::ports;
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::TrafficDirection;
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{
    Filter, FilterChain, FilterChainMatch, Listener,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::dynamic_forward_proxy::v3::{
    PerRouteConfig, per_route_config::HostRewriteSpecifier,
};

use super::{EgressScope, filters};
use crate::caller_name::{CALLER, answer_naming_caller};
use crate::http::{Side, connection_manager, every_request, protocol_options};
use crate::inbound::tls_inspector;
use crate::limits::Limits;
use crate::shape::{lb_endpoint_at, listener};
use crate::tcp;
use crate::telemetry::ServiceTelemetry;
use crate::upstream::UPSTREAM_CLOSED;

/// The cluster of the proxy's own listener by `Host`, which accepts CONNECT.
const TUNNEL: &str = "egress-by-host";

/// The resources of a declared upstream.
pub(crate) enum Opened {
    /// HTTP, authorized by these routes.
    Requests(Box<(Listener, RouteConfiguration)>),
    /// Bytes, which continue by CONNECT.
    Bytes(Box<(Listener, Cluster)>),
}

/// The resources of a declared upstream; `None` if policy does not allow its account to call the
/// host.
pub(crate) fn open(
    proxy: &Proxy,
    egress_scope: &EgressScope<'_>,
    upstream: &HostUpstream,
    telemetry: ServiceTelemetry<'_>,
) -> Option<Opened> {
    let bytes = |protocol| {
        let listener = tunnel_listener(proxy, upstream, protocol);
        Some(Opened::Bytes(Box::new((listener, tunnel(proxy)))))
    };
    if egress_scope.passes_through {
        return bytes(EgressProtocol::Tcp);
    }
    let spoken = |mut all: Box<dyn Iterator<Item = EgressProtocol> + '_>| {
        all.all(|one| one == EgressProtocol::Https)
    };
    let protocol = |is_tls: bool| if is_tls { EgressProtocol::Https } else { EgressProtocol::Tcp };
    match &upstream.host {
        OutsideHost::Address(address) => {
            let known = egress_scope.exits.at_address(*address, upstream.port);
            let is_tls = spoken(Box::new(known.iter().map(|one| one.protocol)));
            (!known.is_empty()).then(|| bytes(protocol(is_tls))).flatten()
        }
        OutsideHost::Name(host) => {
            let (_, exit) = egress_scope.exits.at_host(host, upstream.port)?;
            if exit.connections.is_empty() {
                let listener = http_listener(proxy, upstream, telemetry);
                let routes = routes(egress_scope, upstream, host);
                return Some(Opened::Requests(Box::new((listener, routes))));
            }
            let is_tls = spoken(Box::new(exit.connections.iter().map(|(_, protocol)| *protocol)));
            bytes(protocol(is_tls))
        }
    }
}

/// The finding about an upstream without a listener.
pub(crate) fn closed(proxy: &Proxy, upstream: &HostUpstream, account: &ServiceAccount) -> Finding {
    let (local, id, outside) = (upstream.local_port, proxy.record.id, upstream.authority());
    let message = format!(
        "local port {local} of proxy {id} for `{outside}` is closed: no egress allows \
         `{account}` to call it"
    );
    Finding::warning(UPSTREAM_CLOSED, None, message)
        .object(proxy.record.id)
        .help("name the host or its address, and the port, in an egress with the account among its sources")
}

fn name(upstream: &HostUpstream) -> String {
    format!("upstream|{}", upstream.authority())
}

fn stat_prefix(upstream: &HostUpstream) -> String {
    format!("upstream_{}", upstream.authority().replace(['.', ':', '[', ']'], "_"))
}

fn upstream_listener(proxy: &Proxy, upstream: &HostUpstream, filter: Filter) -> Listener {
    let name = format!("{}|{}", name(upstream), upstream.local_port);
    Listener {
        traffic_direction: TrafficDirection::Outbound.into(),
        filter_chains: vec![FilterChain { filters: vec![filter], ..FilterChain::default() }],
        ..listener(name, proxy.local_address(), upstream.local_port)
    }
}

fn http_listener(
    proxy: &Proxy,
    upstream: &HostUpstream,
    telemetry: ServiceTelemetry<'_>,
) -> Listener {
    let manager = connection_manager(
        Side::Outbound,
        EscapedSlashes::Reject,
        stat_prefix(upstream),
        name(upstream),
        filters::all(proxy),
        telemetry,
    );
    upstream_listener(proxy, upstream, manager)
}

/// Rewrites any host to the upstream's.
fn routes(
    egress_scope: &EgressScope<'_>,
    upstream: &HostUpstream,
    host: &Hostname,
) -> RouteConfiguration {
    let authority =
        if upstream.port == 80 { host.to_string() } else { format!("{host}:{}", upstream.port) };
    let exit = egress_scope.exits.at_host(host, upstream.port).map(|(_, exit)| exit);
    let text = format!("ironmesh: {CALLER} may not ask this of {authority}: no egress allows it\n");
    let requests = exit.map(|exit| egress_scope.requests(exit)).unwrap_or_default();
    let rewrite = PerRouteConfig {
        host_rewrite_specifier: Some(HostRewriteSpecifier::HostRewriteLiteral(authority)),
    };
    RouteConfiguration {
        name: name(upstream),
        typed_per_filter_config: filters::never(),
        virtual_hosts: vec![VirtualHost {
            name: "upstream".to_owned(),
            domains: vec!["*".to_owned()],
            routes: requests
                .into_iter()
                .chain([every_request(answer_naming_caller(403, text))])
                .collect(),
            typed_per_filter_config: [(filters::LOOKUP.to_owned(), any(&rewrite))].into(),
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    }
}

/// If policy allows TLS only, nothing else passes; and to a host by name, only TLS with that SNI.
fn tunnel_listener(proxy: &Proxy, upstream: &HostUpstream, protocol: EgressProtocol) -> Listener {
    // The listener by `Host` writes the access log of the call.
    let filter = tcp::by_connect(stat_prefix(upstream), TUNNEL.to_owned(), upstream.authority());
    let listener = upstream_listener(proxy, upstream, filter);
    if protocol != EgressProtocol::Https {
        return listener;
    }
    let server_names = match &upstream.host {
        OutsideHost::Name(host) => vec![host.to_string()],
        OutsideHost::Address(_) => Vec::new(),
    };
    let only = FilterChainMatch {
        transport_protocol: "tls".to_owned(),
        server_names,
        ..FilterChainMatch::default()
    };
    let chains = listener.filter_chains.into_iter();
    Listener {
        filter_chains: chains
            .map(|chain| FilterChain { filter_chain_match: Some(only.clone()), ..chain })
            .collect(),
        listener_filters: vec![tls_inspector()],
        ..listener
    }
}

/// The cluster of the proxy's own listener by `Host`: all tunnels share a few HTTP/2 connections.
fn tunnel(proxy: &Proxy) -> Cluster {
    let (limits, address) = (Limits::default(), proxy.local_address().to_string());
    Cluster {
        name: TUNNEL.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        connect_timeout: limits.connect_timeout(),
        circuit_breakers: limits.circuit_breakers(),
        typed_extension_protocol_options: protocol_options(Protocol::Http2, None),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: TUNNEL.to_owned(),
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![lb_endpoint_at(address, ports::OUTBOUND_HTTP, 1)],
                ..LocalityLbEndpoints::default()
            }],
            ..ClusterLoadAssignment::default()
        }),
        ..Cluster::default()
    }
}
