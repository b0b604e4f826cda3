//! HTTP connection managers, routes and protocol options, common to all listeners and clusters.

use std::collections::HashMap;
use std::time::Duration;

use ironmesh_catalog::{EscapedSlashes, Protocol};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    DataSource, Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions as CommonOptions,
    data_source::Specifier, http_protocol_options::HeadersWithUnderscoresAction,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::Filter;
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteAction, RouteMatch, route, route_match,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::grpc_web::v3::GrpcWeb;
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::router::v3::Router;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    CodecType, ForwardClientCertDetails, PathWithEscapedSlashesAction, RouteSpecifier,
    ServerHeaderTransformation, SetCurrentClientCertDetails, UpgradeConfig,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_filter,
};
use ironmesh_xds_wire::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use ironmesh_xds_wire::pb::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
};
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::RegexMatcher;
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::shape::{NO_TIMEOUT, ads, network_filter, no, yes};
use crate::telemetry::ServiceTelemetry;
use crate::{audit_log, held_open, keepalive, overrides, treatment};

/// The kind of callers of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Other proxies.
    Inbound {
        /// The maximum duration of a connection and of a request.
        max_duration: Option<Duration>,
    },
    /// The proxy's own applications.
    Outbound,
    /// The same, on the listener that routes by `Host`, which also accepts CONNECT.
    ByHost,
    /// Callers outside the mesh.
    Ingress {
        /// Whether callers show a certificate.
        has_certificate: bool,
        /// As for [`Self::Inbound`].
        max_duration: Option<Duration>,
    },
}

/// An HTTP connection manager with the routes of `route_configuration` by RDS.
///
/// Every connection manager normalizes paths, merges slashes and rejects escaped slashes unless the
/// service keeps them: otherwise `/books/../admin` would pass a grant on `/books/.*`.
pub(crate) fn connection_manager(
    side: Side,
    escaped_slashes: EscapedSlashes,
    stat_prefix: String,
    route_configuration: String,
    filters: Vec<HttpFilter>,
    telemetry: ServiceTelemetry<'_>,
) -> Filter {
    // Routes configure what these filters do, so that a change touches no listener.
    let is_own_application = matches!(side, Side::Outbound | Side::ByHost);
    let of_routes = is_own_application.then(|| {
        let [put_back, take_off] = overrides::filters();
        [treatment::no_fault(), put_back, take_off]
    });
    // Headers by which Envoy describes itself are for the mesh only.
    let suppress_envoy_headers = matches!(side, Side::Ingress { .. });
    let router = Router { suppress_envoy_headers, ..Router::default() };
    let router = http_filter("envoy.filters.http.router", any(&router));
    let manager = HttpConnectionManager {
        codec_type: CodecType::Auto.into(),
        stat_prefix,
        http_filters: of_routes.into_iter().flatten().chain(filters).chain([router]).collect(),
        http2_protocol_options: Some(http2()),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: ads(),
            route_config_name: route_configuration,
        })),
        use_remote_address: no(),
        // Removes headers for Envoy before anything reads them: by `x-envoy-max-retries`,
        // `x-envoy-upstream-rq-timeout-ms` and similar, callers could bypass policy. (Envoy itself
        // removes some of them, unless `x-forwarded-for` names an address that it trusts. It trusts
        // none without `internal_address_config`, and all private ones if that is empty.)
        early_header_mutation_extensions: vec![overrides::strip_envoy_headers(is_own_application)],
        normalize_path: yes(),
        merge_slashes: true,
        path_with_escaped_slashes_action: match escaped_slashes {
            EscapedSlashes::Reject => PathWithEscapedSlashesAction::RejectRequest,
            EscapedSlashes::Keep => PathWithEscapedSlashesAction::KeepUnchanged,
        }
        .into(),
        // A stream may be silent as long as its two ends like; Envoy would end it after 5 min.
        stream_idle_timeout: Some(NO_TIMEOUT),
        // The application's `server` header passes unchanged.
        server_header_transformation: ServerHeaderTransformation::PassThrough.into(),
        upgrade_configs: vec![upgrade("websocket")],
        tracing: telemetry.tracing(),
        access_log: telemetry.request_log().into_iter().collect(),
        ..HttpConnectionManager::default()
    };
    // For callers: an application with CGI rules reads `x_forwarded_client_cert` as
    // `x-forwarded-client-cert`, which only the sidecar may set.
    let manager = if is_own_application {
        manager
    } else {
        let options = CommonOptions {
            headers_with_underscores_action: HeadersWithUnderscoresAction::DropHeader.into(),
            ..manager.common_http_protocol_options.unwrap_or_default()
        };
        HttpConnectionManager { common_http_protocol_options: Some(options), ..manager }
    };
    let manager = match side {
        Side::Outbound => manager,
        Side::ByHost => HttpConnectionManager {
            upgrade_configs: vec![upgrade("websocket"), upgrade("CONNECT")],
            ..manager
        },
        // The caller's claim of identity is removed and set from its certificate.
        Side::Inbound { max_duration } => HttpConnectionManager {
            access_log: [audit_log::http()].into_iter().chain(manager.access_log.clone()).collect(),
            forward_client_cert_details: ForwardClientCertDetails::SanitizeSet.into(),
            set_current_client_cert_details: Some(SetCurrentClientCertDetails {
                uri: true,
                ..SetCurrentClientCertDetails::default()
            }),
            ..held_open::limit_mesh_callers(manager, max_duration)
        },
        Side::Ingress { has_certificate, max_duration } => {
            // As for the mesh's own callers. Callers from outside may be known by DNS names alone.
            let details =
                SetCurrentClientCertDetails { uri: true, dns: true, ..Default::default() };
            HttpConnectionManager {
                forward_client_cert_details: if has_certificate {
                    ForwardClientCertDetails::SanitizeSet
                } else {
                    ForwardClientCertDetails::Sanitize
                }
                .into(),
                set_current_client_cert_details: has_certificate.then_some(details),
                ..held_open::limit_ingress_callers(manager, max_duration)
            }
        }
    };
    network_filter("envoy.filters.network.http_connection_manager", any(&manager))
}

