//! Policy objects, in the terms of SMI.
//!
//! Each object has its location. Two objects with the same content are equal, wherever they are, so an added
//! line at the top of a file changes nothing. This module owns the objects as data. It never resolves
//! references between them.

mod fault;
mod http_route;
mod level;
mod locality;
mod message;
mod mirror;
mod rate_limit;
pub mod telemetry;
mod upstream_traffic_setting;

mod egress;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::endpoint::Provider;
use crate::finding::Spot;
use crate::identity::SpiffeId;
use crate::labels::Labels;
use crate::name::{Name, ServiceAccount, ServiceName};
use crate::service::Mode;
pub use fault::{Abort, AbortWith, Delay, Fault, Percent};
pub use http_route::{CallSettings, HttpRoute, Reach, Retries, Retry, RetryDestination};

pub use level::Level;
pub use locality::{Distribution, Failover, LocalitySetting, Nearness, PlaceRank};
pub use message::{HeaderChanges, PathChange, Redirect, Rewrite};
pub use mirror::Mirror;
pub use rate_limit::{
    Descriptor, DescriptorEntry, GlobalHttpLimit, GlobalTcpLimit, HeaderCondition, HeaderPattern,
    LimitedRoute, LocalHttpLimit, Rate, RateLimitService, RateUnit,
};
pub use upstream_traffic_setting::{
    HttpConnections, OutlierDetection, RetryLimit, TcpConnections, UpstreamTrafficSetting,
};

pub use egress::{Egress, EgressMode, EgressPort, EgressProtocol};

/// The settings of a namespace. A namespace without settings exists all the same.
#[derive(Debug, Clone, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: Name,
    /// The mode of services without one of their own. Default: that of the mesh.
    pub mode: Option<Mode>,
    /// The egress mode of its accounts. Default: that of the mesh.
    pub egress: Option<EgressMode>,
    /// Its location in policy.
    pub spot: Spot,
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.mode, self.egress) == (&other.name, other.mode, other.egress)
    }
}

/// SMI `TrafficTarget`: the sources may send the traffic of the rules to the destination.
///
/// Invariant: `sources` and `rules` are not empty. An empty list never means "anyone".
#[derive(Debug, Clone, Eq)]
pub struct TrafficTarget {
    /// Its namespace: that of its destination, and where its rules are looked up.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The accounts that may be called.
    pub destination: Subject,
    /// The accounts that may call.
    pub sources: Vec<Subject>,
    /// The traffic that they may send.
    pub rules: Vec<RouteRule>,
    /// Its location in policy.
    pub spot: Spot,
}

/// A subject of a [`TrafficTarget`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// `kind = "ServiceAccount"`: this account.
    Account(ServiceAccount),
    /// `kind = "IdentityBinding"`: the accounts of the binding with this namespace and name.
    Binding(Name, Name),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(account) => account.fmt(f),
            Self::Binding(namespace, name) => write!(f, "{namespace}/{name}"),
        }
    }
}

/// SMI `IdentityBinding`: a name for accounts, given in up to three forms that add up.
///
/// [`Grants`](crate::Grants) resolves them in a mesh.
#[derive(Debug, Clone, Eq)]
pub struct IdentityBinding {
    /// Its namespace, which is that of its account and of the endpoints that it selects.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// An account of the namespace.
    pub account: Option<ServiceAccount>,
    /// SPIFFE IDs, of any namespace.
    pub identities: Vec<BoundIdentity>,
    /// The accounts of the namespace all of whose endpoints have these labels. Never empty.
    pub endpoint_labels: Option<Labels>,
    /// The providers whose labels count, in addition to those of join records and static endpoints.
    pub trusted_providers: BTreeSet<Provider>,
    /// Its location in policy.
    pub spot: Spot,
}

/// A SPIFFE ID of an [`IdentityBinding`].
#[derive(Debug, Clone, Eq)]
pub struct BoundIdentity {
    /// The ID.
    pub id: SpiffeId,
    /// Its location in policy.
    pub spot: Spot,
}

