//! Egress: calls to hosts and addresses outside the mesh, as routes of the listener that routes by
//! `Host` (docs/decisions/0035-egress.md).
//!
//! All of them leave by one cluster, which dials the request's host; the routes decide whether it
//! may. So no change of policy touches a cluster or a listener.

pub(crate) mod filters;
mod regex;
pub(crate) mod upstream;

use std::collections::{BTreeSet, HashMap};

use ironmesh_catalog::{
    EgressRuleByAddress, EgressRules, EgressRulesByHost, Hostname, HttpMatch, IpRange, Protocol,
    ServiceAccount, hosts,
};
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::route::v3::route_action::{
    ClusterSpecifier, UpgradeConfig, upgrade_config::ConnectConfig,
};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    HeaderMatcher, Route, RouteAction, RouteMatch, VirtualHost,
    header_matcher::HeaderMatchSpecifier, route, route_match::ConnectMatcher,
    route_match::PathSpecifier,
};
use ironmesh_xds_wire::pb::google::protobuf::Any;

use crate::caller_name::{CALLER, answer_naming_caller};
use crate::condition::route_match;
use crate::external;
use crate::http::{every_request, forward, protocol_options, reject_escaped_slashes};
use crate::limits::Limits;
use crate::mesh_view::MeshView;

/// The cluster by which calls to hosts without a service leave.
pub(crate) const CLUSTER: &str = "egress";

/// What an account may call outside the mesh, with the inputs for its routes.
pub(crate) struct EgressScope<'a> {
    pub(crate) mesh: MeshView<'a>,
    pub(crate) caller: &'a ServiceAccount,
    pub(crate) exits: EgressRules<'a>,
    /// Whether calls pass that no policy allows.
    pub(crate) passes_through: bool,
}

impl<'a> EgressScope<'a> {
    pub(crate) fn of(mesh: MeshView<'a>, caller: &'a ServiceAccount) -> Self {
        let passes_through = mesh.passes_through(&caller.namespace);
        // Passthrough covers these rules as well.
        let exits = if passes_through { EgressRules::default() } else { mesh.exits(caller) };
        Self { mesh, caller, exits, passes_through }
    }

    /// Whether any call may leave by the cluster.
    pub(crate) fn is_open(&self) -> bool {
        self.passes_through || !self.exits.is_empty()
    }

    /// The cluster by which calls leave, if any may.
    pub(crate) fn cluster(&self) -> Option<Cluster> {
        let limits = Limits::default();
        self.is_open().then(|| {
            external::passed_through(Cluster {
                name: CLUSTER.to_owned(),
                connect_timeout: limits.connect_timeout(),
                circuit_breakers: limits.circuit_breakers(),
                typed_extension_protocol_options: protocol_options(Protocol::Http, None),
                ..Cluster::default()
            })
        })
    }

    /// The virtual hosts of allowed hosts, and of those that stay closed although all others pass.
    /// Excludes domains in `used_domains`.
    pub(crate) fn virtual_hosts(&self, used_domains: &mut BTreeSet<String>) -> Vec<VirtualHost> {
        let of_exits = self.exits.by_host.iter().filter_map(|((host, port), exit)| {
            let domains = self.domains(host, *port, used_domains)?;
            let name = format!("egress|{host}:{port}");
            let routes = self.routes(host, *port, exit);
            Some(VirtualHost { name, domains, routes, ..VirtualHost::default() })
        });
        let mut all: Vec<_> = of_exits.collect();
        if self.passes_through {
            all.extend(self.closed(used_domains));
        }
        all
    }

    fn domains(
        &self,
        host: &Hostname,
        port: u16,
        used_domains: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        let with_port = format!("{host}:{port}");
        let plain = (port == 80).then(|| host.to_string());
        let mut domains: Vec<_> = plain.into_iter().chain([with_port]).collect();
        domains.retain(|host| !self.mesh.is_mesh_host(host) && used_domains.insert(host.clone()));
        (!domains.is_empty()).then_some(domains)
    }

    /// The virtual host of external services, which passthrough does not open to accounts without a
    /// grant.
    fn closed(&self, used_domains: &mut BTreeSet<String>) -> Option<VirtualHost> {
        let mut domains = Vec::new();
        for (external, port) in self.mesh.external_ports() {
            // A name without a port means port 80, or the only port.
            let outside = hosts::outside(external, &port, true);
            domains.extend(outside.into_iter().filter(|host| used_domains.insert(host.clone())));
        }
        let routes = vec![connect(connect_denied()), every_request(is_unknown())];
        let name = "closed".to_owned();
        let closed = VirtualHost { name, domains, routes, ..VirtualHost::default() };
        (!closed.domains.is_empty()).then_some(closed)
    }

