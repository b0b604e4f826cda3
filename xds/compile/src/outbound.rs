//! Outbound: the clusters and endpoints of the services that callers may call, and the local
//! HTTP listener that routes by `Host` (docs/concepts/traffic.md).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ironmesh_catalog::{
    CertificateSource, EscapedSlashes, Locality, LocalitySetting, MeshEndpoint, Port, Protocol,
    Proxy, Service, ServicePort, Transport, hosts,
};
use ironmesh_sidecar::ports;
use ironmesh_xds_wire::pb;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::TrafficDirection;
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{FilterChain, Listener};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

use crate::destination::{Destination, Host};
use crate::egress::EgressScope;
use crate::http::{
    Side, connection_manager, protocol_options, protocol_options_to_proxies, reject_escaped_slashes,
};
use crate::limits::Limits;
use crate::mesh_view::MeshView;
use crate::mirrors::Mirrors;
use crate::shape::{ads, health_status, lb_endpoint, listener, number};
use crate::telemetry::ServiceTelemetry;
use crate::{egress, external, keepalive, names, plaintext, tls};

/// The name of the listener that routes by `Host`, and of its routes.
const BY_HOST: &str = "outbound-http";

/// The cluster through which callers reach a service port within `limits`: mutual TLS to the
/// proxies of its endpoints, which must have the service's account. HTTP uses HTTP/2.
///
/// It is the same for all callers with certificates from `source`.
///
/// If endpoints may lack a proxy, the metadata of each says whether it is called in plaintext. The
/// protocol is then the application's, since a cluster has one protocol for all of its endpoints;
/// proxies accept that as well.
pub(crate) fn cluster(
    mesh: MeshView<'_>,
    service: &Service,
    port: &Port,
    limits: Limits<'_>,
    source: CertificateSource,
) -> Cluster {
    let service_port = ServicePort::new(service.name.clone(), port.number);
    let server = mesh.trust_domain().workload(&service.account);
    let may_be_plaintext = mesh.has_plaintext(service);
    let between_proxies = if port.protocol.is_http() { Protocol::Http2 } else { port.protocol };
    let protocol = if may_be_plaintext { port.protocol } else { between_proxies };
    let protocol_has_pings = !may_be_plaintext && protocol.is_http();
    let served_port = ServicePort::new(service.served_as().clone(), port.number);
    let server_name = names::server_name(&served_port, mesh.domain());
    Cluster {
        name: service_port.to_string(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: ads(),
            ..EdsClusterConfig::default()
        }),
        connect_timeout: limits.connect_timeout(),
        circuit_breakers: limits.circuit_breakers(),
        outlier_detection: limits.outlier_detection(),
        common_lb_config: limits.choice(),
        typed_extension_protocol_options: if may_be_plaintext {
            protocol_options(protocol, limits.per_connection())
        } else {
            protocol_options_to_proxies(protocol, limits.per_connection())
        },
        transport_socket: tls::upstream(&server, server_name, source),
        transport_socket_matches: may_be_plaintext
            .then(plaintext::socket_match)
            .into_iter()
            .collect(),
        upstream_connection_options: Some(keepalive::tcp()),
        upstream_bind_config: (!protocol_has_pings).then(keepalive::unacknowledged_data_limit),
        ..Cluster::default()
    }
}

/// Whether calls to `destination` may use plaintext.
pub(crate) fn may_be_plaintext(mesh: MeshView<'_>, destination: &Destination) -> bool {
    let services = destination.service_ports().into_iter();
    services.filter_map(|port| mesh.service(&port.service)).any(|one| mesh.has_plaintext(one))
}

/// The endpoints of a service port. Without endpoints there is still an assignment: to omit it
/// would leave the old endpoints in use.
///
/// `order` gives localities their priorities and weights for callers in one locality. Within a
/// priority they are sorted by name, so that equal content has equal bytes.
pub(crate) fn endpoints(
    port: &ServicePort,
    endpoints: &[MeshEndpoint],
    order: Option<(&LocalitySetting, &Locality)>,
) -> ClusterLoadAssignment {
    let mut by_locality: BTreeMap<_, (u64, Vec<LbEndpoint>)> = BTreeMap::new();
    for endpoint in endpoints {
        let (weight, all) = by_locality.entry(&endpoint.locality).or_default();
        *weight = weight.saturating_add(endpoint.weight.into());
        all.push(mesh_endpoint(endpoint));
    }
    let localities: Vec<_> =
        by_locality.iter().map(|(locality, (weight, _))| (*locality, *weight)).collect();
    let ranks = order.map(|(setting, caller)| setting.rank(caller, &localities));
    let mut ranks = ranks.unwrap_or_default().into_iter();
    let has_shares = order.is_some_and(|(setting, _)| !setting.distribute.is_empty());
    let of_one = |(locality, (_, lb_endpoints)): (&Locality, _)| {
        let rank = ranks.next();
        LocalityLbEndpoints {
            locality: (!locality.is_empty()).then(|| envoy_locality(locality)),
            lb_endpoints,
            priority: rank.map_or(0, |rank| rank.priority),
            load_balancing_weight: rank.filter(|_| has_shares).and_then(|rank| number(rank.share)),
            ..LocalityLbEndpoints::default()
        }
    };
    ClusterLoadAssignment {
        cluster_name: port.to_string(),
        endpoints: by_locality.into_iter().map(of_one).collect(),
        ..ClusterLoadAssignment::default()
    }
}

