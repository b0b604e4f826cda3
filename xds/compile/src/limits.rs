//! Limits of a caller's cluster: circuit breakers, retries and outlier detection, by upstream
//! traffic settings, else by defaults (docs/concepts/traffic.md).

#![expect(clippy::unnecessary_wraps, reason = "message fields are options")]

use ironmesh_catalog::{
    HttpConnections, LocalitySetting, OutlierDetection as Detection, RetryLimit, TcpConnections,
};
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::circuit_breakers::thresholds::RetryBudget;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::common_lb_config::{
    LocalityConfigSpecifier, LocalityWeightedLbConfig,
};
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::{CircuitBreakers, OutlierDetection};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{HttpProtocolOptions, RoutingPriority};
use ironmesh_xds_wire::pb::envoy::r#type::v3::Percent;
use ironmesh_xds_wire::pb::google::protobuf::Duration;

use crate::mesh_view::ServiceSettings;
use crate::shape::{CONNECT_TIMEOUT, never_panic, number};

/// The retry budget: concurrent retries in percent of active requests.
const RETRY_BUDGET: u32 = 20;

/// The number of concurrent retries that are always allowed. A failing endpoint fails all requests
/// that wait for its connection at once; Envoy's default of 3 would deny most of them a retry.
const MIN_RETRY_CONCURRENCY: u32 = 20;

/// The upstream traffic settings of one service.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits<'a> {
    tcp: Option<&'a TcpConnections>,
    http: Option<&'a HttpConnections>,
    outliers: Option<&'a Detection>,
    locality: Option<&'a LocalitySetting>,
}

impl<'a> Limits<'a> {
    pub(crate) fn of(settings: ServiceSettings<'a>) -> Self {
        Self {
            tcp: settings.tcp(),
            http: settings.http(),
            outliers: settings.outlier_detection(),
            locality: settings.locality().map(|one| &**one),
        }
    }

    pub(crate) fn connect_timeout(self) -> Option<Duration> {
        let set = self.tcp.and_then(|tcp| tcp.connect_timeout);
        Some(set.map_or(CONNECT_TIMEOUT, duration))
    }

    /// The circuit breakers. Without settings there are no limits, because ordinary services reach
    /// Envoy's defaults (1,024 connections, requests and pending requests). Retries have a budget.
    pub(crate) fn circuit_breakers(self) -> Option<CircuitBreakers> {
        let retries = self.http.and_then(|http| http.retries);
        let budget = |percent: u32, least: Option<u32>| RetryBudget {
            budget_percent: Some(Percent { value: percent.into() }),
            min_retry_concurrency: least.and_then(number),
            ..RetryBudget::default()
        };
        let (max_retries, retry_budget) = match retries {
            None => (u32::MAX, Some(budget(RETRY_BUDGET, Some(MIN_RETRY_CONCURRENCY)))),
            Some(RetryLimit::Most(most)) => (most, None),
            Some(RetryLimit::Budget { percent, min_concurrency }) => {
                (u32::MAX, Some(budget(percent, min_concurrency)))
            }
        };
        self.thresholds(max_retries, retry_budget)
    }

    fn thresholds(self, max_retries: u32, budget: Option<RetryBudget>) -> Option<CircuitBreakers> {
        let or_unlimited = |set: Option<u32>| number(set.unwrap_or(u32::MAX));
        let one = |priority: RoutingPriority| Thresholds {
            priority: priority.into(),
            max_connections: or_unlimited(self.tcp.and_then(|tcp| tcp.max_connections)),
            max_pending_requests: or_unlimited(
                self.http.and_then(|http| http.max_pending_requests),
            ),
            max_requests: or_unlimited(self.http.and_then(|http| http.max_requests)),
            max_retries: number(max_retries),
            retry_budget: budget,
            ..Thresholds::default()
        };
        Some(CircuitBreakers {
            thresholds: vec![one(RoutingPriority::Default), one(RoutingPriority::High)],
            ..CircuitBreakers::default()
        })
    }

    /// The options of each HTTP connection, whatever its version.
    pub(crate) fn per_connection(self) -> Option<HttpProtocolOptions> {
        let most = self.http.and_then(|http| http.max_requests_per_connection)?;
        let options = HttpProtocolOptions {
            max_requests_per_connection: number(most),
            ..HttpProtocolOptions::default()
        };
        Some(options)
    }