    /// The routes of one host and port.
    fn routes(&self, host: &Hostname, port: u16, exit: &EgressRulesByHost<'_>) -> Vec<Route> {
        let connections = exit.connections.iter().map(|(egress, _)| &*egress.ip_addresses);
        let connect = match limit(connections) {
            None => connect(connect_denied()),
            Some(limit) => Route { typed_per_filter_config: limit, ..connect(to_be_bytes()) },
        };
        let requests = self.requests(exit);
        let text = format!(
            "ironmesh: {CALLER} may not ask this of {host}:{port} in plain HTTP: no egress allows it\n"
        );
        let rest = every_request(answer_naming_caller(403, text));
        [connect, reject_escaped_slashes()].into_iter().chain(requests).chain([rest]).collect()
    }

    /// The routes of allowed requests.
    fn requests(&self, exit: &EgressRulesByHost<'_>) -> Vec<Route> {
        let mut routes = Vec::new();
        for egress in &exit.requests {
            let limit = limit([&*egress.ip_addresses].into_iter()).unwrap_or_default();
            let mut allow = |conditions: &[&HttpMatch]| {
                routes.push(Route {
                    r#match: Some(route_match(conditions)),
                    action: Some(to_host()),
                    typed_per_filter_config: limit.clone(),
                    ..Route::default()
                });
            };
            if egress.matches.is_empty() {
                allow(&[]);
            }
            for one in self.mesh.matched(&egress.namespace, &egress.matches) {
                allow(&[one]);
            }
        }
        routes
    }

    /// The routes of hosts without a virtual host: addresses, and all others.
    pub(crate) fn unnamed(&self) -> Vec<Route> {
        let mut routes: Vec<_> =
            self.exits.by_address.iter().map(|(port, exits)| by_address(*port, exits)).collect();
        if self.passes_through {
            for mesh_host in regex::mesh_host_regexes(self.mesh) {
                let matcher = authority(mesh_host);
                routes.push(with(&matcher, connect(connect_denied())));
                routes.push(with(&matcher, every_request(is_unknown())));
            }
            routes.extend([connect(to_be_bytes()), reject_escaped_slashes()]);
            routes.push(every_request(to_host()));
        } else {
            routes.extend([connect(connect_denied()), every_request(is_unknown())]);
        }
        routes
    }
}

fn connect_denied() -> route::Action {
    answer_naming_caller(403, format!("ironmesh: no egress lets {CALLER} connect to this\n"))
}

fn is_unknown() -> route::Action {
    let text =
        format!("ironmesh: {CALLER} may call no service by this name; see its traffic targets\n");
    answer_naming_caller(404, text)
}

/// The route of connections to addresses. The request names the address, and the filter decides
/// whether it is allowed.
fn by_address(port: u16, exits: &[EgressRuleByAddress<'_>]) -> Route {
    let route = with(&authority(regex::addresses(port)), connect(to_be_bytes()));
    let ranges = exits.iter().flat_map(|one| &one.egress.ip_addresses).copied();
    // No egress lacks both hosts and addresses; it would be closed.
    let typed_per_filter_config = filters::limited(&ranges.collect::<Vec<_>>());
    Route { typed_per_filter_config, ..route }
}

/// The same route, with a further condition.
fn with(matcher: &HeaderMatcher, route: Route) -> Route {
    let narrowed = |one: RouteMatch| RouteMatch { headers: vec![matcher.clone()], ..one };
    Route { r#match: route.r#match.map(narrowed), ..route }
}

/// The filter that restricts calls to the addresses of these lists. It is empty if a list is empty,
/// which means "anywhere". `None` without lists.
fn limit<'a>(lists: impl Iterator<Item = &'a [IpRange]>) -> Option<HashMap<String, Any>> {
    let lists: Vec<_> = lists.collect();
    if lists.is_empty() {
        return None;
    }
    let is_anywhere = lists.iter().any(|list| list.is_empty());
    let ranges: BTreeSet<_> = lists.into_iter().flatten().copied().collect();
    let ranges: Vec<_> = ranges.into_iter().collect();
    Some(if is_anywhere { HashMap::new() } else { filters::limited(&ranges) })
}

fn to_host() -> route::Action {
    forward(RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(CLUSTER.to_owned())),
        // No retries: by then the host may have another address, and only the first was checked.
        ..RouteAction::default()
    })
}

/// Terminates CONNECT here: its payload continues as bytes.
fn to_be_bytes() -> route::Action {
    forward(RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(CLUSTER.to_owned())),
        upgrade_configs: vec![UpgradeConfig {
            upgrade_type: "CONNECT".to_owned(),
            connect_config: Some(ConnectConfig::default()),
            ..UpgradeConfig::default()
        }],
        ..RouteAction::default()
    })
}

/// The route of CONNECT, which no other route matches.
fn connect(action: route::Action) -> Route {
    let path = PathSpecifier::ConnectMatcher(ConnectMatcher {});
    Route {
        r#match: Some(RouteMatch { path_specifier: Some(path), ..RouteMatch::default() }),
        action: Some(action),
        ..Route::default()
    }
}

/// Matches the host, with its port if it has one.
fn authority(expression: String) -> HeaderMatcher {
    let value = crate::shape::regex(expression);
    HeaderMatcher {
        name: ":authority".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(value)),
        ..HeaderMatcher::default()
    }
}
