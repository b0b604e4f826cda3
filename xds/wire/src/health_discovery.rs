//! Health discovery messages of a client (`envoy.service.health.v3`), reduced to the fields in use.

use std::net::SocketAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{
    Address, HealthStatus, address, socket_address::PortSpecifier,
};
use envoy_types::pb::envoy::service::health::v3 as hds;
use hds::health_check_request_or_endpoint_health_response::RequestType;

use crate::node::Node;

/// One message of a health discovery stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthMessage {
    /// The first one: the client.
    Request(Option<Node>),
    /// The health of all endpoints that the client probes. None of it is verified.
    Report(Vec<EndpointReport>),
}

/// An endpoint that a client probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointReport {
    /// The cluster of its health check. The endpoints of a cluster share its name.
    pub cluster: Arc<str>,
    /// Its address; none if it is not an IP address with a port.
    pub address: Option<SocketAddr>,
    /// The result of its health check.
    pub result: ProbeResult,
}

/// The result of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// It passes.
    Passing,
    /// It fails, or no probe has ended yet.
    Failing,
    /// It fails: the last probe got no answer in time.
    TimedOut,
}

impl From<hds::HealthCheckRequestOrEndpointHealthResponse> for HealthMessage {
    fn from(message: hds::HealthCheckRequestOrEndpointHealthResponse) -> Self {
        match message.request_type {
            Some(RequestType::HealthCheckRequest(request)) => {
                Self::Request(request.node.map(Node::from))
            }
            Some(RequestType::EndpointHealthResponse(report)) => Self::Report(
                report.cluster_endpoints_health.into_iter().flat_map(cluster).collect(),
            ),
            // An Envoy that probes nothing reports nothing.
            None => Self::Report(Vec::new()),
        }
    }
}

fn cluster(report: hds::ClusterEndpointsHealth) -> impl Iterator<Item = EndpointReport> {
    let name = Arc::<str>::from(report.cluster_name);
    let endpoints =
        report.locality_endpoints_health.into_iter().flat_map(|one| one.endpoints_health);
    endpoints.map(move |one| EndpointReport {
        cluster: Arc::clone(&name),
        result: result(one.health_status()),
        address: one.endpoint.and_then(|endpoint| socket_address(endpoint.address?)),
    })
}

fn result(status: HealthStatus) -> ProbeResult {
    match status {
        // A degraded endpoint has passed, and asks for fewer requests by a header.
        HealthStatus::Healthy | HealthStatus::Degraded => ProbeResult::Passing,
        HealthStatus::Timeout => ProbeResult::TimedOut,
        HealthStatus::Unknown | HealthStatus::Unhealthy | HealthStatus::Draining => {
            ProbeResult::Failing
        }
    }
}

fn socket_address(address: Address) -> Option<SocketAddr> {
    match address.address? {
        address::Address::SocketAddress(socket) => match socket.port_specifier? {
            PortSpecifier::PortValue(port) => {
                Some(SocketAddr::new(socket.address.parse().ok()?, port.try_into().ok()?))
            }
            PortSpecifier::NamedPort(_) => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::SocketAddress;
    use envoy_types::pb::envoy::config::endpoint::v3::Endpoint;

    use super::*;

    fn endpoint(address: &str, port: u32, status: HealthStatus) -> hds::EndpointHealth {
        let socket = SocketAddress {
            address: address.to_owned(),
            port_specifier: Some(PortSpecifier::PortValue(port)),
            ..SocketAddress::default()
        };
        let address = Address { address: Some(address::Address::SocketAddress(socket)) };
        let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
        hds::EndpointHealth {
            endpoint: Some(endpoint),
            health_status: status.into(),
            ..hds::EndpointHealth::default()
        }
    }

    #[test]
    fn report_is_read_with_malformed_addresses() {
        let endpoints_health = vec![
            endpoint("127.0.0.1", 8080, HealthStatus::Healthy),
            endpoint("::1", 8080, HealthStatus::Timeout),
            endpoint("store", 8080, HealthStatus::Unhealthy),
            endpoint("127.0.0.1", 99_999, HealthStatus::Healthy),
            hds::EndpointHealth::default(),
        ];
        let locality = hds::LocalityEndpointsHealth { endpoints_health, locality: None };
        let cluster = hds::ClusterEndpointsHealth {
            cluster_name: "store".to_owned(),
            locality_endpoints_health: vec![locality],
        };
        let report = hds::EndpointHealthResponse {
            cluster_endpoints_health: vec![cluster],
            ..hds::EndpointHealthResponse::default()
        };
        let message = hds::HealthCheckRequestOrEndpointHealthResponse {
            request_type: Some(RequestType::EndpointHealthResponse(report)),
        };
        let HealthMessage::Report(read) = HealthMessage::from(message) else { panic!("a report") };
        let names = || read.iter().map(|one| &one.cluster);
        assert!(names().zip(names().skip(1)).all(|(one, next)| Arc::ptr_eq(one, next)));
        let read: Vec<_> = read.iter().map(|one| (one.address, one.result)).collect();
        let expected = [
            (Some("127.0.0.1:8080".parse().unwrap()), ProbeResult::Passing),
            (Some("[::1]:8080".parse().unwrap()), ProbeResult::TimedOut),
            (None, ProbeResult::Failing),
            (None, ProbeResult::Passing),
            (None, ProbeResult::Failing),
        ];
        assert_eq!(read, expected);
        let empty = hds::HealthCheckRequestOrEndpointHealthResponse::default();
        assert_eq!(HealthMessage::from(empty), HealthMessage::Report(Vec::new()));
    }
}
