//! Limits that a rate limit service counts. The filter names the service, so it is only in the
//! chains of services with such a limit. The descriptors of a request are part of the routes.

use ironmesh_catalog::{
    Descriptor, DescriptorEntry, GlobalHttpLimit, HeaderCondition, HeaderPattern, Protocol,
    RateLimitService,
};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{ApiVersion, GrpcService};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LocalityLbEndpoints,
};
use ironmesh_xds_wire::pb::envoy::config::ratelimit::v3::RateLimitServiceConfig;
use ironmesh_xds_wire::pb::envoy::config::route::v3::rate_limit::Action;
use ironmesh_xds_wire::pb::envoy::config::route::v3::rate_limit::action::{
    ActionSpecifier, GenericKey, HeaderValueMatch, RemoteAddress, RequestHeaders,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    HeaderMatcher, RateLimit as RouteRateLimit, header_matcher::HeaderMatchSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::ratelimit::v3::{
    RateLimit, rate_limit::XRateLimitHeadersRfcVersion,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{
    StringMatcher, string_matcher::MatchPattern,
};
use ironmesh_xds_wire::pb::envoy::r#type::v3::HttpStatus;
use ironmesh_xds_wire::pb::google::protobuf::BoolValue;

use crate::external;
use crate::http::{http_filter, protocol_options};
use crate::limits::{duration, unlimited};
use crate::shape::{CONNECT_TIMEOUT, exact, lb_endpoint_at, regex};

/// The cluster of a rate limit service.
pub(crate) fn cluster(service: &RateLimitService) -> Cluster {
    let name = cluster_name(service);
    let is_address = service.host.parse::<std::net::IpAddr>().is_ok();
    Cluster {
        name: name.clone(),
        cluster_discovery_type: Some(if is_address {
            ClusterDiscoveryType::Type(DiscoveryType::Static.into())
        } else {
            external::by_dns()
        }),
        connect_timeout: Some(CONNECT_TIMEOUT),
        circuit_breakers: unlimited(),
        typed_extension_protocol_options: protocol_options(Protocol::Http2, None),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name,
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![lb_endpoint_at(service.host.to_string(), service.port, 1)],
                ..LocalityLbEndpoints::default()
            }],
            ..ClusterLoadAssignment::default()
        }),
        ..Cluster::default()
    }
}

/// The filter that asks the service about requests.
pub(crate) fn http_filter_of(limit: &GlobalHttpLimit) -> HttpFilter {
    let headers = if limit.enable_x_rate_limit_headers {
        XRateLimitHeadersRfcVersion::DraftVersion03
    } else {
        XRateLimitHeadersRfcVersion::Off
    };
    let filter = RateLimit {
        domain: limit.domain.to_string(),
        timeout: Some(duration(limit.timeout)),
        failure_mode_deny: !limit.fail_open,
        rate_limit_service: Some(grpc_service_config(&limit.service)),
        enable_x_ratelimit_headers: headers.into(),
        rate_limited_status: Some(HttpStatus { code: i32::from(limit.status) }),
        ..RateLimit::default()
    };
    http_filter("envoy.filters.http.ratelimit", any(&filter))
}

/// The descriptors of requests, for a virtual host or a route.
pub(crate) fn descriptors(all: &[Descriptor]) -> Vec<RouteRateLimit> {
    let rate_limit = |Descriptor(entries): &Descriptor| RouteRateLimit {
        actions: entries.iter().map(action).collect(),
        ..RouteRateLimit::default()
    };
    all.iter().map(rate_limit).collect()
}

fn cluster_name(service: &RateLimitService) -> String {
    format!("rate-limit|{}|{}", service.host, service.port)
}

pub(super) fn grpc_service_config(service: &RateLimitService) -> RateLimitServiceConfig {
    let grpc = EnvoyGrpc {
        cluster_name: cluster_name(service),
        // The default would be the cluster's name, which is no valid host, and which servers
        // reject.
        authority: service.to_string(),
        ..EnvoyGrpc::default()
    };
    RateLimitServiceConfig {
        grpc_service: Some(GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(grpc)),
            ..GrpcService::default()
        }),
        transport_api_version: ApiVersion::V3.into(),
    }
}

fn action(entry: &DescriptorEntry) -> Action {
    let specifier = match entry {
        DescriptorEntry::GenericKey { key, value } => ActionSpecifier::GenericKey(GenericKey {
            descriptor_value: value.to_string(),
            descriptor_key: key.as_deref().unwrap_or_default().to_owned(),
            ..GenericKey::default()
        }),
        DescriptorEntry::RemoteAddress => ActionSpecifier::RemoteAddress(RemoteAddress {}),
        DescriptorEntry::RequestHeader { name, key } => {
            ActionSpecifier::RequestHeaders(RequestHeaders {
                header_name: name.to_string(),
                descriptor_key: key.to_string(),
                ..RequestHeaders::default()
            })
        }
        DescriptorEntry::HeaderValueMatch { key, value, headers, expect_match } => {
            ActionSpecifier::HeaderValueMatch(HeaderValueMatch {
                descriptor_value: value.to_string(),
                descriptor_key: key.as_deref().unwrap_or_default().to_owned(),
                expect_match: Some(BoolValue { value: *expect_match }),
                headers: headers.iter().map(condition).collect(),
                ..HeaderValueMatch::default()
            })
        }
    };
    Action { action_specifier: Some(specifier) }
}

fn condition(HeaderCondition { name, pattern }: &HeaderCondition) -> HeaderMatcher {
    let text = |pattern| {
        HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ..StringMatcher::default()
        })
    };
    let specifier = match pattern {
        HeaderPattern::Exact(value) => HeaderMatchSpecifier::StringMatch(exact(&**value)),
        HeaderPattern::Prefix(value) => text(MatchPattern::Prefix(value.to_string())),
        HeaderPattern::Suffix(value) => text(MatchPattern::Suffix(value.to_string())),
        HeaderPattern::Contains(value) => text(MatchPattern::Contains(value.to_string())),
        HeaderPattern::Regex(value) => HeaderMatchSpecifier::StringMatch(regex(value.to_string())),
        HeaderPattern::Present(is_there) => HeaderMatchSpecifier::PresentMatch(*is_there),
    };
    HeaderMatcher {
        name: name.to_string(),
        header_match_specifier: Some(specifier),
        ..HeaderMatcher::default()
    }
}
