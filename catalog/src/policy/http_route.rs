//! How the calls of services are treated on their way: an HTTP route, and what it may say.

use std::fmt;
use std::time::Duration;

use super::{Fault, HeaderChanges, Level, Mirror, Redirect, Rewrite, SplitMatch};
use crate::finding::Spot;
use crate::name::{Name, ServiceAccount, ServiceName};

/// How HTTP calls are treated by the sidecars of those who call. Which of several objects decides is worked
/// out by [`HttpRoutes`](crate::http_routes::HttpRoutes).
#[derive(Debug, Clone, Eq)]
pub struct HttpRoute {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// Which calls it is about.
    pub reach: Reach,
    /// Whose calls; anyone's where it is left out. Never empty.
    pub sources: Option<Vec<ServiceAccount>>,
    /// What it says of them.
    pub settings: CallSettings,
    /// Where it is written.
    pub spot: Spot,
}

impl HttpRoute {
    /// Whether it is about calls of `account`.
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

/// Which calls an object is about. The nearer to one request decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// All those of services, by the names that callers say.
    All(Level),
    /// The requests to one service that any of these matches.
    Requests(ServiceName, Vec<SplitMatch>),
}

impl Reach {
    /// The one service that it is about, if it is about one.
    pub fn service(&self) -> Option<&ServiceName> {
        match self {
            Self::All(Level::Mesh | Level::Namespace(_)) => None,
            Self::All(Level::Service(service)) | Self::Requests(service, _) => Some(service),
        }
    }
}

/// What may be said of calls. What is `None` is left to an object that is farther from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSettings {
    /// How long a request may take as a whole, its retries included. Zero = as long as it likes.
    pub timeout: Option<Duration>,
    /// What is tried again.
    pub retries: Option<Retries>,
    /// What becomes of some of them on purpose.
    pub fault: Option<Fault>,
    /// What becomes of the headers of requests.
    pub request_headers: Option<HeaderChanges>,
    /// What becomes of the headers of answers.
    pub response_headers: Option<HeaderChanges>,
    /// What they ask for when they leave the caller's sidecar.
    pub rewrite: Option<Rewrite>,
    /// Where they are to be made instead.
    pub redirect: Option<Redirect>,
    /// Who gets a copy of some of them.
    pub mirror: Option<Mirror>,
    /// Whether who calls may say how long a request may take and what is tried again.
    pub allow_override_headers: Option<bool>,
}

impl CallSettings {
    /// What it says, in words: the key and the value of each setting.
    pub fn in_words(&self) -> Vec<(&'static str, String)> {
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

/// What is tried again, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// After what, of [`Retries::CONDITIONS`].
    pub conditions: Vec<&'static str>,
    /// After which statuses.
    pub statuses: Vec<u16>,
    /// How often at most. 0 = nothing is tried again.
    pub count: u32,
    /// How long one try may take. Never zero.
    pub per_try_timeout: Option<Duration>,
    /// After how long the first retry comes at the latest; those behind it wait about twice as long each. It
    /// is 25 ms where it is left out (Envoy).
    pub base_interval: Option<Duration>,
    /// How long a retry waits at most. Ten times the base interval where it is left out (Envoy).
    pub max_interval: Option<Duration>,
}

impl Retries {
    /// What Envoy calls that after which a request may be tried again; first those that it gives to HTTP, then
    /// those that it gives to gRPC. (Not here: `retriable-headers`, for which headers would have to be named,
    /// and `http3-post-connect-failure`, since no HTTP/3 is spoken.)
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

    /// The condition that is about [`Retries::statuses`].
    pub const STATUSES: &str = "retriable-status-codes";

    /// After how long a first retry comes at the latest, where nothing is said.
    pub const BASE_INTERVAL: Duration = Duration::from_millis(25);

    /// Envoy's words for all that is tried again.
    pub fn on(&self) -> String {
        let statuses = (!self.statuses.is_empty()).then_some(Self::STATUSES);
        let conditions: Vec<_> = self.conditions.iter().copied().chain(statuses).collect();
        conditions.join(",")
    }
}

/// What is tried again where policy says nothing: once, what cannot have reached an application.
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

/// OSM `Retry`: what is tried again of the calls of one account to some services.
///
/// Invariant: `destinations` is not empty.
#[derive(Debug, Clone, Eq)]
pub struct Retry {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// Who calls.
    pub source: ServiceAccount,
    /// What it calls, by the names that callers say.
    pub destinations: Vec<RetryDestination>,
    /// What is tried again.
    pub retries: Retries,
    /// Where it is written.
    pub spot: Spot,
}

impl PartialEq for Retry {
    fn eq(&self, other: &Self) -> bool {
        let Self { namespace, name, source, destinations, retries, spot: _ } = self;
        (namespace, name, source, destinations, retries)
            == (&other.namespace, &other.name, &other.source, &other.destinations, &other.retries)
    }
}

/// One service that a [`Retry`] is about.
#[derive(Debug, Clone, Eq)]
pub struct RetryDestination {
    /// The service.
    pub service: ServiceName,
    /// Where it is written.
    pub spot: Spot,
}

impl PartialEq for RetryDestination {
    fn eq(&self, other: &Self) -> bool {
        self.service == other.service
    }
}
