//! What a proxy tells the control plane of its traffic: who calls what strict would deny, in audit.
//!
//! Of HTTP the proxy knows it, as the rules of strict judge in the shadow of those that are enforced. So
//! it can always be asked to tell what these deny, which is nothing where they are not there; and no
//! listener differs between the modes. Of TCP nothing is judged but the handshake: there each connection
//! of a port in audit is told of, and the control plane judges (docs/decisions/0029).

use ironmesh_sidecar::envoy::CONTROL_PLANE_CLUSTER;
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use ironmesh_xds_wire::pb::envoy::config::accesslog::v3::{
    AccessLog, AccessLogFilter, LogTypeFilter, MetadataFilter, access_log,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    ApiVersion, GrpcService,
    grpc_service::{EnvoyGrpc, TargetSpecifier},
};
use ironmesh_xds_wire::pb::envoy::data::accesslog::v3::AccessLogType;
use ironmesh_xds_wire::pb::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::TcpAccessLogOptions;
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{
    MetadataMatcher, ValueMatcher, metadata_matcher, value_matcher::MatchPattern,
};
use ironmesh_xds_wire::pb::google::protobuf::{Any, Duration};

use crate::authorization::{RBAC_FILTER, SHADOW};
use crate::shape::{exact, no, number};

/// The name of the log: one for all that is told, so that a worker of Envoy has one stream for it and not
/// one for each service port.
const LOG: &str = "ironmesh-audit";

/// How long Envoy collects before it tells, and how many bytes (about) at most.
const FLUSH_INTERVAL: Duration = Duration { seconds: 1, nanos: 0 };
const BUFFER_SIZE: u32 = 16 << 10;

/// When a TCP connection is told of: a long one at its beginning.
pub(crate) const WHEN_CONNECTED: TcpAccessLogOptions = TcpAccessLogOptions {
    access_log_flush_interval: None,
    flush_access_log_on_connected: true,
    flush_access_log_on_start: false,
};

/// Tells of the requests that the rules in the shadow deny.
pub(crate) fn http() -> AccessLog {
    let key = metadata_matcher::path_segment::Segment::Key(format!("{SHADOW}shadow_engine_result"));
    let denied = MetadataMatcher {
        filter: RBAC_FILTER.to_owned(),
        path: vec![metadata_matcher::PathSegment { segment: Some(key) }],
        value: Some(ValueMatcher {
            match_pattern: Some(MatchPattern::StringMatch(exact("denied"))),
        }),
        ..MetadataMatcher::default()
    };
    let filter = FilterSpecifier::MetadataFilter(MetadataFilter {
        matcher: Some(denied),
        match_if_key_not_found: no(),
    });
    let config = HttpGrpcAccessLogConfig { common_config: Some(common()), ..Default::default() };
    log("envoy.access_loggers.http_grpc", filter, any(&config))
}

/// Tells of each connection, when its application has been reached.
pub(crate) fn tcp() -> AccessLog {
    let types = vec![AccessLogType::TcpUpstreamConnected.into()];
    let filter = FilterSpecifier::LogTypeFilter(LogTypeFilter { types, exclude: false });
    let config = TcpGrpcAccessLogConfig { common_config: Some(common()) };
    log("envoy.access_loggers.tcp_grpc", filter, any(&config))
}

fn log(name: &str, filter: FilterSpecifier, config: Any) -> AccessLog {
    AccessLog {
        name: name.to_owned(),
        filter: Some(AccessLogFilter { filter_specifier: Some(filter) }),
        config_type: Some(access_log::ConfigType::TypedConfig(config)),
    }
}

/// To the control plane, over the connection's own mutual TLS.
fn common() -> CommonGrpcAccessLogConfig {
    let control_plane =
        EnvoyGrpc { cluster_name: CONTROL_PLANE_CLUSTER.to_owned(), ..EnvoyGrpc::default() };
    CommonGrpcAccessLogConfig {
        log_name: LOG.to_owned(),
        grpc_service: Some(GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(control_plane)),
            ..GrpcService::default()
        }),
        transport_api_version: ApiVersion::V3.into(),
        buffer_flush_interval: Some(FLUSH_INTERVAL),
        buffer_size_bytes: number(BUFFER_SIZE),
        ..CommonGrpcAccessLogConfig::default()
    }
}
