//! Outbound: the clusters and endpoints of the services that an account may call, and the local
//! HTTP listener that routes by `Host` (docs/concepts/traffic.md).

use ironmesh_catalog::{MeshEndpoint, Proxy, Service, ServiceAccount, ServicePort, Snapshot};
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::TrafficDirection;
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{FilterChain, Listener};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    RetryPolicy, RouteAction, RouteConfiguration, VirtualHost, WeightedCluster, route,
    route_action::{ClusterSpecifier, HostRewriteSpecifier},
    weighted_cluster::ClusterWeight,
};

use crate::http::{Side, answer, connection_manager, every_request, forward, protocol_options};
use crate::index::PolicyIndex;
use crate::shape::{CONNECT_TIMEOUT, ads, circuit_breakers, lb_endpoint, listener, number};
use crate::tls;

/// The name of the listener that routes by `Host`, and of its routes.
const BY_HOST: &str = "outbound-http";

/// Retried is only what cannot have reached an application.
const RETRY_ON: &str = "connect-failure,refused-stream,reset-before-request";

/// The cluster through which `caller` reaches a service port: HTTP/2 over mutual TLS to the proxies
/// in front of it, which must be those of the service's account.
pub(crate) fn cluster(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &ServicePort,
) -> Cluster {
    let server = snapshot.mesh.trust_domain.workload(&service.account);
    Cluster {
        name: port.to_string(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: ads(),
            ..EdsClusterConfig::default()
        }),
        connect_timeout: Some(CONNECT_TIMEOUT),
        circuit_breakers: circuit_breakers(true),
        typed_extension_protocol_options: protocol_options(true),
        transport_socket: tls::upstream(caller, &server, port.server_name(&snapshot.mesh.domain)),
        ..Cluster::default()
    }
}

/// Where a service port is dialled. An answer without endpoints is an answer too: leaving it out
/// would leave the old endpoints in use.
pub(crate) fn endpoints(port: &ServicePort, endpoints: &[MeshEndpoint]) -> ClusterLoadAssignment {
    let lb_endpoints: Vec<_> =
        endpoints.iter().map(|endpoint| lb_endpoint(endpoint.address, endpoint.weight)).collect();
    let locality = LocalityLbEndpoints { lb_endpoints, ..LocalityLbEndpoints::default() };
    ClusterLoadAssignment {
        cluster_name: port.to_string(),
        endpoints: if endpoints.is_empty() { Vec::new() } else { vec![locality] },
        ..ClusterLoadAssignment::default()
    }
}

/// Where calls of a service port go: itself, or the backends of its split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    One(ServicePort),
    Split(Vec<(ServicePort, u32)>),
    /// A split none of whose backends with a weight has the port.
    Nowhere,
}

impl Destination {
    pub(crate) fn of(index: &PolicyIndex, port: &ServicePort) -> Self {
        let Some(split) = index.split_of(&port.service) else { return Self::One(port.clone()) };
        let services = &index.specification().services;
        let backends = split.backends.iter().filter(|backend| backend.weight > 0);
        // SMI: a backend without the port is left out (config warns).
        let backends = backends.filter(|backend| {
            services.get(&backend.service).is_some_and(|service| service.port(port.port).is_some())
        });
        let mut backends: Vec<_> = backends
            .map(|backend| (ServicePort::new(backend.service.clone(), port.port), backend.weight))
            .collect();
        backends.sort();
        if backends.is_empty() { Self::Nowhere } else { Self::Split(backends) }
    }

    /// The clusters that it takes.
    pub(crate) fn service_ports(&self) -> Vec<&ServicePort> {
        match self {
            Self::One(port) => vec![port],
            Self::Split(backends) => backends.iter().map(|(port, _)| port).collect(),
            Self::Nowhere => Vec::new(),
        }
    }

    /// The action that goes there. `host` is what the request's host is rewritten to, if at all.
    pub(crate) fn action(&self, asked: &ServicePort, host: Option<String>) -> route::Action {
        let clusters = match self {
            Self::One(port) => ClusterSpecifier::Cluster(port.to_string()),
            Self::Split(backends) => ClusterSpecifier::WeightedClusters(WeightedCluster {
                clusters: backends
                    .iter()
                    .map(|(port, weight)| cluster_weight(port, *weight))
                    .collect(),
                ..WeightedCluster::default()
            }),
            Self::Nowhere => {
                return answer(
                    503,
                    format!("ironmesh: no backend of {} has port {}\n", asked.service, asked.port),
                );
            }
        };
        let retry = RetryPolicy {
            retry_on: RETRY_ON.to_owned(),
            num_retries: number(1),
            ..RetryPolicy::default()
        };
        forward(RouteAction {
            cluster_specifier: Some(clusters),
            retry_policy: Some(retry),
            host_rewrite_specifier: host.map(HostRewriteSpecifier::HostRewriteLiteral),
            ..RouteAction::default()
        })
    }
}

fn cluster_weight(port: &ServicePort, weight: u32) -> ClusterWeight {
    ClusterWeight { name: port.to_string(), weight: number(weight), ..ClusterWeight::default() }
}

/// The listener that routes by `Host`.
pub(crate) fn by_host_listener(proxy: &Proxy) -> Listener {
    let manager =
        connection_manager(Side::Outbound, "outbound".to_owned(), BY_HOST.to_owned(), Vec::new());
    Listener {
        traffic_direction: TrafficDirection::Outbound.into(),
        filter_chains: vec![FilterChain { filters: vec![manager], ..FilterChain::default() }],
        ..listener(BY_HOST.to_owned(), proxy.local_address(), Proxy::OUTBOUND_HTTP_PORT)
    }
}

/// The routes by `Host` of `caller`: a virtual host for every service port that it may call.
/// Anything else, forbidden or unknown, is 404: a caller learns of nothing that it may not call.
pub(crate) fn by_host_routes(
    index: &PolicyIndex,
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    callable: &[&Service],
) -> RouteConfiguration {
    let mut virtual_hosts = Vec::new();
    for service in callable {
        for (port, _) in service.service_ports() {
            virtual_hosts.push(VirtualHost {
                name: format!("outbound|{port}"),
                domains: hosts(snapshot, caller, service, &port),
                routes: vec![every_request(Destination::of(index, &port).action(&port, None))],
                ..VirtualHost::default()
            });
        }
    }
    let unknown = format!(
        "ironmesh: {} may call no service by this name; see its traffic targets\n",
        snapshot.mesh.trust_domain.workload(caller)
    );
    virtual_hosts.push(VirtualHost {
        name: "unknown".to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![every_request(answer(404, unknown))],
        ..VirtualHost::default()
    });
    RouteConfiguration { name: BY_HOST.to_owned(), virtual_hosts, ..RouteConfiguration::default() }
}

/// By what hosts a service port is called: three forms of its name, each with the port, and without
/// it for port 80 or else the only port. (A wildcard domain would not match a host with a port.)
fn hosts(
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
    let is_plain = port.port == 80 || service.ports.len() == 1;
    let mut hosts: Vec<_> = names.iter().map(|name| format!("{name}:{}", port.port)).collect();
    if is_plain {
        hosts.extend(names);
    }
    hosts.sort();
    hosts
}
