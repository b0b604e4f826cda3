//! TCP connections that a rate limit service counts.
//!
//! Envoy's filter holds a connection back while it asks the service. The TCP proxy behind it here
//! waits for the handshake, so that the application never sees rejected callers. If the handshake
//! ends first, the TCP proxy finds no route yet and ends the connection (seen on Envoy 1.40). So
//! the two are separate: after the handshake, a connection goes through a socket of the proxy's own
//! to a second listener, which asks, and leads to the application.

use std::sync::Arc;

use ironmesh_catalog::{GlobalTcpLimit, Proxy, ServiceName, ServicePort};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{Address, Pipe, TrafficDirection, address};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use ironmesh_xds_wire::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ironmesh_xds_wire::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::ratelimit::v3::RateLimit;

use super::global;
use crate::limits::{duration, unlimited};
use crate::names::{counted_cluster, counted_listener, local_cluster};
use crate::shape::{CONNECT_TIMEOUT, network_filter};
use crate::{inbound, tcp};

/// The cluster of [`listener`].
pub(crate) fn cluster(proxy: &Proxy, port: &ServicePort) -> Cluster {
    let name = counted_cluster(port);
    let endpoint = Endpoint { address: Some(socket(proxy, port)), ..Endpoint::default() };
    Cluster {
        name: name.clone(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        connect_timeout: Some(CONNECT_TIMEOUT),
        circuit_breakers: unlimited(),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name,
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![LbEndpoint {
                    host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
                    ..LbEndpoint::default()
                }],
                ..LocalityLbEndpoints::default()
            }],
            ..ClusterLoadAssignment::default()
        }),
        ..Cluster::default()
    }
}

/// The listener that counts connections of a port, and forwards them to the application.
pub(crate) fn listener(proxy: &Proxy, port: &ServicePort, limit: &GlobalTcpLimit) -> Listener {
    let prefix = format!("counted_{}", inbound::stat_prefix(port));
    let filters = vec![
        filter(limit, prefix.clone()),
        tcp::to_counted_application(prefix, local_cluster(port)),
    ];
    Listener {
        // It sorts before the listener that leads to it: Envoy adds listeners in the order of
        // names.
        name: counted_listener(port),
        address: Some(socket(proxy, port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        filter_chains: vec![FilterChain { filters, ..FilterChain::default() }],
        ..Listener::default()
    }
}

/// A socket of this proxy alone, without a file (an abstract one of Linux). Its name may have 107
/// bytes. Names of services are too long, so it contains the position of the service in the proxy's
/// list.
fn socket(proxy: &Proxy, port: &ServicePort) -> Address {
    let ServicePort { service, port } = port;
    let is_it = |one: &ServiceName| one == service;
    let number = proxy.record.services.iter().position(is_it).unwrap_or_default();
    let path = format!("@ironmesh/{}/{number}/{port}", proxy.record.id);
    Address { address: Some(address::Address::Pipe(Pipe { path, mode: 0 })) }
}

fn filter(limit: &GlobalTcpLimit, stat_prefix: String) -> Filter {
    let entry = |(key, value): &(Arc<str>, Arc<str>)| Entry {
        key: key.to_string(),
        value: value.to_string(),
    };
    let descriptor = |entries: &Vec<_>| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    };
    let filter = RateLimit {
        stat_prefix,
        domain: limit.domain.to_string(),
        descriptors: limit.descriptors.iter().map(descriptor).collect(),
        timeout: Some(duration(limit.timeout)),
        failure_mode_deny: !limit.fail_open,
        rate_limit_service: Some(global::grpc_service_config(&limit.service)),
    };
    network_filter("envoy.filters.network.ratelimit", any(&filter))
}
