//! Treatments of calls ([`Treatment`](ironmesh_catalog::http_routes::Treatment)) as Envoy's route
//! fields.

use std::collections::HashMap;

use ironmesh_catalog::http_routes::Treatment;
use ironmesh_catalog::{
    Abort, AbortWith, Delay, Fault, HeaderChanges, PathChange, Percent, Redirect, Retries,
    ServicePort,
};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, RuntimeFractionalPercent,
    header_value_option::HeaderAppendAction,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    RedirectAction, RetryPolicy, Route, RouteMatch,
    retry_policy::{RetryBackOff, RetryHostPredicate, retry_host_predicate},
    route,
    route_action::RequestMirrorPolicy,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::common::fault::v3::{
    FaultDelay, fault_delay::FaultDelaySecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::fault::v3::{
    FaultAbort, HttpFault, fault_abort::ErrorType,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};
use ironmesh_xds_wire::pb::envoy::r#type::v3::{
    FractionalPercent, fractional_percent::DenominatorType,
};
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::http::http_filter;
use crate::overrides;
use crate::shape::{duration, number};

/// The name of the fault filter, in listeners and in routes.
const FAULT: &str = "envoy.filters.http.fault";

/// The fault filter, which injects nothing by itself.
pub(crate) fn no_fault() -> HttpFilter {
    http_filter(FAULT, any(&HttpFault::default()))
}

/// A route with this treatment.
pub(crate) fn route(
    r#match: RouteMatch,
    action: route::Action,
    treatment: &Treatment<'_>,
) -> Route {
    // A redirected request goes nowhere.
    let request = treatment.request_headers().filter(|_| treatment.redirect().is_none());
    let (request_headers_to_add, request_headers_to_remove) = changes(request);
    let (response_headers_to_add, response_headers_to_remove) =
        changes(treatment.response_headers());
    Route {
        r#match: Some(r#match),
        action: Some(action),
        typed_per_filter_config: per_filter(treatment),
        request_headers_to_add,
        request_headers_to_remove,
        response_headers_to_add,
        response_headers_to_remove,
        ..Route::default()
    }
}

/// The per-route configuration of filters: faults, and override headers.
fn per_filter(treatment: &Treatment<'_>) -> HashMap<String, Any> {
    let fault = treatment.fault().map(|fault| (FAULT.to_owned(), any(&fault_config(fault))));
    let may_override = treatment.allows_override_headers() && treatment.redirect().is_none();
    let overrides = may_override.then(overrides::restore_overrides);
    fault.into_iter().chain(overrides).collect()
}

fn fault_config(Fault { delay, abort }: &Fault) -> HttpFault {
    HttpFault {
        delay: delay.as_ref().map(|Delay { duration: time, percent }| FaultDelay {
            percentage: Some(fraction(*percent)),
            fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration(*time))),
        }),
        abort: abort.as_ref().map(|Abort { with, percent }| FaultAbort {
            percentage: Some(fraction(*percent)),
            error_type: Some(match with {
                AbortWith::Status(status) => ErrorType::HttpStatus((*status).into()),
                AbortWith::GrpcStatus(status) => ErrorType::GrpcStatus((*status).into()),
            }),
            ..FaultAbort::default()
        }),
        ..HttpFault::default()
    }
}

/// The headers to set or add, and those to remove.
fn changes(changes: Option<&HeaderChanges>) -> (Vec<HeaderValueOption>, Vec<String>) {
    let Some(HeaderChanges { set, add, remove }) = changes else {
        return (Vec::new(), Vec::new());
    };
    let option = |(name, value): (&_, &_), action: HeaderAppendAction| HeaderValueOption {
        header: Some(HeaderValue {
            key: str::to_owned(name),
            // Envoy would interpret text between two of them as a command.
            value: str::replace(value, '%', "%%"),
            ..HeaderValue::default()
        }),
        append_action: action.into(),
        ..HeaderValueOption::default()
    };
    let set = set.iter().map(|(name, value)| {
        option((&**name, &**value), HeaderAppendAction::OverwriteIfExistsOrAdd)
    });
    let add = add
        .iter()
        .map(|(name, value)| option((&**name, &**value), HeaderAppendAction::AppendIfExistsOrAdd));
    (set.chain(add).collect(), remove.iter().map(ToString::to_string).collect())
}