fn upgrade(name: &str) -> UpgradeConfig {
    UpgradeConfig { upgrade_type: name.to_owned(), ..UpgradeConfig::default() }
}

pub(crate) fn http_filter(name: &str, config: Any) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(config)),
        ..HttpFilter::default()
    }
}

/// Converts gRPC-Web to gRPC, and passes gRPC unchanged.
pub(crate) fn grpc_web() -> HttpFilter {
    http_filter("envoy.filters.http.grpc_web", any(&GrpcWeb {}))
}

/// The route of all requests.
pub(crate) fn every_request(action: route::Action) -> Route {
    let path = route_match::PathSpecifier::Prefix("/".to_owned());
    Route {
        r#match: Some(RouteMatch { path_specifier: Some(path), ..RouteMatch::default() }),
        action: Some(action),
        ..Route::default()
    }
}

/// Rejects requests with escaped slashes in their path, like a connection manager that does not
/// keep them.
pub(crate) fn reject_escaped_slashes() -> Route {
    let path = route_match::PathSpecifier::SafeRegex(RegexMatcher {
        regex: "(?s:.*)%(?:2[fF]|5[cC])(?s:.*)".to_owned(),
        ..RegexMatcher::default()
    });
    let body = "ironmesh: the service takes no escaped slashes in paths\n".to_owned();
    Route {
        r#match: Some(RouteMatch { path_specifier: Some(path), ..RouteMatch::default() }),
        action: Some(answer(400, body)),
        ..Route::default()
    }
}

/// Forwards without a time limit unless one is given (Envoy's own would be 15 s).
pub(crate) fn forward(action: RouteAction) -> route::Action {
    route::Action::Route(RouteAction { timeout: action.timeout.or(Some(NO_TIMEOUT)), ..action })
}

/// Responds without an upstream.
pub(crate) fn answer(status: u32, body: String) -> route::Action {
    let body =
        DataSource { specifier: Some(Specifier::InlineString(body)), ..DataSource::default() };
    route::Action::DirectResponse(DirectResponseAction {
        status,
        body: Some(body),
        ..Default::default()
    })
}

/// The protocol options of a cluster that uses `protocol`, with the limits per connection.
pub(crate) fn protocol_options(
    protocol: Protocol,
    per_connection: Option<CommonOptions>,
) -> HashMap<String, Any> {
    options(protocol, per_connection, http2(), Vec::new())
}

/// The same for a cluster with upstream filters, which run once per attempt.
pub(crate) fn filtered_protocol_options(
    protocol: Protocol,
    per_connection: Option<CommonOptions>,
    filters: Vec<HttpFilter>,
) -> HashMap<String, Any> {
    options(protocol, per_connection, http2(), filters)
}

/// The same for a cluster whose endpoints are all proxies of the mesh.
///
/// Proxies answer HTTP/2 PINGs at any rate. Applications may not: gRPC's servers end a connection
/// with `too_many_pings`. A connection without requests closes after a while, so that pings follow
/// use.
pub(crate) fn protocol_options_to_proxies(
    protocol: Protocol,
    per_connection: Option<CommonOptions>,
) -> HashMap<String, Any> {
    let common = CommonOptions {
        idle_timeout: Some(keepalive::UPSTREAM_IDLE_TIMEOUT),
        ..per_connection.unwrap_or_default()
    };
    let http2 = Http2ProtocolOptions { connection_keepalive: Some(keepalive::http2()), ..http2() };
    options(protocol, Some(common), http2, Vec::new())
}

fn options(
    protocol: Protocol,
    per_connection: Option<CommonOptions>,
    http2: Http2ProtocolOptions,
    http_filters: Vec<HttpFilter>,
) -> HashMap<String, Any> {
    if !protocol.is_http() {
        return HashMap::new();
    }
    let protocol = if protocol.is_http2() {
        ProtocolConfig::Http2ProtocolOptions(http2)
    } else {
        ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default())
    };
    let explicit = ExplicitHttpConfig { protocol_config: Some(protocol) };
    let options = HttpProtocolOptions {
        common_http_protocol_options: per_connection,
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(explicit)),
        http_filters,
        ..HttpProtocolOptions::default()
    };
    let name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    [(name.to_owned(), any(&options))].into()
}

/// HTTP/2 with upgrades (RFC 8441), so that a WebSocket passes between two proxies.
fn http2() -> Http2ProtocolOptions {
    Http2ProtocolOptions { allow_connect: true, ..Http2ProtocolOptions::default() }
}
