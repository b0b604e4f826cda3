//! Destinations of calls to a service port, as HTTP routes and TCP clusters.

use std::collections::BTreeSet;

use ironmesh_catalog::http_routes::{Crossing, Treatment, cross};
use ironmesh_catalog::splits::SplitPath;
use ironmesh_catalog::{HttpMatch, ServicePort};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    Route, RouteAction, WeightedCluster, route,
    route_action::{ClusterSpecifier, HostRewriteSpecifier},
    weighted_cluster::ClusterWeight,
};

use crate::condition::route_match;
use crate::http::{answer, forward};
use crate::mirrors::Mirrors;
use crate::shape::{duration, number};
use crate::treatment;

/// The destination of calls to a service port: the first branch whose conditions hold. The last has
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination(Vec<Branch>);

/// One branch, for requests that satisfy all conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Branch {
    conditions: Vec<HttpMatch>,
    /// The backends with their weights. Empty if no backend named by splits exists and is visible
    /// to the caller.
    backends: Vec<(ServicePort, u32)>,
}

impl Destination {
    /// The destination of a port without splits.
    pub(crate) fn to(port: ServicePort) -> Self {
        Self(vec![Branch { conditions: Vec::new(), backends: vec![(port, 1)] }])
    }

    /// Whether everything goes to this port.
    pub(crate) fn is_to(&self, port: &ServicePort) -> bool {
        *self == Self::to(port.clone())
    }

    /// The destination without backends.
    pub(crate) fn nowhere() -> Self {
        Self(vec![Branch { conditions: Vec::new(), backends: Vec::new() }])
    }

    /// The destination by the branches of a split, to ports of this number.
    pub(crate) fn of(branches: &[SplitPath<'_>], number: u16) -> Self {
        let backends = |branch: &SplitPath<'_>| {
            let backends = branch.backends.iter();
            let port = |service: &_| ServicePort::new(Clone::clone(service), number);
            backends.map(|(service, weight)| (port(*service), *weight)).collect()
        };
        let branch = |branch: &SplitPath<'_>| Branch {
            conditions: branch.conditions.iter().copied().cloned().collect(),
            backends: backends(branch),
        };
        Self(branches.iter().map(branch).collect())
    }

    /// The same for a caller that sees these ports only: the other backends get none of its calls.
    pub(crate) fn restricted_to(&self, is_known: impl Fn(&ServicePort) -> bool) -> Self {
        let branch = |branch: &Branch| {
            let backends = branch.backends.iter().filter(|(port, _)| is_known(port));
            Branch { conditions: branch.conditions.clone(), backends: backends.cloned().collect() }
        };
        Self(self.0.iter().map(branch).collect())
    }

    /// The service ports of all backends.
    pub(crate) fn service_ports(&self) -> BTreeSet<&ServicePort> {
        self.0.iter().flat_map(|branch| &branch.backends).map(|(port, _)| port).collect()
    }

    /// The backends of the branch without conditions, with their weights. It takes TCP connections.
    pub(crate) fn unconditional(&self) -> &[(ServicePort, u32)] {
        self.0.last().map_or(&[], |branch| &branch.backends)
    }

    /// The same, only for requests that one of `allowed` matches, whose order does not matter.
    pub(crate) fn only_for(&self, allowed: &[&HttpMatch]) -> Self {
        let branch = |one: &&HttpMatch| {
            let own = self.0.iter();
            let conditions = own.map(|branch| [&[(*one).clone()], &branch.conditions[..]].concat());
            let backends = self.0.iter().map(|branch| branch.backends.clone());
            let branches = conditions.zip(backends);
            branches
                .map(|(conditions, backends)| Branch { conditions, backends })
                .collect::<Vec<_>>()
        };
        Self(allowed.iter().flat_map(branch).collect())
    }

    /// The routes to this destination, for calls with these treatments.
    pub(crate) fn routes(
        &self,
        called: &ServicePort,
        host: Host<'_>,
        treatments: &[Treatment<'_>],
        mirrors: Mirrors<'_>,
    ) -> Vec<Route> {
        let conditions: Vec<Vec<&HttpMatch>> =
            self.0.iter().map(|branch| branch.conditions.iter().collect()).collect();
        let route = |Crossing { conditions, treatment, path: branch }: Crossing<'_>| {
            let (treated, branch) = (treatments.get(treatment)?, self.0.get(branch)?);
            let action = match treated.redirect() {
                Some(redirect) => route::Action::Redirect(treatment::redirect(redirect)),
                None => action(&branch.backends, called, host, treated, mirrors),
            };
            Some(treatment::route(route_match(&conditions), action, treated))
        };
        cross(treatments, &conditions).into_iter().filter_map(route).collect()
    }
}

/// The rewrite of a request's host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Host<'a> {
    /// As policy says, otherwise unchanged.
    AsTreated,
    /// To this host, unless policy says otherwise.
    Other(&'a str),
    /// Unchanged: the host decides where the request goes.
    Kept,
}

fn action(
    backends: &[(ServicePort, u32)],
    called: &ServicePort,
    host: Host<'_>,
    treatment: &Treatment<'_>,
    mirrors: Mirrors<'_>,
) -> route::Action {
    let clusters = match backends {
        [] => {
            let ServicePort { service, port } = called;
            let body = format!(
                "ironmesh: no backend of {service} has a weight and port {port} and is for this caller\n"
            );
            return answer(503, body);
        }
        [(port, _)] => ClusterSpecifier::Cluster(port.to_string()),
        several => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: several.iter().map(|(port, weight)| cluster_weight(port, *weight)).collect(),
            ..WeightedCluster::default()
        }),
    };
    let rewrite = treatment.rewrite();
    let treated_host = rewrite.and_then(|rewrite| rewrite.host.as_deref());
    let host = match host {
        Host::AsTreated => treated_host,
        Host::Other(host) => Some(treated_host.unwrap_or(host)),
        Host::Kept => None,
    };
    let mirrored = treatment.mirror();
    let mirrored =
        mirrored.and_then(|one| Some((mirrors.port(called, backends, one)?, one.percent)));
    forward(RouteAction {
        cluster_specifier: Some(clusters),
        timeout: treatment.timeout().map(duration),
        retry_policy: treatment::retry_policy(&treatment.retries()),
        regex_rewrite: rewrite.and_then(|rewrite| rewrite.path.as_ref()).map(treatment::rewritten),
        host_rewrite_specifier: host
            .map(|host| HostRewriteSpecifier::HostRewriteLiteral(host.to_owned())),
        request_mirror_policies: mirrored
            .map(|(port, percent)| treatment::mirrored(&port, percent))
            .into_iter()
            .collect(),
        ..RouteAction::default()
    })
}

fn cluster_weight(port: &ServicePort, weight: u32) -> ClusterWeight {
    ClusterWeight { name: port.to_string(), weight: number(weight), ..ClusterWeight::default() }
}