/// One rule of a [`TrafficTarget`]. It refers to an object in the namespace of the target.
#[derive(Debug, Clone, Eq)]
pub enum RouteRule {
    /// `kind = "HTTPRouteGroup"`.
    Http {
        /// The HTTP route group.
        group: Name,
        /// The matches of the group. Default: all of them (as in SMI, unlike OSM).
        matches: Option<Vec<Name>>,
        /// Its location in policy.
        spot: Spot,
    },
    /// `kind = "TCPRoute"`.
    Tcp {
        /// The TCP route.
        route: Name,
        /// Its location in policy.
        spot: Spot,
    },
}

/// SMI `HTTPRouteGroup`: named matches of requests.
#[derive(Debug, Clone, Eq)]
pub struct HttpRouteGroup {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// Its matches, in the order of the file.
    pub matches: Vec<HttpMatch>,
    /// Its location in policy.
    pub spot: Spot,
}

impl HttpRouteGroup {
    /// Its matches with these names, in the order of the group. Default: all of them.
    pub fn named_matches<'a>(
        &'a self,
        names: Option<&'a [Name]>,
    ) -> impl Iterator<Item = &'a HttpMatch> {
        self.matches.iter().filter(move |one| names.is_none_or(|names| names.contains(&one.name)))
    }
}

/// A match of requests: all of its conditions must hold.
#[derive(Debug, Clone, Eq)]
pub struct HttpMatch {
    /// Its name, unique in the group.
    pub name: Name,
    /// The path without its query. Default: any path.
    pub path: Option<PathRegex>,
    /// The methods; any method if empty.
    pub methods: Vec<Method>,
    /// Headers, by lower-case name: the whole value matches the expression. `host` is the
    /// request's host, without port and in lower case.
    pub headers: BTreeMap<Arc<str>, Arc<str>>,
    /// Its location in policy.
    pub spot: Spot,
}

impl HttpMatch {
    /// The expression on `host`, extended to match the whole `:authority`, which Envoy compares: in any case,
    /// with or without a port.
    pub fn whole_authority(expression: &str) -> String {
        format!("(?i:{expression})(?::[0-9]+)?")
    }
}

/// A regular expression on paths, anchored at the start only, as in SMI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRegex {
    /// The text in policy.
    pub text: Arc<str>,
    /// The same for a text with a query after the path: it matches a path with or without a query exactly if
    /// `text` matches the path. None if Envoy would reject it.
    pub before_query: Option<Arc<str>>,
}

/// [`PathRegex::DISGUISED`] for texts in which a path consists of `$any` and a segment of `$within`, and which
/// `$end`.
macro_rules! disguised {
    ($any:literal, $within:literal, $end:literal) => {
        concat!(
            $any,
            r"(?:/|%2[fF]|%5[cC])(?:\.|%2[eE]){1,2}(?:(?:;|%3[bB])",
            $within,
            "*)?(?:(?:/|%2[fF]|%5[cC])",
            $any,
            ")?",
            $end
        )
    };
}

impl PathRegex {
    /// An expression for paths that no grant covers. It matches the whole path if a segment is `.` or `..` for
    /// a server that strips path parameters, as servlet containers do. They read `/books/..;x=1/admin` as
    /// `/admin`. Envoy resolves plain dot segments before it compares. But it does not re-examine what it
    /// unescapes (`%2e%2e;`), and it keeps `%3b`, which is `;` to servers that unescape first.
    ///
    /// Escaped slashes count as slashes here: a service that [keeps](crate::EscapedSlashes::Keep) them may
    /// unescape them first, and read `/books/..%2fadmin` as `/admin`.
    pub const DISGUISED: &str = disguised!("(?s:.*)", "[^/]", "");

    /// The same as an expression that matches the whole path with its query, if there is one.
    pub const DISGUISED_BEFORE_QUERY: &str = disguised!("[^?]*", "[^/?]", r"(?:\?(?s:.*))?");

    /// The same as an expression that matches the *whole* path, which is what Envoy compares.
    pub fn whole_path(&self) -> String {
        whole(&self.text)
    }

    /// The same as an expression that matches the whole path with its query, which is what Envoy has
    /// as the header `:path`.
    pub fn whole_path_and_query(&self) -> Option<String> {
        self.before_query.as_deref().map(whole)
    }
}

fn whole(text: &str) -> String {
    format!("(?:{text})(?s:.*)")
}

/// An HTTP method, compared exactly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Method(pub Arc<str>);

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// SMI `TCPRoute`: connections to these ports, whatever they transport.
#[derive(Debug, Clone, Eq)]
pub struct TcpRoute {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The *service* ports. Default: all of them.
    pub ports: Option<Vec<u16>>,
    /// Its location in policy.
    pub spot: Spot,
}

