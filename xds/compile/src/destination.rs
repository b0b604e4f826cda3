//! Where calls of a service port go, as routes of HTTP and as clusters of TCP.

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

/// Where calls of a service port go: the first of these paths whose conditions hold. The last has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination(Vec<ConditionalPath>);

/// One path, for requests that all of the conditions match.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ConditionalPath {
    conditions: Vec<HttpMatch>,
    /// Who answers, with their weights. Nobody, if none of those whom splits name is there and known to
    /// the caller.
    backends: Vec<(ServicePort, u32)>,
}

impl Destination {
    /// To one port, whatever is asked.
    pub(crate) fn to(port: ServicePort) -> Self {
        Self(vec![ConditionalPath { conditions: Vec::new(), backends: vec![(port, 1)] }])
    }

    /// Whether all goes to this port.
    pub(crate) fn is_to(&self, port: &ServicePort) -> bool {
        *self == Self::to(port.clone())
    }

    /// Where nobody answers.
    pub(crate) fn nowhere() -> Self {
        Self(vec![ConditionalPath { conditions: Vec::new(), backends: Vec::new() }])
    }

    /// Along these paths, to ports of this number.
    pub(crate) fn of(ways: &[SplitPath<'_>], number: u16) -> Self {
        let backends = |way: &SplitPath<'_>| {
            let backends = way.backends.iter();
            let port = |service: &_| ServicePort::new(Clone::clone(service), number);
            backends.map(|(service, weight)| (port(*service), *weight)).collect()
        };
        let way = |way: &SplitPath<'_>| ConditionalPath {
            conditions: way.conditions.iter().copied().cloned().collect(),
            backends: backends(way),
        };
        Self(ways.iter().map(way).collect())
    }

    /// The same for a caller that knows of these ports alone: the others get nothing of its calls.
    pub(crate) fn known_to_lead_to(&self, is_known: impl Fn(&ServicePort) -> bool) -> Self {
        let way = |way: &ConditionalPath| {
            let backends = way.backends.iter().filter(|(port, _)| is_known(port));
            ConditionalPath {
                conditions: way.conditions.clone(),
                backends: backends.cloned().collect(),
            }
        };
        Self(self.0.iter().map(way).collect())
    }

    /// The service ports that it leads to.
    pub(crate) fn service_ports(&self) -> BTreeSet<&ServicePort> {
        self.0.iter().flat_map(|way| &way.backends).map(|(port, _)| port).collect()
    }

    /// Where what goes on no condition goes: connections of which nothing is known, with their weights.
    pub(crate) fn unconditional(&self) -> &[(ServicePort, u32)] {
        self.0.last().map_or(&[], |way| &way.backends)
    }

    /// The same for requests alone that one of `allowed` matches, whose order is no matter.
    pub(crate) fn only_for(&self, allowed: &[&HttpMatch]) -> Self {
        let way = |one: &&HttpMatch| {
            let own = self.0.iter();
            let conditions = own.map(|way| [&[(*one).clone()], &way.conditions[..]].concat());
            let backends = self.0.iter().map(|way| way.backends.clone());
            let ways = conditions.zip(backends);
            ways.map(|(conditions, backends)| ConditionalPath { conditions, backends })
                .collect::<Vec<_>>()
        };
        Self(allowed.iter().flat_map(way).collect())
    }

    /// The routes that go there, for calls that are treated so.
    pub(crate) fn routes(
        &self,
        asked: &ServicePort,
        host: Host<'_>,
        treatments: &[Treatment<'_>],
        mirrors: Mirrors<'_>,
    ) -> Vec<Route> {
        let conditions: Vec<Vec<&HttpMatch>> =
            self.0.iter().map(|way| way.conditions.iter().collect()).collect();
        let route = |Crossing { conditions, treatment, way }: Crossing<'_>| {
            let (treated, way) = (treatments.get(treatment)?, self.0.get(way)?);
            let action = match treated.redirect() {
                Some(redirect) => route::Action::Redirect(treatment::redirect(redirect)),
                None => action(&way.backends, asked, host, treated, mirrors),
            };
            Some(treatment::route(route_match(&conditions), action, treated))
        };
        cross(treatments, &conditions).into_iter().filter_map(route).collect()
    }
}

/// What the host of requests is rewritten to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Host<'a> {
    /// To what policy says; if it says nothing, it stays.
    AsTreated,
    /// To this, if policy says nothing else.
    Other(&'a str),
    /// To nothing else: it says where the request goes.
    Kept,
}

fn action(
    backends: &[(ServicePort, u32)],
    asked: &ServicePort,
    host: Host<'_>,
    treatment: &Treatment<'_>,
    mirrors: Mirrors<'_>,
) -> route::Action {
    let clusters = match backends {
        [] => {
            let ServicePort { service, port } = asked;
            let words = format!(
                "ironmesh: no backend of {service} has a weight and port {port} and is for this caller\n"
            );
            return answer(503, words);
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
        mirrored.and_then(|one| Some((mirrors.port(asked, backends, one)?, one.percent)));
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
