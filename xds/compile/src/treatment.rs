//! How calls are treated on their way ([`Treatment`](ironmesh_catalog::http_routes::Treatment)), in Envoy's
//! words.

use std::collections::HashMap;

use ironmesh_catalog::{Abort, AbortWith, Delay, Fault, Percent, Retries};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff};

use ironmesh_xds_wire::pb::envoy::extensions::filters::common::fault::v3::{
    FaultDelay, fault_delay::FaultDelaySecifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::http::fault::v3::{
    FaultAbort, HttpFault, fault_abort::ErrorType,
};
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use ironmesh_xds_wire::pb::envoy::r#type::v3::{
    FractionalPercent, fractional_percent::DenominatorType,
};
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::http::http_filter;
use crate::shape::{duration, number};

/// What the filter of faults is called, in listeners and in routes.
const FAULT: &str = "envoy.filters.http.fault";

/// The filter of faults, which makes none by itself.
pub(crate) fn no_fault() -> HttpFilter {
    http_filter(FAULT, any(&HttpFault::default()))
}

/// What filters do otherwise on a route: the faults that are made there.
pub(crate) fn per_filter(fault: Option<&Fault>) -> HashMap<String, Any> {
    let made = |Fault { delay, abort }: &Fault| HttpFault {
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
    };
    fault.map(|fault| (FAULT.to_owned(), any(&made(fault)))).into_iter().collect()
}

fn fraction(Percent(numerator): Percent) -> FractionalPercent {
    FractionalPercent { numerator, denominator: DenominatorType::Million.into() }
}

/// What is tried again; none where nothing is.
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
        ..RetryPolicy::default()
    })
}
