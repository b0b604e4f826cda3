//! TCP: connections to a service port, or through one to its application.

use std::time::Duration;

use ironmesh_catalog::ServicePort;
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::Filter;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{
    ClusterSpecifier, TunnelingConfig, WeightedCluster, weighted_cluster::ClusterWeight,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, UpstreamConnectMode,
};

use crate::destination::Destination;
use crate::shape::{NO_TIMEOUT, duration, network_filter, number};
use crate::telemetry::ServiceTelemetry;
use crate::{audit_log, held_open};

const TCP_PROXY: &str = "envoy.filters.network.tcp_proxy";

/// The number of connection attempts, on another endpoint if there is one: one retry after a
/// failure.
const CONNECT_ATTEMPTS: u32 = 2;

/// Forwards mesh callers to the application behind `cluster`, after their handshake.
///
/// By default Envoy would connect to the application as soon as a client connects to the proxy: a
/// client rejected in the handshake would receive nothing, but the application would see a
/// connection come and go.
///
/// In audit, each connection is reported once it has reached the application. After `max_duration`,
/// and up to ten percent more, it is closed.
pub(crate) fn to_application(
    stat_prefix: String,
    cluster: String,
    is_audited: bool,
    max_duration: Option<Duration>,
    telemetry: ServiceTelemetry<'_>,
) -> Filter {
    network_filter(
        TCP_PROXY,
        any(&TcpProxy {
            upstream_connect_mode: UpstreamConnectMode::OnDownstreamTlsHandshake.into(),
            // Required with this mode. Early data waits in the socket.
            max_early_data_bytes: number(0),
            access_log: is_audited
                .then(audit_log::tcp)
                .into_iter()
                .chain(telemetry.connection_log())
                .collect(),
            access_log_options: is_audited.then_some(audit_log::WHEN_CONNECTED),
            max_downstream_connection_duration: max_duration.map(duration),
            max_downstream_connection_duration_jitter_percentage: max_duration
                .map(|_| held_open::JITTER),
            ..proxy(stat_prefix, ClusterSpecifier::Cluster(cluster))
        }),
    )
}

/// Forwards counted connections to the application behind `cluster`, without waiting for a
/// handshake.
pub(crate) fn to_counted_application(stat_prefix: String, cluster: String) -> Filter {
    let proxy = proxy(stat_prefix, ClusterSpecifier::Cluster(cluster));
    network_filter(TCP_PROXY, any(&proxy))
}

/// Forwards connections to `destination`; `None` if that has no backends.
pub(crate) fn to_destination(
    stat_prefix: String,
    destination: &Destination,
    telemetry: ServiceTelemetry<'_>,
) -> Option<Filter> {
    let weight = |(port, weight): &(ServicePort, u32)| ClusterWeight {
        name: port.to_string(),
        weight: *weight,
        ..ClusterWeight::default()
    };
    let clusters = match destination.unconditional() {
        [] => return None,
        [(port, _)] => ClusterSpecifier::Cluster(port.to_string()),
        several => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: several.iter().map(weight).collect(),
        }),
    };
    let access_log = telemetry.connection_log().into_iter().collect();
    let proxy = TcpProxy { access_log, ..proxy(stat_prefix, clusters) };
    Some(network_filter(TCP_PROXY, any(&proxy)))
}

/// Forwards connections by CONNECT to `authority` through `cluster`.
pub(crate) fn by_connect(stat_prefix: String, cluster: String, authority: String) -> Filter {
    let tunneling = TunnelingConfig { hostname: authority, ..TunnelingConfig::default() };
    let to_cluster = proxy(stat_prefix, ClusterSpecifier::Cluster(cluster));
    let config = TcpProxy { tunneling_config: Some(tunneling), ..to_cluster };
    network_filter(TCP_PROXY, any(&config))
}

fn proxy(stat_prefix: String, clusters: ClusterSpecifier) -> TcpProxy {
    TcpProxy {
        stat_prefix,
        cluster_specifier: Some(clusters),
        max_connect_attempts: number(CONNECT_ATTEMPTS),
        // A connection may be silent as long as its two ends like; Envoy would end it after 1 h.
        idle_timeout: Some(NO_TIMEOUT),
        ..TcpProxy::default()
    }
}
