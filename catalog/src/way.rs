//! Ways to call: what one rule of a traffic target lets its sources do on one service port, in data that
//! can be compared and told.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::finding::Spot;
use crate::policy::telemetry::Telemetry;
use crate::policy::{
    Egress, HttpMatch, HttpRoute, HttpRouteGroup, IngressBackend, Retry, RouteRule, TcpRoute,
    TrafficTarget,
};
use crate::service::Port;
use crate::specification::MeshSpecification;

/// One way to call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Every request there is.
    EveryRequest,
    /// Connections, whatever is said on them.
    Connections,
    /// Requests of which all of this holds, as an [`HttpMatch`] has it.
    Requests {
        /// The methods; any where there is none.
        methods: Vec<Arc<str>>,
        /// The expression on the path.
        path: Option<Arc<str>>,
        /// The expressions on headers.
        headers: BTreeMap<Arc<str>, Arc<str>>,
    },
}

impl From<&HttpMatch> for Way {
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

impl Way {
    /// Whether all that `other` allows is allowed by this as well, as far as can be told without asking
    /// which texts two expressions share.
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::EveryRequest, Self::EveryRequest | Self::Requests { .. })
            | (Self::Connections, Self::Connections) => true,
            (
                Self::Requests { methods, path, headers },
                Self::Requests { methods: others, path: other_path, headers: other_headers },
            ) => {
                (methods.is_empty()
                    || (!others.is_empty() && others.iter().all(|one| methods.contains(one))))
                    && (path.is_none() || path == other_path)
                    && headers.iter().all(|(name, one)| other_headers.get(name) == Some(one))
            }
            _ => false,
        }
    }

    /// All ways that [include](Self::includes) this one, itself among them, if there are no more than `most`:
    /// they have some of its conditions each. It must be of one method, or of any.
    pub fn wider(&self, most: usize) -> Option<Vec<Self>> {
        let Self::Requests { methods, path, headers } = self else {
            return Some(vec![self.clone()]);
        };
        // Each of these is there or not.
        let conditions = [!methods.is_empty(), path.is_some()].into_iter().filter(|is| *is).count();
        let conditions = u32::try_from(conditions + headers.len()).ok()?;
        1_usize.checked_shl(conditions).filter(|all| *all <= most)?;
        let mut all = vec![BTreeMap::new()];
        for (name, expression) in headers {
            let mut with = all.clone();
            for headers in &mut with {
                headers.insert(Arc::clone(name), Arc::clone(expression));
            }
            all.append(&mut with);
        }
        let (mut wider, any) = (Vec::new(), Self::EveryRequest);
        for headers in all {
            for methods in [Vec::new(), methods.clone()].into_iter().skip(methods.is_empty().into())
            {
                for path in [None, path.clone()].into_iter().skip(path.is_none().into()) {
                    let headers = headers.clone();
                    let is_any = methods.is_empty() && path.is_none() && headers.is_empty();
                    let methods = methods.clone();
                    let some = || Self::Requests { methods, path, headers };
                    wider.push(if is_any { any.clone() } else { some() });
                }
            }
        }
        Some(wider)
    }

    /// The same as ways of one method each, or of any.
    pub fn by_method(self) -> Vec<Self> {
        match self {
            Self::Requests { methods, path, headers } if methods.len() > 1 => methods
                .into_iter()
                .map(|method| Self::Requests {
                    methods: vec![method],
                    path: path.clone(),
                    headers: headers.clone(),
                })
                .collect(),
            one => vec![one],
        }
    }
}

impl fmt::Display for Way {
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

/// An object of policy that is cited, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cited {
    /// What it is, with its name: ``traffic target `default/buyers` ``.
    pub object: String,
    /// Where it is written.
    pub spot: Spot,
}

impl Cited {
    /// A traffic target.
    pub fn target(target: &TrafficTarget) -> Self {
        let object = format!("traffic target `{}/{}`", target.namespace, target.name);
        Self { object, spot: target.spot.clone() }
    }

    /// An HTTP route.
    pub fn http_route(route: &HttpRoute) -> Self {
        let object = format!("HTTP route `{}/{}`", route.namespace, route.name);
        Self { object, spot: route.spot.clone() }
    }

    /// A retry.
    pub fn retry(retry: &Retry) -> Self {
        let object = format!("retry `{}/{}`", retry.namespace, retry.name);
        Self { object, spot: retry.spot.clone() }
    }

    /// An egress.
    pub fn egress(egress: &Egress) -> Self {
        let object = format!("egress `{}/{}`", egress.namespace, egress.name);
        Self { object, spot: egress.spot.clone() }
    }

    /// An ingress backend.
    pub fn ingress_backend(policy: &IngressBackend) -> Self {
        let object = format!("ingress backend `{}/{}`", policy.namespace, policy.name);
        Self { object, spot: policy.spot.clone() }
    }
}

impl From<&Telemetry> for Cited {
    fn from(telemetry: &Telemetry) -> Self {
        let object = format!("telemetry `{}/{}`", telemetry.namespace, telemetry.name);
        Self { object, spot: telemetry.spot.clone() }
    }
}

