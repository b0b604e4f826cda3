//! How calls are treated on their way ([`Treatment`](ironmesh_catalog::http_routes::Treatment)), in Envoy's
//! words.

use ironmesh_catalog::Retries;
use ironmesh_xds_wire::pb::envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff};

use crate::shape::{duration, number};

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
