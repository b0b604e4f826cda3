//! Limits that a rate limit service counts, for all sidecars together
//! (`envoy.service.ratelimit.v3.RateLimitService`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where a rate limit service listens, for gRPC over HTTP/2 in plaintext.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RateLimitService {
    /// An IP address, or a name that proxies look up.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
}

impl RateLimitService {
    /// How long a sidecar waits for its answer where nothing is said.
    pub const TIMEOUT: Duration = Duration::from_millis(20);
}

impl fmt::Display for RateLimitService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// `rate_limit.global.http`: what a rate limit service is asked of each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalHttpLimit {
    /// Who is asked.
    pub service: RateLimitService,
    /// The limits of the service that are meant.
    pub domain: Arc<str>,
    /// What it is told of a request. Never empty.
    pub descriptors: Vec<Descriptor>,
    /// How long a request waits for the answer.
    pub timeout: Duration,
    /// Whether a request passes where there is no answer.
    pub fail_open: bool,
    /// Whether answers say how much is left, in `x-ratelimit-…`.
    pub enable_x_rate_limit_headers: bool,
    /// What one too many is answered with, from 400 to 599.
    pub status: u16,
}

/// `rate_limit.global.tcp`: what a rate limit service is asked of each connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalTcpLimit {
    /// Who is asked.
    pub service: RateLimitService,
    /// The limits of the service that are meant.
    pub domain: Arc<str>,
    /// What it is told of every connection: keys with values. Neither list is empty.
    pub descriptors: Vec<Vec<(Arc<str>, Arc<str>)>>,
    /// How long a connection waits for the answer.
    pub timeout: Duration,
    /// Whether a connection passes where there is no answer.
    pub fail_open: bool,
}

/// What is counted together: the requests of which all entries are the same. One of which some entry cannot
/// be said is not counted. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor(pub Vec<Entry>);

/// One entry of a [`Descriptor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The same of every request.
    GenericKey {
        /// `generic_key` where it is left out.
        key: Option<Arc<str>>,
        /// What is said.
        value: Arc<str>,
    },
    /// `remote_address`: where the request is from, as `x-forwarded-for` says, or else the connection.
    RemoteAddress,
    /// The value of a header; nothing where it is missing.
    RequestHeader {
        /// Its name, in lower case.
        name: Arc<str>,
        /// The key.
        key: Arc<str>,
    },
    /// What is said of requests whose headers meet all conditions, or of those whose do not.
    HeaderValueMatch {
        /// `header_match` where it is left out.
        key: Option<Arc<str>>,
        /// What is said.
        value: Arc<str>,
        /// The conditions. Never empty.
        headers: Vec<HeaderCondition>,
        /// Whether they must be met.
        expect_match: bool,
    },
}

/// What is wanted of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderCondition {
    /// Its name, in lower case.
    pub name: Arc<str>,
    /// What of it.
    pub wanted: Wanted,
}

/// What is wanted of the value of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// That it is this.
    Exact(Arc<str>),
    /// That it begins so.
    Prefix(Arc<str>),
    /// That it ends so.
    Suffix(Arc<str>),
    /// That it has this in it.
    Contains(Arc<str>),
    /// That the whole of it matches this expression.
    Regex(Arc<str>),
    /// That it is there, or is not.
    Present(bool),
}
