//! Rate limits of the server's sidecar: for HTTP in its routes, for TCP in the chain of the port.
//! Limits of a rate limit service are in [`global`].
//!
//! The HTTP filter is in every inbound chain and does nothing by itself. A limit is part of the
//! routes, as authorization is, so that a change touches no connection. It comes after
//! authorization: a denied caller uses nothing up.

pub(crate) mod counted;
pub(crate) mod global;

use std::collections::HashMap;
use std::sync::Arc;

use ironmesh_catalog::{LimitedRoute, LocalHttpLimit, Rate};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, RuntimeFractionalPercent,
};
use ironmesh_xds_wire::pb::envoy::config::listener::v3::Filter;
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    Route, RouteMatch, route, route_match::PathSpecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::local_ratelimit::v3::LocalRateLimit as LocalTcpLimit;
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::RegexMatcher;
use ironmesh_xds_wire::pb::envoy::r#type::v3::{FractionalPercent, HttpStatus, TokenBucket};
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::http::http_filter;
use crate::limits::duration;
use crate::shape::{network_filter, number};

const LOCAL: &str = "envoy.filters.http.local_ratelimit";

/// The prefix of the statistics of all local HTTP limits.
const STATISTICS: &str = "rate_limit";

/// The filter that applies the limits of routes.
pub(crate) fn local_filter() -> HttpFilter {
    let inert = LocalRateLimit { stat_prefix: STATISTICS.to_owned(), ..LocalRateLimit::default() };
    http_filter(LOCAL, any(&inert))
}

/// The configuration of [`local_filter`] for a virtual host or a route.
pub(crate) fn local_http(limit: Option<&LocalHttpLimit>) -> HashMap<String, Any> {
    limit.map(|limit| (LOCAL.to_owned(), any(&local(limit)))).into_iter().collect()
}

/// The routes of requests with limits of their own, all with the same destination.
pub(crate) fn routes(limited: &[LimitedRoute], action: &route::Action) -> Vec<Route> {
    let route = |one: &LimitedRoute| {
        let mut action = action.clone();
        // A route without descriptors has those of all requests.
        if let (route::Action::Route(action), Some(all)) = (&mut action, &one.descriptors) {
            action.rate_limits = global::descriptors(all);
        }
        let regex = RegexMatcher { regex: one.path.whole_path(), ..RegexMatcher::default() };
        Route {
            r#match: Some(RouteMatch {
                path_specifier: Some(PathSpecifier::SafeRegex(regex)),
                ..RouteMatch::default()
            }),
            action: Some(action),
            typed_per_filter_config: local_http(one.local_http.as_ref()),
            ..Route::default()
        }
    };
    limited.iter().map(route).collect()
}

/// Limits the connections of a chain. It comes first, so that an excess connection ends before its
/// handshake, and counts whatever its caller.
pub(crate) fn local_tcp(rate: Rate, stat_prefix: String) -> Filter {
    let limit = LocalTcpLimit {
        stat_prefix,
        token_bucket: Some(token_bucket(rate)),
        ..LocalTcpLimit::default()
    };
    network_filter("envoy.filters.network.local_ratelimit", any(&limit))
}

fn local(limit: &LocalHttpLimit) -> LocalRateLimit {
    let always = || {
        Some(RuntimeFractionalPercent {
            // Percent is the default denominator.
            default_value: Some(FractionalPercent {
                numerator: 100,
                ..FractionalPercent::default()
            }),
            ..RuntimeFractionalPercent::default()
        })
    };
    LocalRateLimit {
        stat_prefix: STATISTICS.to_owned(),
        status: Some(HttpStatus { code: i32::from(limit.status) }),
        token_bucket: Some(token_bucket(limit.rate)),
        filter_enabled: always(),
        filter_enforced: always(),
        response_headers_to_add: limit.headers.iter().map(header).collect(),
        ..LocalRateLimit::default()
    }
}

fn token_bucket(Rate { number: each, unit, burst }: Rate) -> TokenBucket {
    TokenBucket {
        // Validation limits the sum.
        max_tokens: each.saturating_add(burst),
        tokens_per_fill: number(each),
        fill_interval: Some(duration(unit.duration())),
    }
}

fn header((name, value): &(Arc<str>, Arc<str>)) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: name.to_string(),
            // Envoy would interpret `%…%` as a command.
            value: value.replace('%', "%%"),
            ..HeaderValue::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    }
}
