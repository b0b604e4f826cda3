//! External services: clusters without the mesh's TLS, and routes that authorize the caller.
//!
//! No sidecar on the other side could authorize it. So each caller has routes for what it may
//! request: one per match of its traffic targets, and 403 for the rest. All of them have the same
//! destination, so their order does not matter.

use std::collections::BTreeSet;

use ironmesh_catalog::hosts::is_passed_through;
use ironmesh_catalog::{External, IpRange, Port, Resolution, Service, ServiceAccount, ServicePort};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType, DiscoveryType, DnsLookupFamily as CachedFamily,
    EdsClusterConfig, LbPolicy,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::Route;
use ironmesh_xds_wire::pb::envoy::extensions::clusters::common::dns::v3::DnsLookupFamily;
use ironmesh_xds_wire::pb::envoy::extensions::clusters::dns::v3::DnsCluster;
use ironmesh_xds_wire::pb::envoy::extensions::clusters::dynamic_forward_proxy::v3::{
    ClusterConfig, cluster_config::ClusterImplementationSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::caller_name::{CALLER, answer_naming_caller};
use crate::destination::{Destination, Host};
use crate::egress::filters;
use crate::http::{every_request, filtered_protocol_options, protocol_options};
use crate::keepalive;
use crate::limits::Limits;
use crate::mesh_view::Allowed;
use crate::mirrors::Mirrors;
use crate::shape::{ads, lb_endpoint_at, never_panic};

/// Whether the endpoints of an external service port come from DNS and are checked in its cluster,
/// so that the cluster differs between machines.
///
/// Envoy runs upstream filters for HTTP only: nothing checks the DNS answers of TCP connections.
pub(crate) fn is_checked_per_endpoint(external: &External, port: &Port) -> bool {
    let has_name = external.hostname.is_some();
    external.resolution == Resolution::Dns && has_name && port.protocol.is_http()
}

/// The cluster of an external service port, for a machine whose `own` addresses are never called.
pub(crate) fn cluster(
    service: &Service,
    external: &External,
    port: &Port,
    limits: Limits<'_>,
    own: &BTreeSet<IpRange>,
) -> Cluster {
    let service_port = ServicePort::new(service.name.clone(), port.number);
    let plain = Cluster {
        name: service_port.to_string(),
        connect_timeout: limits.connect_timeout(),
        circuit_breakers: limits.circuit_breakers(),
        typed_extension_protocol_options: protocol_options(port.protocol, limits.per_connection()),
        upstream_connection_options: Some(keepalive::tcp()),
        upstream_bind_config: Some(keepalive::unacknowledged_data_limit()),
        ..Cluster::default()
    };
    // Not for passthrough, where the host of each request selects the endpoint.
    let choosing = Cluster {
        outlier_detection: limits.outlier_detection(),
        // An ejected endpoint receives nothing (docs/decisions/0037).
        common_lb_config: never_panic(),
        ..plain.clone()
    };
    match (external.resolution, &external.hostname) {
        (Resolution::Dns, Some(hostname)) => Cluster {
            cluster_discovery_type: Some(by_dns()),
            load_assignment: Some(ClusterLoadAssignment {
                cluster_name: service_port.to_string(),
                endpoints: vec![LocalityLbEndpoints {
                    lb_endpoints: vec![lb_endpoint_at(hostname.to_string(), port.target, 1)],
                    ..LocalityLbEndpoints::default()
                }],
                ..ClusterLoadAssignment::default()
            }),
            typed_extension_protocol_options: filtered_protocol_options(
                port.protocol,
                limits.per_connection(),
                filters::upstream_filters(own),
            ),
            ..choosing
        },
        (Resolution::Passthrough, _) => passed_through(plain),
        // DNS without a name would be an empty list.
        (Resolution::Static | Resolution::Dns, _) => Cluster {
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
            eds_cluster_config: Some(EdsClusterConfig {
                eds_config: ads(),
                ..EdsClusterConfig::default()
            }),
            ..choosing
        },
    }
}

/// Discovery by DNS.
pub(crate) fn by_dns() -> ClusterDiscoveryType {
    custom("envoy.clusters.dns", any(&looked_up()))
}

/// A cluster in which each request goes to its host.
pub(crate) fn passed_through(plain: Cluster) -> Cluster {
    let cache = ClusterImplementationSpecifier::DnsCacheConfig(cache());
    let config = ClusterConfig {
        cluster_implementation_specifier: Some(cache),
        // Without it Envoy requires TLS.
        allow_insecure_cluster_options: true,
        ..ClusterConfig::default()
    };
    Cluster {
        cluster_discovery_type: Some(custom("envoy.clusters.dynamic_forward_proxy", any(&config))),
        lb_policy: LbPolicy::ClusterProvided.into(),
        ..plain
    }
}

pub(crate) fn custom(name: &str, config: Any) -> ClusterDiscoveryType {
    let custom = CustomClusterType { name: name.to_owned(), typed_config: Some(config) };
    ClusterDiscoveryType::ClusterType(custom)
}

/// Each address is an endpoint for the TTL of the DNS record. IPv6 only without IPv4: machines with
/// both are reachable by either, and most machines with one have IPv4.
pub(crate) fn looked_up() -> DnsCluster {
    DnsCluster {
        respect_dns_ttl: true,
        dns_lookup_family: DnsLookupFamily::V4Preferred.into(),
        ..DnsCluster::default()
    }
}

/// The DNS cache of all calls that go to their host.
pub(crate) fn cache() -> DnsCacheConfig {
    DnsCacheConfig {
        name: "passthrough".to_owned(),
        dns_lookup_family: CachedFamily::V4Preferred.into(),
        ..DnsCacheConfig::default()
    }
}

/// The host to which requests are rewritten: the service's name outside the mesh.
fn host(external: &External, port: &ServicePort) -> Option<String> {
    let hostname = external.hostname.as_ref().filter(|name| !name.is_wildcard())?;
    Some(if port.port == 80 { hostname.to_string() } else { format!("{hostname}:{}", port.port) })
}

/// The routes of an external HTTP port, for a `caller` with some access to it.
pub(crate) fn routes(
    mirrors: Mirrors<'_>,
    caller: &ServiceAccount,
    service: &Service,
    external: &External,
    port: &ServicePort,
) -> Vec<Route> {
    let (to, mesh) = (Destination::to(port.clone()), mirrors.mesh);
    let own_host = host(external, port);
    let host = match &own_host {
        _ if is_passed_through(service) => Host::Kept,
        Some(host) => Host::Other(host),
        None => Host::AsTreated,
    };
    let treatments = mesh.treatments(caller, &service.name);
    let Some(called) = service.port(port.port) else { return Vec::new() };
    let matches = match mesh.allowed(caller, service, called) {
        Allowed::Everything => return to.routes(port, host, &treatments, mirrors),
        Allowed::These(matches) => matches,
    };
    let allowed = to.only_for(&matches).routes(port, host, &treatments, mirrors);
    let text = format!(
        "ironmesh: {CALLER} may not ask this of {}: no traffic target allows it\n",
        service.name
    );
    allowed.into_iter().chain([every_request(answer_naming_caller(403, text))]).collect()
}
