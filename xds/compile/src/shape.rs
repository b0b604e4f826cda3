//! Small parts of Envoy messages that several resources use, as `Option`s, because prost has every
//! message field as one.

#![expect(clippy::unnecessary_wraps, reason = "message fields are options")]

use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::{Health, IpRange, Name, TrustDomain};
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
use ironmesh_xds_wire::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use ironmesh_xds_wire::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, CidrRange, ConfigSource, HealthStatus, Metadata,
    SocketAddress, TransportSocket, address, transport_socket,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{Endpoint, LbEndpoint, lb_endpoint};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::{Filter, Listener, filter};
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use ironmesh_xds_wire::pb::envoy::r#type::v3::Percent;
use ironmesh_xds_wire::pb::google::protobuf::{
    Any, BoolValue, Duration, Struct, UInt32Value, Value, value::Kind,
};

/// The time limit for connecting to an endpoint.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration { seconds: 5, nanos: 0 };

/// No time limit, in place of Envoy's default.
pub(crate) const NO_TIMEOUT: Duration = Duration { seconds: 0, nanos: 0 };

/// Metadata of the mesh itself, with one entry.
pub(crate) fn own_metadata(key: &str, value: Kind) -> Option<Metadata> {
    let value = Value { kind: Some(value) };
    let own = Struct { fields: [(key.to_owned(), value)].into() };
    Some(Metadata { filter_metadata: [("ironmesh".to_owned(), own)].into(), ..Metadata::default() })
}

pub(crate) fn yes() -> Option<BoolValue> {
    Some(BoolValue { value: true })
}

pub(crate) fn no() -> Option<BoolValue> {
    Some(BoolValue { value: false })
}

pub(crate) fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

pub(crate) fn duration(duration: std::time::Duration) -> Duration {
    // Policy has no duration that is nearly as long.
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Duration { seconds, nanos: duration.subsec_nanos().cast_signed() }
}

pub(crate) fn exact(text: impl Into<String>) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(MatchPattern::Exact(text.into())),
        ..StringMatcher::default()
    }
}

/// Matches every service account of the mesh, but no proxy and not the control plane.
pub(crate) fn workload_prefix(trust_domain: &TrustDomain) -> StringMatcher {
    prefix(trust_domain.workload_prefix())
}

/// Matches every service account of a namespace.
pub(crate) fn namespace_prefix(trust_domain: &TrustDomain, namespace: &Name) -> StringMatcher {
    prefix(trust_domain.namespace_prefix(namespace))
}

pub(crate) fn prefix(text: String) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Prefix(text)), ..StringMatcher::default() }
}

/// Matches a text as a whole.
pub(crate) fn regex(expression: String) -> StringMatcher {
    let regex = RegexMatcher { regex: expression, ..RegexMatcher::default() };
    StringMatcher {
        match_pattern: Some(MatchPattern::SafeRegex(regex)),
        ..StringMatcher::default()
    }
}

/// Discovery on the same stream, by which resources refer to each other.
pub(crate) fn ads() -> Option<ConfigSource> {
    Some(ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    })
}

pub(crate) fn socket_address(host: String, port: u16) -> SocketAddress {
    SocketAddress {
        address: host,
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..SocketAddress::default()
    }
}

/// A range of addresses.
pub(crate) fn cidr(range: IpRange) -> CidrRange {
    CidrRange {
        address_prefix: range.address().to_string(),
        prefix_len: number(range.length().into()),
    }
}

pub(crate) fn socket(address: SocketAddress) -> Option<Address> {
    Some(Address { address: Some(address::Address::SocketAddress(address)) })
}

pub(crate) fn lb_endpoint(at: SocketAddr, weight: u32) -> LbEndpoint {
    lb_endpoint_at(at.ip().to_string(), at.port(), weight)
}

/// An endpoint at an address, or at a name that Envoy looks up.
pub(crate) fn lb_endpoint_at(host: String, port: u16, weight: u32) -> LbEndpoint {
    let address = socket(socket_address(host, port));
    let endpoint = Endpoint { address, ..Endpoint::default() };
    LbEndpoint {
        load_balancing_weight: number(weight),
        host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
        ..LbEndpoint::default()
    }
}

/// The health status of an endpoint for Envoy. Only a healthy one gets new requests and
/// connections; established ones stay.
pub(crate) fn health_status(health: Health) -> i32 {
    match health {
        // As if unspecified.
        Health::Healthy => HealthStatus::Unknown,
        Health::Draining => HealthStatus::Draining,
        Health::Unhealthy => HealthStatus::Unhealthy,
    }
    .into()
}

/// Disables Envoy's panic mode, which sends to all endpoints if less than half of them are healthy
/// (docs/decisions/0032).
pub(crate) fn never_panic() -> Option<CommonLbConfig> {
    Some(CommonLbConfig {
        healthy_panic_threshold: Some(Percent { value: 0.0 }),
        ..CommonLbConfig::default()
    })
}

pub(crate) fn network_filter(name: &str, config: Any) -> Filter {
    Filter { name: name.to_owned(), config_type: Some(filter::ConfigType::TypedConfig(config)) }
}

pub(crate) fn transport_socket(config: Any) -> Option<TransportSocket> {
    Some(TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(config)),
    })
}

/// A listener at one address, which no second process can bind as well.
///
/// With Envoy's default (`SO_REUSEPORT`) two Envoys of one user bind the same port without an error
/// and share its connections, so a mistake would go unnoticed.
pub(crate) fn listener(name: String, ip: IpAddr, port: u16) -> Listener {
    // "All addresses" of IPv6 include those of IPv4; Envoy's default excludes them.
    let ipv4_compat = ip.is_ipv6() && ip.is_unspecified();
    let address = socket(SocketAddress { ipv4_compat, ..socket_address(ip.to_string(), port) });
    Listener { name, address, enable_reuse_port: no(), ..Listener::default() }
}
