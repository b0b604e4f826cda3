//! The traffic that policy allows on a service port: the one definition of the meaning of rules in traffic
//! targets.
//!
//! The compiler, verdicts, differences, findings and the checks of the policy language all use it, so that they
//! agree. [`crate::grants`] resolves the accounts of a target.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cited::Cited;
use crate::name::Name;
use crate::policy::{HttpMatch, HttpRouteGroup, RouteRule, TcpRoute, TrafficTarget};
use crate::service::Port;
use crate::specification::MeshSpecification;

/// The requests or connections that one rule allows on one port, as data for comparison and display.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllowedTraffic {
    /// Every request.
    EveryRequest,
    /// Connections, whatever they transport.
    Connections,
    /// Requests that meet all of these conditions, as in a match of an HTTP route group.
    Requests {
        /// The methods; any method if empty.
        methods: Vec<Arc<str>>,
        /// The expression that the path must match.
        path: Option<Arc<str>>,
        /// The expressions that headers must match.
        headers: BTreeMap<Arc<str>, Arc<str>>,
    },
}

impl From<&HttpMatch> for AllowedTraffic {
    fn from(one: &HttpMatch) -> Self {
        let HttpMatch { name: _, path, methods, headers, spot: _ } = one;
        if path.is_none() && methods.is_empty() && headers.is_empty() {
            return Self::EveryRequest;
        }
        let mut methods: Vec<_> = methods.iter().map(|method| Arc::clone(&method.0)).collect();
        methods.sort();
        Self::Requests {
            methods,
            path: path.as_ref().map(|path| Arc::clone(&path.text)),
            headers: headers.clone(),
        }
    }
}

impl fmt::Display for AllowedTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EveryRequest => f.write_str("every request"),
            Self::Connections => f.write_str("connections"),
            Self::Requests { methods, path, headers } => {
                match &methods[..] {
                    [] => f.write_str("any method")?,
                    some => f.write_str(&some.join(", "))?,
                }
                match path {
                    Some(path) => write!(f, " on `{path}`")?,
                    None => f.write_str(" on any path")?,
                }
                let mut link = " with";
                for (name, expression) in headers {
                    write!(f, "{link} {name} `{expression}`")?;
                    link = " and";
                }
                Ok(())
            }
        }
    }
}

/// A rule of a traffic target that allows traffic on one port, with the object that it names.
#[derive(Debug, Clone, Copy)]
pub enum AllowingRule<'a> {
    /// It allows the requests that a match of a group selects.
    Match(&'a HttpRouteGroup, &'a HttpMatch),
    /// It allows every request of an HTTP port, through a TCP route.
    EveryRequest(&'a TcpRoute),
    /// It allows connections to a TCP port.
    Connections(&'a TcpRoute),
}

impl<'a> AllowingRule<'a> {
    /// The traffic that it allows.
    pub fn traffic(self) -> AllowedTraffic {
        match self {
            Self::Match(_, one) => AllowedTraffic::from(one),
            Self::EveryRequest(_) => AllowedTraffic::EveryRequest,
            Self::Connections(_) => AllowedTraffic::Connections,
        }
    }

    /// The match or the TCP route that it names.
    pub fn cited(self) -> Cited {
        match self {
            Self::Match(HttpRouteGroup { namespace, name, .. }, one) => Cited {
                object: format!("match `{}` of route group `{namespace}/{name}`", one.name),
                spot: one.spot.clone(),
            },
            Self::EveryRequest(route) | Self::Connections(route) => Cited {
                object: format!("TCP route `{}/{}`", route.namespace, route.name),
                spot: route.spot.clone(),
            },
        }
    }

    /// The match that a request must meet; `None` if it allows every request or connection.
    pub fn condition(self) -> Option<&'a HttpMatch> {
        match self {
            Self::Match(_, one) => Some(one),
            Self::EveryRequest(_) | Self::Connections(_) => None,
        }
    }
}

/// The rules of one traffic target that apply to a port, as far as the target itself determines them.
///
/// It needs no route group and no TCP route, so it also serves drafts of policy in which some are missing.
#[derive(Debug, Clone, Copy)]
pub struct ApplicableRules {
    tcp_routes_allow_requests: bool,
}

impl ApplicableRules {
    /// The rules of `target` that apply to ports.
    pub fn new(target: &TrafficTarget) -> Self {
        let mut rules = target.rules.iter();
        Self { tcp_routes_allow_requests: rules.all(|rule| matches!(rule, RouteRule::Tcp { .. })) }
    }

