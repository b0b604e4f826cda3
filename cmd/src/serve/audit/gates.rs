//! What lets a caller in, in strict: by this it is known whether a change of policy is about it.

use std::sync::Arc;

use ironmesh_catalog::{
    HttpRouteGroup, Name, RouteRule, Service, ServiceAccount, Snapshot, TcpRoute,
};

/// The rules of all traffic targets that let a caller call a service in some way.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Gates(Vec<Gate>);

/// What a rule says. Who else is let in by its target is no matter.
#[derive(Debug, PartialEq)]
struct Gate {
    rule: RouteRule,
    group: Option<Arc<HttpRouteGroup>>,
    route: Option<Arc<TcpRoute>>,
}

impl Gates {
    /// Looks at every traffic target.
    pub(super) fn of(snapshot: &Snapshot, caller: &ServiceAccount, service: &Service) -> Self {
        let grants = snapshot.grants.by_target().values().filter(|grant| {
            grant.destinations.contains(&service.account) && grant.sources.contains(caller)
        });
        let rules = grants.flat_map(|grant| {
            let namespace = &grant.target.namespace;
            grant.target.rules.iter().map(move |rule| gate(snapshot, namespace, rule))
        });
        Self(rules.collect())
    }
}

fn gate(snapshot: &Snapshot, namespace: &Name, rule: &RouteRule) -> Gate {
    let specification = &snapshot.specification;
    let key = |name: &Name| (namespace.clone(), name.clone());
    let (group, route) = match rule {
        RouteRule::Http { group, .. } => (specification.http_route_groups.get(&key(group)), None),
        RouteRule::Tcp { route, .. } => (None, specification.tcp_routes.get(&key(route))),
    };
    Gate { rule: rule.clone(), group: group.cloned(), route: route.cloned() }
}
