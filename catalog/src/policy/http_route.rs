//! HTTP routes: settings of the HTTP calls of services.

use std::fmt;
use std::time::Duration;

use super::{Fault, HeaderChanges, Level, Mirror, Redirect, Rewrite, SplitMatch};
use crate::finding::Spot;
use crate::name::{Name, ServiceAccount, ServiceName};

/// HTTP settings in the sidecars of callers. [`HttpRoutes`](crate::http_routes::HttpRoutes) chooses between
/// several objects.
#[derive(Debug, Clone, Eq)]
pub struct HttpRoute {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The calls to which it applies.
    pub reach: Reach,
    /// The accounts whose calls it applies to. Default: every account. Never empty.
    pub sources: Option<Vec<ServiceAccount>>,
    /// The settings.
    pub settings: CallSettings,
    /// Its location in policy.
    pub spot: Spot,
}

impl HttpRoute {
    /// Whether it applies to calls of `account`.
    pub fn is_of(&self, account: &ServiceAccount) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.contains(account))
    }
}

impl PartialEq for HttpRoute {
    fn eq(&self, other: &Self) -> bool {
        let Self { namespace, name, reach, sources, settings, spot: _ } = self;
        (namespace, name, reach, sources, settings)
            == (&other.namespace, &other.name, &other.reach, &other.sources, &other.settings)
    }
}

/// The calls to which an object applies. The most specific object wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// All calls of the services of a level.
    All(Level),
    /// The requests to one service that any of these matches selects.
    Requests(ServiceName, Vec<SplitMatch>),
}

impl Reach {
    /// The service to which it applies, if there is exactly one.
    pub fn service(&self) -> Option<&ServiceName> {
        match self {
            Self::All(Level::Mesh | Level::Namespace(_)) => None,
            Self::All(Level::Service(service)) | Self::Requests(service, _) => Some(service),
        }
    }
}

/// The settings of calls. A setting that is `None` is left to a less specific object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSettings {
    /// The time limit of a request with its retries. Zero means no limit.
    pub timeout: Option<Duration>,
    /// The retries.
    pub retries: Option<Retries>,
    /// The fault injection.
    pub fault: Option<Fault>,
    /// The changes of request headers.
    pub request_headers: Option<HeaderChanges>,
    /// The changes of response headers.
    pub response_headers: Option<HeaderChanges>,
    /// The rewrite in the caller's sidecar.
    pub rewrite: Option<Rewrite>,
    /// The redirect.
    pub redirect: Option<Redirect>,
    /// The mirror of some requests.
    pub mirror: Option<Mirror>,
    /// Whether callers may override time limit and retries by headers.
    pub allow_override_headers: Option<bool>,
}

impl CallSettings {
    /// The settings in words: key and value of each.
    pub fn descriptions(&self) -> Vec<(&'static str, String)> {
        let Self { timeout, retries, fault, .. } = self;
        let Self { request_headers, response_headers, rewrite, redirect, mirror, .. } = self;
        let words = [
            ("timeout", timeout.map(time_limit)),
            ("retries", retries.as_ref().map(ToString::to_string)),
            ("fault", fault.as_ref().map(ToString::to_string)),
            ("request_headers", request_headers.as_ref().map(ToString::to_string)),
            ("response_headers", response_headers.as_ref().map(ToString::to_string)),
            ("rewrite", rewrite.as_ref().map(ToString::to_string)),
            ("redirect", redirect.as_ref().map(ToString::to_string)),
            ("mirror", mirror.as_ref().map(ToString::to_string)),
            ("allow_override_headers", self.allow_override_headers.map(|may| may.to_string())),
        ];
        words.into_iter().filter_map(|(key, words)| Some((key, words?))).collect()
    }
}

fn time_limit(duration: Duration) -> String {
    if duration.is_zero() { "none".to_owned() } else { format!("{duration:?}") }
}

/// The retries of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// The conditions for a retry, of [`Retries::CONDITIONS`].
    pub conditions: Vec<&'static str>,
    /// The statuses that cause a retry.
    pub statuses: Vec<u16>,
    /// The most retries; 0 means none.
    pub count: u32,
    /// The time limit of one attempt. Never zero.
    pub per_try_timeout: Option<Duration>,
    /// The longest backoff before the first retry; later ones wait about twice as long each. Default: 25 ms
    /// (Envoy).
    pub base_interval: Option<Duration>,
    /// The longest backoff of any retry. Default: ten times the base interval (Envoy).
    pub max_interval: Option<Duration>,
}

impl Retries {
    /// Envoy's names of retry conditions: first those for HTTP, then those for gRPC. (Not here:
    /// `retriable-headers`, which needs named headers, and `http3-post-connect-failure`, since no HTTP/3 is
    /// used.)
    pub const CONDITIONS: [&str; 14] = [
        "5xx",
        "gateway-error",
        "reset",
        "reset-before-request",
        "connect-failure",
        "envoy-ratelimited",
        "retriable-4xx",
        "refused-stream",
        "retriable-status-codes",
        "cancelled",
        "deadline-exceeded",
        "internal",
        "resource-exhausted",
        "unavailable",
    ];

    /// The condition that uses [`Retries::statuses`].
    pub const STATUSES: &str = "retriable-status-codes";

    /// The default of the longest backoff before the first retry.
    pub const BASE_INTERVAL: Duration = Duration::from_millis(25);

    /// Envoy's names of all conditions, joined.
    pub fn on(&self) -> String {
        let statuses = (!self.statuses.is_empty()).then_some(Self::STATUSES);
        let conditions: Vec<_> = self.conditions.iter().copied().chain(statuses).collect();
        conditions.join(",")
    }
}

/// The default: one retry, if the request cannot have reached an application.
impl Default for Retries {
    fn default() -> Self {
        Self {
            conditions: vec!["connect-failure", "refused-stream", "reset-before-request"],
            statuses: Vec::new(),
            count: 1,
            per_try_timeout: None,
            base_interval: None,
            max_interval: None,
        }
    }
}

impl fmt::Display for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return f.write_str("none");
        }
        let conditions = self.conditions.iter().map(ToString::to_string);
        let on: Vec<_> = conditions.chain(self.statuses.iter().map(ToString::to_string)).collect();
        write!(f, "{} on {}", self.count, on.join(", "))?;
        for (what, duration) in [
            ("each try within", self.per_try_timeout),
            ("first after", self.base_interval),
            ("at most", self.max_interval),
        ] {
            if let Some(duration) = duration {
                write!(f, "; {what} {duration:?}")?;
            }
        }
        Ok(())
    }
}

/// OSM `Retry`: the retries of calls of one account to some services.
///
/// Invariant: `destinations` is not empty.
#[derive(Debug, Clone, Eq)]
pub struct Retry {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The account that calls.
    pub source: ServiceAccount,
    /// The services that it calls.
    pub destinations: Vec<RetryDestination>,
    /// The retries.
    pub retries: Retries,
    /// Its location in policy.
    pub spot: Spot,
}

impl PartialEq for Retry {
    fn eq(&self, other: &Self) -> bool {
        let Self { namespace, name, source, destinations, retries, spot: _ } = self;
        (namespace, name, source, destinations, retries)
            == (&other.namespace, &other.name, &other.source, &other.destinations, &other.retries)
    }
}

/// A destination of a [`Retry`].
#[derive(Debug, Clone, Eq)]
pub struct RetryDestination {
    /// The service.
    pub service: ServiceName,
    /// Its location in policy.
    pub spot: Spot,
}

impl PartialEq for RetryDestination {
    fn eq(&self, other: &Self) -> bool {
        self.service == other.service
    }
}
