//! OSM's `UpstreamTrafficSetting`: limits that protect a service.

use std::sync::Arc;
use std::time::Duration;

use super::{
    GlobalHttpLimit, GlobalTcpLimit, Level, LimitedRoute, LocalHttpLimit, LocalitySetting, Rate,
};
use crate::finding::Spot;
use crate::name::Name;

/// OSM's `UpstreamTrafficSetting`: limits at callers and at the sidecars of the service. For each setting, the
/// most specific object wins; objects are not merged ([`UpstreamSettings`](crate::UpstreamSettings)).
#[derive(Debug, Clone, Eq)]
pub struct UpstreamTrafficSetting {
    /// Its namespace, which is also that of its service.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The services to which it applies.
    pub level: Level,
    /// `connection_settings.tcp`.
    pub tcp: Option<TcpConnections>,
    /// `connection_settings.http`.
    pub http: Option<HttpConnections>,
    /// `outlier_detection`.
    pub outlier_detection: Option<OutlierDetection>,
    /// `locality`.
    pub locality: Option<Arc<LocalitySetting>>,
    /// `rate_limit.local.http`: of the requests to each sidecar of a service.
    pub local_http: Option<LocalHttpLimit>,
    /// `rate_limit.local.tcp`: of the connections to each sidecar of a service.
    pub local_tcp: Option<Rate>,
    /// `rate_limit.global.http`: of the requests to all sidecars of all services together.
    pub global_http: Option<GlobalHttpLimit>,
    /// `rate_limit.global.tcp`: of the connections to all sidecars of all services together.
    pub global_tcp: Option<GlobalTcpLimit>,
    /// `http_routes`, in the order of the file: the first with the path of a request replaces the limits of all
    /// requests. Never empty.
    pub http_routes: Option<Vec<LimitedRoute>>,
    /// Its location in policy.
    pub spot: Spot,
}

/// The TCP limits of one caller's sidecar for a service port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpConnections {
    /// The most connections at once, at least 1.
    pub max_connections: Option<u32>,
    /// The connect timeout.
    pub connect_timeout: Option<Duration>,
}

/// The HTTP limits of one caller's sidecar for a service port. All numbers except that of retries are at least
/// 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpConnections {
    /// The most active requests.
    pub max_requests: Option<u32>,
    /// The most requests per connection.
    pub max_requests_per_connection: Option<u32>,
    /// The most requests that wait for a connection.
    pub max_pending_requests: Option<u32>,
    /// The limit of active retries.
    pub retries: Option<RetryLimit>,
}

/// The limit of active retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryLimit {
    /// A fixed number; 0 means none.
    Most(u32),
    /// A share of the active requests.
    Budget {
        /// The share in percent, from 1 to 100.
        percent: u32,
        /// The number that is always allowed, if it is set.
        min_concurrency: Option<u32>,
    },
}

/// Outlier detection of one caller's sidecar: when it ejects an endpoint, and for how long. At least one of the
/// two counts is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlierDetection {
    /// The consecutive responses from 500 to 599 before an ejection. Failed connections count separately, up to
    /// the lower of this number and [`Self::CONSECUTIVE_LOCAL_FAILURES`].
    pub consecutive_5xx: Option<u32>,
    /// The consecutive responses 502, 503 or 504 before an ejection. Connections as above.
    pub consecutive_gateway_errors: Option<u32>,
    /// The interval of checks whether an ejection ends.
    pub interval: Duration,
    /// The time of the first ejection; the second takes twice as long, and so on.
    pub base_ejection_time: Duration,
    /// The most ejected endpoints in percent, from 1 to 100.
    pub max_ejection_percent: u32,
}

impl OutlierDetection {
    /// The default, which is Envoy's.
    pub const INTERVAL: Duration = Duration::from_secs(10);

    /// The default, which is Envoy's.
    pub const BASE_EJECTION_TIME: Duration = Duration::from_secs(30);

    /// The most consecutive connection failures or stream resets before an ejection, even without policy.
    /// (Envoy's default is 5; a caller with one request at a time needs seconds for each failure of a frozen
    /// endpoint.)
    pub const CONSECUTIVE_LOCAL_FAILURES: u32 = 3;

    /// The default: the remaining endpoints get at most twice the load.
    pub const MAX_EJECTION_PERCENT: u32 = 50;
}

impl PartialEq for UpstreamTrafficSetting {
    fn eq(&self, other: &Self) -> bool {
        // Destructured, so that the compiler reports a forgotten field. The location does not matter.
        let Self {
            namespace,
            name,
            level,
            tcp,
            http,
            outlier_detection,
            locality,
            local_http,
            local_tcp,
            global_http,
            global_tcp,
            http_routes,
            spot: _,
        } = self;
        (namespace, name, level) == (&other.namespace, &other.name, &other.level)
            && (tcp, http) == (&other.tcp, &other.http)
            && (outlier_detection, locality) == (&other.outlier_detection, &other.locality)
            && (local_http, local_tcp) == (&other.local_http, &other.local_tcp)
            && (global_http, global_tcp) == (&other.global_http, &other.global_tcp)
            && *http_routes == other.http_routes
    }
}
