//! The audit log: how a proxy reports to the control plane which calls strict would deny.
//!
//! For HTTP, the proxy evaluates the rules of strict as shadow rules. So it can always have a log
//! of what these deny, which is nothing without them, and no listener differs between the modes.
//! For TCP there are no rules except the handshake: the proxy reports each connection of a port in
//! audit, and the control plane evaluates it (docs/decisions/0029).

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

use crate::rbac::{RBAC_FILTER, SHADOW};
use crate::shape::{exact, no, number};

/// The name of the log. All service ports share it, so that a worker of Envoy has one stream
/// instead of one per port.
const LOG: &str = "ironmesh-audit";

/// The interval at which Envoy sends entries, and the approximate maximum of bytes until then.
const FLUSH_INTERVAL: Duration = Duration { seconds: 1, nanos: 0 };
const BUFFER_SIZE: u32 = 16 << 10;

/// When a TCP connection is reported: on connect, because it may last long.
pub(crate) const WHEN_CONNECTED: TcpAccessLogOptions = TcpAccessLogOptions {
    access_log_flush_interval: None,
    flush_access_log_on_connected: true,
    flush_access_log_on_start: false,
};

/// Logs the requests that the shadow rules deny.
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

/// Logs each connection that has reached its application.
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

/// Sends the log to the control plane, over the connection's own mutual TLS.
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
