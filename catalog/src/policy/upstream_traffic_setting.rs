//! OSM's `UpstreamTrafficSetting`: how much is asked of a service at once.

use std::sync::Arc;
use std::time::Duration;

use super::{
    GlobalHttpLimit, GlobalTcpLimit, Level, LimitedRoute, LocalHttpLimit, LocalitySetting, Rate,
};
use crate::finding::Spot;
use crate::name::Name;

/// OSM's `UpstreamTrafficSetting`: what callers, and the sidecars of the service itself, do to spare it. Each
/// of its settings is decided by itself: of the objects that say it the nearest is heard, and its word is
/// the whole of the setting ([`UpstreamSettings`](crate::UpstreamSettings)).
#[derive(Debug, Clone, Eq)]
pub struct UpstreamTrafficSetting {
    /// Its namespace, which is also that of its service.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// Which services it is about.
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
    /// `http_routes`, in the order of the file: the first of whose path a request is has it, instead of
    /// what is said of all requests. Never empty.
    pub http_routes: Option<Vec<LimitedRoute>>,
    /// Where it is written.
    pub spot: Spot,
}

/// What one sidecar of a caller does at most of connections to a service port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpConnections {
    /// How many connections there are at once, at least 1.
    pub max_connections: Option<u32>,
    /// How long making one may take.
    pub connect_timeout: Option<Duration>,
}

/// What one sidecar of a caller asks at most of a service port by HTTP. All numbers but that of retries are at
/// least 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpConnections {
    /// How many requests are under way at once.
    pub max_requests: Option<u32>,
    /// After how many requests a connection is replaced by another.
    pub max_requests_per_connection: Option<u32>,
    /// How many requests wait for a connection at once.
    pub max_pending_requests: Option<u32>,
    /// How many retries are under way at once.
    pub retries: Option<RetryLimit>,
}

/// How many retries are under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryLimit {
    /// So many; 0 is none.
    Most(u32),
    /// In proportion to the requests that are under way.
    Budget {
        /// In percent of those, from 1 to 100.
        percent: u32,
        /// So many in any case, if it is said.
        min_concurrency: Option<u32>,
    },
}

/// When one sidecar of a caller takes an endpoint for broken by what it answers, and how long it then gets
/// nothing from there. At least one of the two counts is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlierDetection {
    /// After so many answers of 500 to 599 one after the other. Failed connections count apart, to the lower
    /// of this number and [`Self::CONSECUTIVE_LOCAL_FAILURES`].
    pub consecutive_5xx: Option<u32>,
    /// After so many answers of 502, 503 or 504 one after the other; connections as above.
    pub consecutive_gateway_errors: Option<u32>,
    /// How often it is looked whether the time of an ejected one is over.
    pub interval: Duration,
    /// How long an endpoint is ejected the first time; the second time twice as long, and so on.
    pub base_ejection_time: Duration,
    /// How many of the endpoints are ejected at once, in percent, from 1 to 100.
    pub max_ejection_percent: u32,
}

impl OutlierDetection {
    /// What is meant where it is not said, as Envoy has it.
    pub const INTERVAL: Duration = Duration::from_secs(10);

    /// What is meant where it is not said, as Envoy has it.
    pub const BASE_EJECTION_TIME: Duration = Duration::from_secs(30);

    /// After how many failed connections or reset streams in a row an endpoint is ejected, at the most: also
    /// where policy says nothing. (Envoy's default is 5; a caller that makes one request at a time needs
    /// seconds for each failure of a frozen endpoint.)
    pub const CONSECUTIVE_LOCAL_FAILURES: u32 = 3;

    /// What is meant where it is not said: who is left has at most twice as much to do.
    pub const MAX_EJECTION_PERCENT: u32 = 50;
}

impl PartialEq for UpstreamTrafficSetting {
    fn eq(&self, other: &Self) -> bool {
        // Taken apart, so that no field is forgotten. Where it is written is no matter.
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