impl TcpRoute {
    /// Whether it applies to the service port `number`.
    pub fn covers(&self, number: u16) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.contains(&number))
    }
}

/// SMI `TrafficSplit`: distributes the calls of one service to several, by weight.
/// [`Splits`](crate::splits::Splits) combines all splits of a mesh.
///
/// Invariant: the weights sum to at least 1 and to at most `u32::MAX`.
#[derive(Debug, Clone, Eq)]
pub struct TrafficSplit {
    /// Its namespace, which is also that of the service and of the backends.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The service that callers name: the apex.
    pub service: ServiceName,
    /// The matches that select requests, any of which suffices. All calls if empty.
    pub matches: Vec<SplitMatch>,
    /// The destinations with their weights.
    pub backends: Vec<SplitBackend>,
    /// Its location in policy.
    pub spot: Spot,
}

impl TrafficSplit {
    /// Whether it applies to some requests only.
    pub fn is_conditional(&self) -> bool {
        !self.matches.is_empty()
    }
}

/// Matches of an HTTP route group in the namespace of the [`TrafficSplit`] or of the [`Egress`].
#[derive(Debug, Clone, Eq)]
pub struct SplitMatch {
    /// The HTTP route group.
    pub group: Name,
    /// The matches of the group. Default: all of them (as in SMI, unlike OSM).
    pub matches: Option<Vec<Name>>,
    /// Its location in policy.
    pub spot: Spot,
}

/// One backend of a [`TrafficSplit`].
#[derive(Debug, Clone, Eq)]
pub struct SplitBackend {
    /// The destination: the apex itself, or a service that policy may not define yet.
    pub service: ServiceName,
    /// Its weight, relative to the other backends; 0 means no calls.
    pub weight: u32,
    /// Its location in policy.
    pub spot: Spot,
}

/// Two are equal if their content is, wherever they are in policy.
macro_rules! equal_by_what_they_say {
    ($($object:ident { $($field:ident),+ })+) => {$(
        impl PartialEq for $object {
            fn eq(&self, other: &Self) -> bool {
                // Destructured, so that the compiler reports a forgotten field.
                let Self { $($field,)+ spot: _ } = self;
                $(*$field == other.$field)&&+
            }
        }
    )+};
}

equal_by_what_they_say! {
    TrafficTarget { namespace, name, destination, sources, rules }
    IdentityBinding {
        namespace, name, account, identities, endpoint_labels, trusted_providers
    }
    BoundIdentity { id }
    HttpRouteGroup { namespace, name, matches }
    HttpMatch { name, path, methods, headers }
    TcpRoute { namespace, name, ports }
    TrafficSplit { namespace, name, service, matches, backends }
    SplitMatch { group, matches }
    SplitBackend { service, weight }
}

mod ingress_backend;

pub use ingress_backend::{IngressBackend, IngressEntry, IngressPort, IngressSource};

impl PartialEq for RouteRule {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Http { group, matches, spot: _ },
                Self::Http { group: g, matches: m, spot: _ },
            ) => (group, matches) == (g, m),
            (Self::Tcp { route, spot: _ }, Self::Tcp { route: other, spot: _ }) => route == other,
            (Self::Http { .. }, Self::Tcp { .. }) | (Self::Tcp { .. }, Self::Http { .. }) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn disguised_path_is_detected_with_any_query() {
        let whole = |expression: &str| Regex::new(&format!(r"\A(?:{expression})\z")).unwrap();
        let alone = whole(PathRegex::DISGUISED);
        let before_query = whole(PathRegex::DISGUISED_BEFORE_QUERY);
        for (path, is_disguised) in [
            ("/", false),
            ("/a/..b/c", false),
            ("/a;x/b", false),
            ("/a/..", true),
            ("/a/.%2E;x=1/b", true),
            ("/..%3bx", true),
            ("/a/%2e;/b/c", true),
        ] {
            assert_eq!(alone.is_match(path), is_disguised, "{path}");
            for query in ["", "?", "?x=/../y", "?/..;"] {
                let path = format!("{path}{query}");
                assert_eq!(before_query.is_match(&path), is_disguised, "{path}");
            }
        }
    }
}