    /// Whether TCP routes of the target apply to HTTP ports too, where they allow every request.
    ///
    /// Only those of a target without HTTP rules do (SMI leaves that open; OSM answers 404).
    pub fn tcp_routes_allow_requests(self) -> bool {
        self.tcp_routes_allow_requests
    }

    /// Whether `rule` of the target applies to a port. `route_covers` looks up whether the TCP route of a name
    /// covers the port; it also decides about a route that is missing.
    pub fn include(
        self,
        rule: &RouteRule,
        is_http: bool,
        route_covers: impl FnOnce(&Name) -> bool,
    ) -> bool {
        self.include_kind(rule, is_http)
            && match rule {
                RouteRule::Http { .. } => true,
                RouteRule::Tcp { route, .. } => route_covers(route),
            }
    }

    /// Whether `rule` applies to HTTP ports or, unless `is_http`, to TCP ports.
    fn include_kind(self, rule: &RouteRule, is_http: bool) -> bool {
        match rule {
            RouteRule::Http { .. } => is_http,
            RouteRule::Tcp { .. } => !is_http || self.tcp_routes_allow_requests,
        }
    }
}

impl MeshSpecification {
    /// The rules of `target` that allow traffic on `port` of its destinations, in their order in policy.
    ///
    /// On an HTTP port these are the matches that its HTTP rules name, or else the TCP routes that cover it, as
    /// [`ApplicableRules`] decides. On a TCP port these are the TCP routes that cover it.
    pub fn allowing_rules<'a>(
        &'a self,
        target: &'a TrafficTarget,
        port: &Port,
    ) -> impl Iterator<Item = AllowingRule<'a>> {
        let (number, is_http) = (port.number, port.protocol.is_http());
        let applicable = ApplicableRules::new(target);
        let rules = target.rules.iter().filter(move |rule| applicable.include_kind(rule, is_http));
        rules.flat_map(move |rule| {
            let (group, names, route) = match rule {
                RouteRule::Http { group, matches, .. } => {
                    let key = (target.namespace.clone(), group.clone());
                    (self.http_route_groups.get(&key), matches.as_deref(), None)
                }
                RouteRule::Tcp { route, .. } => (None, None, self.tcp_route(target, route)),
            };
            let matches = group.into_iter().flat_map(move |group| {
                group.named_matches(names).map(|one| AllowingRule::Match(group, one))
            });
            let route = route.filter(|route| route.covers(number)).map(|route| {
                if is_http {
                    AllowingRule::EveryRequest(route)
                } else {
                    AllowingRule::Connections(route)
                }
            });
            matches.chain(route)
        })
    }

    /// Whether a rule of `target` applies to `port`: then the port is in the scope of its sources.
    ///
    /// It ignores the contents of HTTP route groups, so an edit of a group never changes a scope. In a
    /// validated specification every rule names a match, so the result equals whether there are any
    /// [`allowing_rules`](Self::allowing_rules).
    pub fn has_rule_about(&self, target: &TrafficTarget, port: &Port) -> bool {
        let applicable = ApplicableRules::new(target);
        let covers = |route: &Name| {
            self.tcp_route(target, route).is_some_and(|route| route.covers(port.number))
        };
        target.rules.iter().any(|rule| applicable.include(rule, port.protocol.is_http(), covers))
    }

    /// The TCP route that a rule of `target` names.
    fn tcp_route(&self, target: &TrafficTarget, route: &Name) -> Option<&TcpRoute> {
        let key = (target.namespace.clone(), route.clone());
        self.tcp_routes.get(&key).map(|route| &**route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(methods: &[&str], path: Option<&str>, tier: Option<&str>) -> AllowedTraffic {
        AllowedTraffic::Requests {
            methods: methods.iter().map(|one| (*one).into()).collect(),
            path: path.map(Into::into),
            headers: tier.map(|tier| ("x-tier".into(), tier.into())).into_iter().collect(),
        }
    }

    #[test]
    fn allowed_traffic_is_displayed_as_one_line() {
        let words = way(&["GET", "PUT"], Some("/a"), Some("gold")).to_string();
        assert_eq!(words, "GET, PUT on `/a` with x-tier `gold`");
        assert_eq!(
            way(&[], None, Some("gold")).to_string(),
            "any method on any path with x-tier `gold`"
        );
    }
}
