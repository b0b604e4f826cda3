//! TCP: bytes that go to a service port, or through one to its application.

use ironmesh_catalog::ServicePort;
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::Filter;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{
    ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight,
};

use crate::outbound::Destination;
use crate::shape::{NO_TIMEOUT, network_filter, number};

/// How often a connection is tried, on another endpoint if there is one: once again after a failure.
const CONNECT_ATTEMPTS: u32 = 2;

/// Sends what comes to `cluster`.
pub(crate) fn to_cluster(stat_prefix: String, cluster: String) -> Filter {
    proxy(stat_prefix, ClusterSpecifier::Cluster(cluster))
}

/// Sends what comes to `destination`; none if that is nowhere.
pub(crate) fn to_destination(stat_prefix: String, destination: &Destination) -> Option<Filter> {
    let weight = |(port, weight): &(ServicePort, u32)| ClusterWeight {
        name: port.to_string(),
        weight: *weight,
        ..ClusterWeight::default()
    };
    let clusters = match destination {
        Destination::Nowhere => return None,
        Destination::One(port) => ClusterSpecifier::Cluster(port.to_string()),
        Destination::Split(backends) => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: backends.iter().map(weight).collect(),
        }),
    };
    Some(proxy(stat_prefix, clusters))
}

fn proxy(stat_prefix: String, clusters: ClusterSpecifier) -> Filter {
    let proxy = TcpProxy {
        stat_prefix,
        cluster_specifier: Some(clusters),
        max_connect_attempts: number(CONNECT_ATTEMPTS),
        // A connection may be silent for as long as its two ends like; Envoy would end it after 1 h.
        idle_timeout: Some(NO_TIMEOUT),
        ..TcpProxy::default()
    };
    network_filter("envoy.filters.network.tcp_proxy", any(&proxy))
}
