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
    /// The default time that a sidecar waits for its answer.
    pub const TIMEOUT: Duration = Duration::from_millis(20);
}

impl fmt::Display for RateLimitService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// `rate_limit.global.http`: the query to a rate limit service for each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalHttpLimit {
    /// The rate limit service.
    pub service: RateLimitService,
    /// The domain of the limits in that service.
    pub domain: Arc<str>,
    /// The descriptors of a request. Never empty.
    pub descriptors: Vec<Descriptor>,
    /// How long a request waits for the answer.
    pub timeout: Duration,
    /// Whether a request without an answer is allowed.
    pub fail_open: bool,
    /// Whether responses show the remaining quota, in `x-ratelimit-…`.
    pub enable_x_rate_limit_headers: bool,
    /// The status of rejected requests, from 400 to 599.
    pub status: u16,
}

/// `rate_limit.global.tcp`: the query to a rate limit service for each connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalTcpLimit {
    /// The rate limit service.
    pub service: RateLimitService,
    /// The domain of the limits in that service.
    pub domain: Arc<str>,
    /// The descriptors of every connection: keys with values. Neither list is empty.
    pub descriptors: Vec<Vec<(Arc<str>, Arc<str>)>>,
    /// How long a connection waits for the answer.
    pub timeout: Duration,
    /// Whether a connection without an answer is allowed.
    pub fail_open: bool,
}

/// The entries of one limit: requests with equal entries count together. A request without one of the entries is
/// not counted. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor(pub Vec<DescriptorEntry>);

/// One entry of a [`Descriptor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DescriptorEntry {
    /// The same value for every request.
    GenericKey {
        /// The key. Default: `generic_key`.
        key: Option<Arc<str>>,
        /// The value.
        value: Arc<str>,
    },
    /// `remote_address`: the source address, from `x-forwarded-for` or else from the connection.
    RemoteAddress,
    /// The value of a header. A request without the header has no such entry.
    RequestHeader {
        /// Its name, in lower case.
        name: Arc<str>,
        /// The key.
        key: Arc<str>,
    },
    /// A value for requests whose headers meet all conditions, or for those that do not.
    HeaderValueMatch {
        /// The key. Default: `header_match`.
        key: Option<Arc<str>>,
        /// The value.
        value: Arc<str>,
        /// The conditions. Never empty.
        headers: Vec<HeaderCondition>,
        /// Whether requests must meet the conditions, or must not.
        expect_match: bool,
    },
}

/// A condition on a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderCondition {
    /// Its name, in lower case.
    pub name: Arc<str>,
    /// The pattern of its value.
    pub pattern: HeaderPattern,
}

/// A pattern for the value of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderPattern {
    /// The value equals this text.
    Exact(Arc<str>),
    /// The value begins with this text.
    Prefix(Arc<str>),
    /// The value ends with this text.
    Suffix(Arc<str>),
    /// The value contains this text.
    Contains(Arc<str>),
    /// The whole value matches this expression.
    Regex(Arc<str>),
    /// The header is present, or absent.
    Present(bool),
}