    /// The outlier detection. By default it ejects an endpoint after failed connections and reset
    /// streams, which Envoy calls failures of local origin. Responses count only if policy names
    /// them, and Envoy's comparison between endpoints never does.
    ///
    /// Policy has always counted a failed connection like a response that it names. Envoy counts
    /// the two separately, so the lower of the numbers applies to connections.
    pub(crate) fn outlier_detection(self) -> Option<OutlierDetection> {
        let default = Detection {
            consecutive_5xx: None,
            consecutive_gateway_errors: None,
            interval: Detection::INTERVAL,
            base_ejection_time: Detection::BASE_EJECTION_TIME,
            max_ejection_percent: Detection::MAX_EJECTION_PERCENT,
        };
        let Detection {
            consecutive_5xx,
            consecutive_gateway_errors,
            interval,
            base_ejection_time,
            max_ejection_percent,
        } = self.outliers.unwrap_or(&default);
        let enforced = |count: &Option<u32>| number(if count.is_some() { 100 } else { 0 });
        let counts = [*consecutive_5xx, *consecutive_gateway_errors].into_iter().flatten();
        let connections = counts.fold(Detection::CONSECUTIVE_LOCAL_FAILURES, u32::min);
        Some(OutlierDetection {
            consecutive_5xx: consecutive_5xx.and_then(number),
            enforcing_consecutive_5xx: enforced(consecutive_5xx),
            consecutive_gateway_failure: consecutive_gateway_errors.and_then(number),
            enforcing_consecutive_gateway_failure: enforced(consecutive_gateway_errors),
            enforcing_success_rate: number(0),
            split_external_local_origin_errors: true,
            consecutive_local_origin_failure: number(connections),
            enforcing_local_origin_success_rate: number(0),
            interval: Some(duration(*interval)),
            base_ejection_time: Some(duration(*base_ejection_time)),
            max_ejection_percent: number(*max_ejection_percent),
            ..OutlierDetection::default()
        })
    }

    /// The load balancing: never to unhealthy endpoints, and by locality weights only if policy
    /// gives them. (Priorities are part of the endpoints.)
    pub(crate) fn choice(self) -> Option<CommonLbConfig> {
        let has_shares = self.locality.is_some_and(|locality| !locality.distribute.is_empty());
        let by_shares =
            LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {});
        let choice = never_panic()?;
        Some(CommonLbConfig {
            locality_config_specifier: has_shares.then_some(by_shares),
            ..choice
        })
    }
}

/// Circuit breakers without limits or retries, for the application behind a proxy.
pub(crate) fn unlimited() -> Option<CircuitBreakers> {
    Limits::default().thresholds(u32::MAX, None)
}

pub(crate) fn duration(time: std::time::Duration) -> Duration {
    Duration {
        // Policy accepts days at most.
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.subsec_nanos()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_xds_wire::pb::google::protobuf::UInt32Value;

    use super::*;

    /// The enforced counts of 5xx, of gateway errors and of local failures.
    fn enforced(outliers: Option<&Detection>) -> [Option<u32>; 3] {
        let limits = Limits { outliers, ..Limits::default() };
        let detection = limits.outlier_detection().unwrap();
        assert!(detection.split_external_local_origin_errors);
        let of = |count: Option<UInt32Value>, percent: Option<UInt32Value>| {
            count.filter(|_| percent.is_none_or(|one| one.value > 0)).map(|one| one.value)
        };
        [
            of(detection.consecutive_5xx, detection.enforcing_consecutive_5xx),
            of(
                detection.consecutive_gateway_failure,
                detection.enforcing_consecutive_gateway_failure,
            ),
            of(
                detection.consecutive_local_origin_failure,
                detection.enforcing_consecutive_local_origin_failure,
            ),
        ]
    }

    fn policy(
        consecutive_5xx: Option<u32>,
        consecutive_gateway_errors: Option<u32>,
    ) -> Option<Detection> {
        Some(Detection {
            consecutive_5xx,
            consecutive_gateway_errors,
            interval: Detection::INTERVAL,
            base_ejection_time: Detection::BASE_EJECTION_TIME,
            max_ejection_percent: Detection::MAX_EJECTION_PERCENT,
        })
    }

    #[test]
    fn local_failures_eject_by_default_and_policy_adds_responses() {
        assert_eq!(enforced(None), [None, None, Some(3)]);
        assert_eq!(enforced(policy(Some(10), None).as_ref()), [Some(10), None, Some(3)]);
        assert_eq!(enforced(policy(Some(10), Some(2)).as_ref()), [Some(10), Some(2), Some(2)]);
    }
}
