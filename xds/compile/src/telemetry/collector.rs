//! Collectors: the clusters through which they are told, and how.

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

/// How long a collector may take to answer. What it was told then is dropped.
const TIMEOUT: Duration = Duration { seconds: 10, nanos: 0 };

/// How many batches are under way or wait for a connection, at most. More are dropped, so that a collector
/// that does not answer costs a bounded amount of memory.
const MOST_BATCHES: u32 = 64;

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
        max_connections: number(MOST_BATCHES),
        max_pending_requests: number(MOST_BATCHES),
        max_requests: number(MOST_BATCHES),
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

/// A collector as who is told by gRPC.
pub(super) fn grpc_service(collector: &Collector) -> GrpcService {
    let envoy = EnvoyGrpc {
        cluster_name: cluster_name(collector),
        // By itself Envoy would say the name of the cluster, which is no authority: servers refuse it.
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