impl fmt::Display for Cited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.object, self.spot)
    }
}

/// What a rule allows on one port.
#[derive(Debug, Clone, Copy)]
pub enum Allowance<'a> {
    /// The requests that a match of a group is about.
    Match(&'a HttpRouteGroup, &'a HttpMatch),
    /// All of an HTTP port, by a TCP route.
    EveryRequest(&'a TcpRoute),
    /// All of a TCP port.
    Connections(&'a TcpRoute),
}

impl<'a> Allowance<'a> {
    /// The same in data.
    pub fn way(self) -> Way {
        match self {
            Self::Match(_, one) => Way::from(one),
            Self::EveryRequest(_) => Way::EveryRequest,
            Self::Connections(_) => Way::Connections,
        }
    }

    /// What says so.
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

    /// What must hold of a request, if anything.
    pub fn condition(self) -> Option<&'a HttpMatch> {
        match self {
            Self::Match(_, one) => Some(one),
            Self::EveryRequest(_) | Self::Connections(_) => None,
        }
    }
}

/// What a target lets its sources do on `port` of the services that it is about.
///
/// On HTTP these are the matches that its rules name; and all requests, where all its rules are TCP routes
/// and one of them covers the port. On TCP it is what its TCP routes cover.
pub fn allowances<'a>(
    specification: &'a MeshSpecification,
    target: &TrafficTarget,
    port: &Port,
) -> Vec<Allowance<'a>> {
    let namespace = &target.namespace;
    let is_http = port.protocol.is_http();
    let is_tcp_alone = target.rules.iter().all(|rule| matches!(rule, RouteRule::Tcp { .. }));
    let mut allowances = Vec::new();
    for rule in &target.rules {
        match rule {
            RouteRule::Http { group, matches, .. } if is_http => {
                let groups = &specification.http_route_groups;
                let Some(group) = groups.get(&(namespace.clone(), group.clone())) else { continue };
                let is_named = |one: &&HttpMatch| {
                    matches.as_ref().is_none_or(|names| names.contains(&one.name))
                };
                let matches = group.matches.iter().filter(is_named);
                allowances.extend(matches.map(|one| Allowance::Match(group, one)));
            }
            RouteRule::Tcp { route, .. } if !is_http || is_tcp_alone => {
                let route = specification.tcp_routes.get(&(namespace.clone(), route.clone()));
                let Some(route) = route.filter(|route| route.covers(port.number)) else { continue };
                allowances.push(if is_http {
                    Allowance::EveryRequest(route)
                } else {
                    Allowance::Connections(route)
                });
            }
            RouteRule::Http { .. } | RouteRule::Tcp { .. } => {}
        }
    }
    allowances
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(methods: &[&str], path: Option<&str>, tier: Option<&str>) -> Way {
        Way::Requests {
            methods: methods.iter().map(|one| (*one).into()).collect(),
            path: path.map(Into::into),
            headers: tier.map(|tier| ("x-tier".into(), tier.into())).into_iter().collect(),
        }
    }

    #[test]
    fn allowed_traffic_includes_stricter_conditions() {
        let narrow = way(&["GET"], Some("/a"), Some("gold"));
        for wide in [
            Way::EveryRequest,
            way(&["GET"], Some("/a"), Some("gold")),
            way(&[], Some("/a"), Some("gold")),
            way(&["GET", "PUT"], Some("/a"), Some("gold")),
            way(&["GET"], None, Some("gold")),
            way(&["GET"], Some("/a"), None),
        ] {
            assert!(wide.includes(&narrow), "{wide}");
            assert_eq!(narrow.includes(&wide), wide == narrow, "{wide}");
        }
        for other in [
            Way::Connections,
            way(&["PUT"], Some("/a"), Some("gold")),
            way(&["GET"], Some("/b"), Some("gold")),
            way(&["GET"], Some("/a"), Some("lead")),
        ] {
            assert!(!other.includes(&narrow), "{other}");
        }
        assert!(!way(&["GET"], None, None).includes(&way(&[], None, None)));
    }

    #[test]
    fn wider_allowed_traffic_is_exactly_the_including_set() {
        let mut all = vec![Way::EveryRequest, Way::Connections];
        for methods in [&[][..], &["GET"], &["PUT"]] {
            for path in [None, Some("/a"), Some("/b")] {
                for tier in [None, Some("gold"), Some("lead")] {
                    if !methods.is_empty() || path.is_some() || tier.is_some() {
                        all.push(way(methods, path, tier));
                    }
                }
            }
        }
        for narrow in &all {
            let wider = narrow.wider(8).unwrap();
            for wide in &all {
                assert_eq!(wider.contains(wide), wide.includes(narrow), "{wide} of {narrow}");
            }
        }
        let narrowest = way(&["GET"], Some("/a"), Some("gold"));
        assert_eq!(narrowest.wider(8).unwrap().len(), 8, "few to look for, however many there are");
        assert_eq!(narrowest.wider(7), None);
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
