//! Policy objects, in SMI's words. Each remembers where it was written; two that say the same are equal,
//! wherever that is, so that a line more at the top of a file changes nothing.

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

/// A namespace, as far as policy says something of it. One that it says nothing of is there all the same.
#[derive(Debug, Clone, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: Name,
    /// What becomes of calls that no policy allows, where a service does not say; what the mesh says where
    /// it is left out.
    pub mode: Option<Mode>,
    /// What becomes of calls of its accounts to the outside that no policy allows; what the mesh says where
    /// it is left out.
    pub egress: Option<EgressMode>,
    /// Where it is written.
    pub spot: Spot,
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.mode, self.egress) == (&other.name, other.mode, other.egress)
    }
}

/// SMI `TrafficTarget`: these sources may call this destination in these ways.
///
/// Invariant: `sources` and `rules` are not empty. An empty list never means "anyone".
#[derive(Debug, Clone, Eq)]
pub struct TrafficTarget {
    /// Its namespace: that of its destination, and where its rules are looked up.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// Who may be called.
    pub destination: Subject,
    /// Who may call.
    pub sources: Vec<Subject>,
    /// What they may call.
    pub rules: Vec<RouteRule>,
    /// Where it is written.
    pub spot: Spot,
}

/// Whom a [`TrafficTarget`] is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// `kind = "ServiceAccount"`: all that runs as this account.
    Account(ServiceAccount),
    /// `kind = "IdentityBinding"`: all that the binding of this namespace and name says.
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

/// SMI `IdentityBinding`: a name for identities, given in up to three ways that add up.
///
/// What they come to in a mesh is said by [`Grants`](crate::Grants).
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
    /// The providers whose labels count besides those of join records and of lists in policy.
    pub trusted_providers: BTreeSet<Provider>,
    /// Where it is written.
    pub spot: Spot,
}

/// A SPIFFE ID of an [`IdentityBinding`].
#[derive(Debug, Clone, Eq)]
pub struct BoundIdentity {
    /// The ID.
    pub id: SpiffeId,
    /// Where it is written.
    pub spot: Spot,
}

/// One rule of a [`TrafficTarget`]. What it names is in the target's namespace.
#[derive(Debug, Clone, Eq)]
pub enum RouteRule {
    /// `kind = "HTTPRouteGroup"`.
    Http {
        /// The HTTP route group.
        group: Name,
        /// The matches of the group; all of them where the list is left out (SMI, against OSM).
        matches: Option<Vec<Name>>,
        /// Where it is written.
        spot: Spot,
    },
    /// `kind = "TCPRoute"`.
    Tcp {
        /// The TCP route.
        route: Name,
        /// Where it is written.
        spot: Spot,
    },
}

/// SMI `HTTPRouteGroup`: named ways to call.
#[derive(Debug, Clone, Eq)]
pub struct HttpRouteGroup {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// Its matches, in the order of the file.
    pub matches: Vec<HttpMatch>,
    /// Where it is written.
    pub spot: Spot,
}

/// One way to call: a request matches when all that is given here holds.
#[derive(Debug, Clone, Eq)]
pub struct HttpMatch {
    /// Its name, unique in the group.
    pub name: Name,
    /// The path without its query; any where it is left out.
    pub path: Option<PathRegex>,
    /// The methods; any where the list is empty.
    pub methods: Vec<Method>,
    /// Headers, by lower-case name: the whole value matches the expression. `host` is the
    /// request's host, without port and in lower case.
    pub headers: BTreeMap<Arc<str>, Arc<str>>,
    /// Where it is written.
    pub spot: Spot,
}

impl HttpMatch {
    /// An expression on `host` as one that matches the whole `:authority`, which is what Envoy compares:
    /// in any case, and with or without a port.
    pub fn whole_authority(expression: &str) -> String {
        format!("(?i:{expression})(?::[0-9]+)?")
    }
}

/// A regular expression on paths, anchored at its beginning only, as SMI has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRegex {
    /// As it is written.
    pub text: Arc<str>,
    /// The same for a text that has the query behind the path: it matches a path with any query, or
    /// none, exactly if `text` matches that path. None where Envoy would refuse it.
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
    /// Paths that no expression covers, as an expression that matches the whole path: those with a segment
    /// that is `.` or `..` for a server that takes path parameters off, as servlet containers do.
    /// `/books/..;x=1/admin` is `/admin` to them. What is plainly such a segment Envoy has resolved before
    /// it compares; but it does not look again at what it unescapes (`%2e%2e;`), and leaves `%3b`, which is
    /// `;` to servers that unescape first. No grant on a path is meant to cover these.
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

/// SMI `TCPRoute`: connections to these ports, whatever is said on them.
#[derive(Debug, Clone, Eq)]
pub struct TcpRoute {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The *service* ports; all of them where the list is left out.
    pub ports: Option<Vec<u16>>,
    /// Where it is written.
    pub spot: Spot,
}

impl TcpRoute {
    /// Whether it is about the service port `number`.
    pub fn covers(&self, number: u16) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.contains(&number))
    }
}

/// SMI `TrafficSplit`: calls of one service go to several, by weight. How all splits of a mesh act
/// together is worked out by [`Splits`](crate::splits::Splits).
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
    /// Which requests it is about: those that any of these matches. All calls where the list is empty.
    pub matches: Vec<SplitMatch>,
    /// Who answers.
    pub backends: Vec<SplitBackend>,
    /// Where it is written.
    pub spot: Spot,
}

impl TrafficSplit {
    /// Whether it is about some requests only.
    pub fn is_conditional(&self) -> bool {
        !self.matches.is_empty()
    }
}

/// Matches of an HTTP route group in the namespace of the [`TrafficSplit`] or of the [`Egress`].
#[derive(Debug, Clone, Eq)]
pub struct SplitMatch {
    /// The HTTP route group.
    pub group: Name,
    /// The matches of the group; all of them where the list is left out.
    pub matches: Option<Vec<Name>>,
    /// Where it is written.
    pub spot: Spot,
}

/// One backend of a [`TrafficSplit`].
#[derive(Debug, Clone, Eq)]
pub struct SplitBackend {
    /// The service that answers: the apex itself, or one that policy may not define yet.
    pub service: ServiceName,
    /// Its share, relative to the other backends. 0 = none.
    pub weight: u32,
    /// Where it is written.
    pub spot: Spot,
}

/// Equal are two that say the same, wherever they are written.
macro_rules! equal_by_what_they_say {
    ($($object:ident { $($field:ident),+ })+) => {$(
        impl PartialEq for $object {
            fn eq(&self, other: &Self) -> bool {
                // Taken apart, so that no field is forgotten.
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
