//! Collectors: their clusters, and the gRPC services of Envoy's loggers and tracers.

use std::net::IpAddr;

use ironmesh_catalog::{Collector, Protocol};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType,
};
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster, circuit_breakers,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::GrpcService;
use ironmesh_xds_wire::pb::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::google::protobuf::Duration;

use crate::external::{custom, looked_up};
use crate::http::protocol_options;
use crate::shape::{CONNECT_TIMEOUT, lb_endpoint_at, number};

/// The time that a collector may take to answer. After it the batch is lost.
const TIMEOUT: Duration = Duration { seconds: 10, nanos: 0 };

/// The maximum number of batches in flight or waiting for a connection. More are dropped, so that a
/// silent collector costs a limited amount of memory.
const MAX_BATCHES: u32 = 64;

/// The cluster of a collector: HTTP/2 in plaintext.
pub(crate) fn cluster(collector: &Collector) -> Cluster {
    let is_address = collector.host.parse::<IpAddr>().is_ok();
    let discovery = if is_address {
        ClusterDiscoveryType::Type(DiscoveryType::Static.into())
    } else {
        custom("envoy.clusters.dns", any(&looked_up()))
    };
    let name = cluster_name(collector);
    let bounds = circuit_breakers::Thresholds {
        max_connections: number(MAX_BATCHES),
        max_pending_requests: number(MAX_BATCHES),
        max_requests: number(MAX_BATCHES),
        ..circuit_breakers::Thresholds::default()
    };
    Cluster {
        name: name.clone(),
        cluster_discovery_type: Some(discovery),
        connect_timeout: Some(CONNECT_TIMEOUT),
        circuit_breakers: Some(CircuitBreakers {
            thresholds: vec![bounds],
            ..CircuitBreakers::default()
        }),
        typed_extension_protocol_options: protocol_options(Protocol::Grpc, None),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name,
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![lb_endpoint_at(collector.host.to_string(), collector.port, 1)],
                ..LocalityLbEndpoints::default()
            }],
            ..ClusterLoadAssignment::default()
        }),
        ..Cluster::default()
    }
}

/// A collector as the target of a gRPC client of Envoy.
pub(super) fn grpc_service(collector: &Collector) -> GrpcService {
    let envoy = EnvoyGrpc {
        cluster_name: cluster_name(collector),
        // The default would be the cluster's name, which is no authority: servers reject it.
        authority: collector.to_string(),
        ..EnvoyGrpc::default()
    };
    GrpcService {
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(envoy)),
        timeout: Some(TIMEOUT),
        ..GrpcService::default()
    }
}

fn cluster_name(collector: &Collector) -> String {
    format!("telemetry|{collector}")
}