/// The rewrite of a path.
pub(crate) fn rewritten(change: &PathChange) -> RegexMatchAndSubstitute {
    RegexMatchAndSubstitute {
        pattern: Some(RegexMatcher { regex: change.expression(), ..RegexMatcher::default() }),
        substitution: change.substitution(),
    }
}

/// The redirect response.
pub(crate) fn redirect(redirect: &Redirect) -> RedirectAction {
    let Redirect { status, scheme, host, port, path } = redirect;
    let response_code = match status {
        301 => RedirectResponseCode::MovedPermanently,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => RedirectResponseCode::Found,
    };
    RedirectAction {
        host_redirect: host.as_deref().unwrap_or_default().to_owned(),
        port_redirect: port.unwrap_or_default().into(),
        response_code: response_code.into(),
        scheme_rewrite_specifier: scheme
            .map(|scheme| SchemeRewriteSpecifier::SchemeRedirect(scheme.to_owned())),
        path_rewrite_specifier: path.as_ref().map(|path| match path {
            PathChange::Whole(path) => PathRewriteSpecifier::PathRedirect(path.to_string()),
            change => PathRewriteSpecifier::RegexRewrite(rewritten(change)),
        }),
        ..RedirectAction::default()
    }
}

/// The policy that mirrors a share of requests to a port.
pub(crate) fn mirrored(to: &ServicePort, percent: Percent) -> RequestMirrorPolicy {
    RequestMirrorPolicy {
        cluster: to.to_string(),
        runtime_fraction: Some(RuntimeFractionalPercent {
            default_value: Some(fraction(percent)),
            ..RuntimeFractionalPercent::default()
        }),
        // Like calls to the backend of a split, mirrored calls keep the caller's host.
        disable_shadow_host_suffix_append: true,
        ..RequestMirrorPolicy::default()
    }
}

fn fraction(Percent(numerator): Percent) -> FractionalPercent {
    FractionalPercent { numerator, denominator: DenominatorType::Million.into() }
}

/// The number of attempts to select an endpoint on which the request has not failed. Envoy then
/// uses the last selection. With different weights more than a few are needed: of 9 to 1, the
/// lighter endpoint is selected once in ten times.
const HOST_SELECTION_ATTEMPTS: i64 = 10;

/// Selects an endpoint for a retry on which the request has not failed.
fn previous_hosts() -> RetryHostPredicate {
    let config = retry_host_predicate::ConfigType::TypedConfig(any(&PreviousHostsPredicate {}));
    RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
        config_type: Some(config),
    }
}

/// The retry policy, on another endpoint if there is one; `None` without retries.
pub(crate) fn retry_policy(retries: &Retries) -> Option<RetryPolicy> {
    let Retries { statuses, count, per_try_timeout, base_interval, max_interval, .. } = retries;
    let is_timed = base_interval.is_some() || max_interval.is_some();
    let base = base_interval.unwrap_or(Retries::BASE_INTERVAL);
    let back_off = is_timed.then(|| RetryBackOff {
        base_interval: Some(duration(base)),
        max_interval: max_interval.map(duration),
    });
    (*count > 0).then(|| RetryPolicy {
        retry_on: retries.on(),
        retriable_status_codes: statuses.iter().copied().map(u32::from).collect(),
        num_retries: number(*count),
        per_try_timeout: per_try_timeout.map(duration),
        retry_back_off: back_off,
        retry_host_predicate: vec![previous_hosts()],
        host_selection_retry_max_attempts: HOST_SELECTION_ATTEMPTS,
        ..RetryPolicy::default()
    })
}