fn envoy_locality(locality: &Locality) -> pb::envoy::config::core::v3::Locality {
    pb::envoy::config::core::v3::Locality {
        region: locality.region.to_string(),
        zone: locality.zone.to_string(),
        sub_zone: locality.sub_zone.to_string(),
    }
}

fn mesh_endpoint(endpoint: &MeshEndpoint) -> LbEndpoint {
    let metadata = match endpoint.transport {
        Transport::MutualTls => None,
        Transport::Plaintext => Some(plaintext::metadata()),
    };
    let health_status = health_status(endpoint.health);
    LbEndpoint { metadata, health_status, ..lb_endpoint(endpoint.address, endpoint.weight) }
}

/// The settings of the listener that routes by `Host`, for all services that a caller may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByHost {
    /// `Keep` if any service keeps them. The routes of other services reject them, and those of
    /// services outside the mesh always do.
    escaped_slashes: EscapedSlashes,
}

impl ByHost {
    /// The settings for a caller of these services.
    pub(crate) fn of<'a>(services: impl Iterator<Item = &'a Service>) -> Self {
        let mut by_host = Self { escaped_slashes: EscapedSlashes::Reject };
        for service in services {
            if service.escaped_slashes == EscapedSlashes::Keep {
                by_host.escaped_slashes = EscapedSlashes::Keep;
            }
        }
        by_host
    }
}

/// The listener that routes by `Host`.
pub(crate) fn by_host_listener(
    proxy: &Proxy,
    by_host: ByHost,
    telemetry: ServiceTelemetry<'_>,
) -> Listener {
    let manager = connection_manager(
        Side::ByHost,
        by_host.escaped_slashes,
        "outbound".to_owned(),
        BY_HOST.to_owned(),
        egress::filters::all(proxy),
        telemetry,
    );
    Listener {
        traffic_direction: TrafficDirection::Outbound.into(),
        filter_chains: vec![FilterChain { filters: vec![manager], ..FilterChain::default() }],
        ..listener(BY_HOST.to_owned(), proxy.local_address(), ports::OUTBOUND_HTTP)
    }
}

/// The routes by `Host` of a caller: a virtual host for every service port that it may call, and
/// for every host outside. Anything else, forbidden or unknown, is 404: a caller learns of nothing
/// that it may not call.
pub(crate) fn by_host_routes(
    egress_scope: &EgressScope<'_>,
    callable: &BTreeMap<ServicePort, Arc<Destination>>,
    by_host: ByHost,
) -> RouteConfiguration {
    let EgressScope { mesh, caller, .. } = *egress_scope;
    let mirrors = Mirrors { mesh, callable };
    let ports: Vec<_> = callable
        .iter()
        .filter_map(|(port, destination)| {
            let service = mesh.service(&port.service)?;
            let domains = mesh.hosts(caller, service, port);
            is_http(service, port.port).then_some((port, destination, service, domains))
        })
        .collect();
    let of_the_mesh = ports.iter().filter(|(_, _, service, _)| service.external.is_none());
    let mut used_domains: BTreeSet<String> =
        of_the_mesh.flat_map(|(_, _, _, domains)| domains).cloned().collect();
    let mut virtual_hosts = Vec::new();
    for (port, destination, service, mut domains) in ports {
        let mut routes = match &service.external {
            None => {
                let treatments = mesh.treatments(caller, &port.service);
                destination.routes(port, Host::AsTreated, &treatments, mirrors)
            }
            Some(external) => {
                // Envoy would reject routes with a duplicate host.
                domains.retain(|host| used_domains.insert(host.clone()));
                external::routes(mirrors, caller, service, external, port)
            }
        };
        // The listener may exist before these routes. A server of the mesh then rejects by itself;
        // for calls to the outside only this proxy does.
        let is_kept_out =
            service.external.is_some() || by_host.escaped_slashes == EscapedSlashes::Keep;
        if service.escaped_slashes == EscapedSlashes::Reject && is_kept_out {
            routes.insert(0, reject_escaped_slashes());
        }
        if !domains.is_empty() {
            let name = format!("outbound|{port}");
            virtual_hosts.push(VirtualHost { name, domains, routes, ..VirtualHost::default() });
        }
    }
    virtual_hosts.extend(egress_scope.virtual_hosts(&mut used_domains));
    virtual_hosts.push(VirtualHost {
        name: "unknown".to_owned(),
        domains: vec!["*".to_owned()],
        routes: egress_scope.unnamed(),
        ..VirtualHost::default()
    });
    let mut services = callable.keys().filter_map(|port| mesh.service(&port.service));
    let goes_by_host = egress_scope.is_open() || services.any(|one| hosts::is_passed_through(one));
    let never = if goes_by_host { egress::filters::never() } else { HashMap::new() };
    RouteConfiguration {
        name: BY_HOST.to_owned(),
        virtual_hosts,
        typed_per_filter_config: never,
        ..RouteConfiguration::default()
    }
}

fn is_http(service: &Service, number: u16) -> bool {
    service.port(number).is_some_and(|port| port.protocol.is_http())
}
