//! Routing: the destinations of calls to a service port, as traffic splits set them.
//!
//! This module owns branches as data for verdicts and plans. It never evaluates splits itself; the model does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ironmesh_catalog::allowed_traffic::AllowedTraffic;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::name::{ServiceName, ServicePort};
use ironmesh_catalog::policy::{HttpMatch, SplitBackend, TrafficSplit};
use ironmesh_catalog::service::{Port, Service};
use ironmesh_catalog::specification::MeshSpecification;
use ironmesh_catalog::splits::{SplitPath, Splits, TooManyPaths};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One branch of the calls of a service port. A request follows the first branch whose conditions it meets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SplitBranch {
    /// The conditions that a request must meet, all of them. The last branch has none.
    pub conditions: Vec<MatchCondition>,
    /// The destinations with their weights. Empty if no backend with a weight has the port.
    pub shares: Vec<WeightedService>,
}

/// A condition on requests, from a match of an HTTP route group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MatchCondition {
    /// The match that sets it.
    pub by: Cited,
    /// The requests that meet it.
    pub traffic: AllowedTraffic,
}

/// A destination of a branch with its weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WeightedService {
    /// The service.
    pub service: ServiceName,
    /// Its weight among the shares of the branch, at least 1.
    pub weight: u32,
}

impl SplitBranch {
    pub(crate) fn of(path: &SplitPath<'_>) -> Self {
        let share = |(service, weight): &(&ServiceName, u32)| WeightedService {
            service: (*service).clone(),
            weight: *weight,
        };
        Self {
            conditions: path.conditions.iter().map(|one| MatchCondition::from(*one)).collect(),
            shares: path.backends.iter().map(share).collect(),
        }
    }

    /// The sum of the weights.
    pub fn sum(&self) -> u64 {
        self.shares.iter().map(|share| u64::from(share.weight)).sum()
    }

    /// Whether both send the same requests to the same destinations in the same ratio, wherever they are defined.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let conditions = |branch: &Self| -> Vec<_> {
            branch.conditions.iter().map(|condition| condition.traffic.clone()).collect()
        };
        let (sum, of_other) = (u128::from(self.sum()), u128::from(other.sum()));
        let is_same = |(one, two): (&WeightedService, &WeightedService)| {
            one.service == two.service
                && u128::from(one.weight) * of_other == u128::from(two.weight) * sum
        };
        conditions(self) == conditions(other)
            && self.shares.len() == other.shares.len()
            && self.shares.iter().zip(&other.shares).all(is_same)
    }
}

impl From<&HttpMatch> for MatchCondition {
    fn from(one: &HttpMatch) -> Self {
        let by = Cited { object: format!("match `{}`", one.name), spot: one.spot.clone() };
        Self { by, traffic: AllowedTraffic::from(one) }
    }
}

impl fmt::Display for SplitBranch {
    /// Writes the destinations with their shares, in percent if that is a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = self.sum();
        let mut link = "";
        for WeightedService { service, weight } in &self.shares {
            let hundreds = u64::from(*weight) * 100;
            match hundreds.checked_rem(sum) {
                _ if self.shares.len() == 1 => write!(f, "all to {service}")?,
                Some(0) => write!(f, "{link}{} % {service}", hundreds / sum)?,
                _ => write!(f, "{link}{weight}/{sum} {service}")?,
            }
            link = ", ";
        }
        if self.shares.is_empty() {
            f.write_str("no destination: no backend with a weight has the port")?;
        }
        Ok(())
    }
}

/// The traffic splits that affect the calls of a service port, its own and those of its backends, and the branches that
/// the calls follow. Without a split, all calls go to the port itself.
pub fn split_branches(
    specification: &MeshSpecification,
    port: &ServicePort,
) -> (Vec<Cited>, Vec<SplitBranch>) {
    let routing = Routing::from(specification, &port.service);
    (routing.splits_of(port), routing.branches(port))
}

/// The branches of the service ports of a mesh.
#[derive(Debug)]
pub(crate) struct Routing<'a> {
    splits: Splits<'a>,
    paths: BTreeMap<ServicePort, Result<Vec<SplitPath<'a>>, TooManyPaths>>,
}

impl<'a> Routing<'a> {
    pub(crate) fn of(specification: &'a MeshSpecification) -> Self {
        let splits = Splits::of_specification(specification);
        Self { paths: splits.paths(), splits }
    }

    /// The branches of one service, and of the services that its calls reach by splits.
    pub(crate) fn from(specification: &'a MeshSpecification, service: &ServiceName) -> Self {
        let splits = Splits::of_specification(specification);
        Self { paths: splits.paths_from(service), splits }
    }

    /// The covered service ports that have splits.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &ServicePort> {
        self.paths.keys()
    }

    /// Whether any condition on the calls of a port compares their host.
    pub(crate) fn compares_hosts(&self, port: &ServicePort) -> bool {
        let conditions = self.paths(port).into_iter().flat_map(|path| path.conditions);
        conditions.into_iter().any(|one| one.headers.contains_key("host"))
    }

    /// The paths of a covered service port in the caller's sidecar. Without a split, all calls go to the port
    /// itself. Empty if there is no such port.
    pub(crate) fn paths(&self, port: &ServicePort) -> Vec<SplitPath<'a>> {
        let nowhere = || SplitPath { conditions: Vec::new(), backends: Vec::new() };
        match self.paths.get(port) {
            Some(Ok(paths)) => paths.clone(),
            // The loader rejects too many paths. If they arrived here all the same, the calls would have no destination.
            Some(Err(_)) => vec![nowhere()],
            None => {
                let service = self.splits.service(&port.service);
                let service = service.filter(|service| service.port(port.port).is_some());
                let to_itself = |service: &'a Service| SplitPath {
                    conditions: Vec::new(),
                    backends: vec![(&service.name, 1)],
                };
                service.map(to_itself).into_iter().collect()
            }
        }
    }

    /// The branches of a service port, as data.
    pub(crate) fn branches(&self, port: &ServicePort) -> Vec<SplitBranch> {
        self.paths(port).iter().map(SplitBranch::of).collect()
    }

    /// The splits that affect the calls of a service port: its own, then those of their backends.
    pub(crate) fn splits_of(&self, port: &ServicePort) -> Vec<Cited> {
        let reached = self.reach(port, |backend| backend.weight > 0);
        let splits = reached.iter().flat_map(|port| self.splits_at(port));
        let cited = splits.map(|split| Cited {
            object: format!("traffic split `{}/{}`", split.namespace, split.name),
            spot: split.spot.clone(),
        });
        cited.collect()
    }

    /// A service port, and all ports that its calls reach by `followed` backends.
    pub(crate) fn reach(
        &self,
        from: &ServicePort,
        followed: impl Fn(&SplitBackend) -> bool,
    ) -> Vec<ServicePort> {
        let mut reached = vec![from.clone()];
        let mut known = BTreeSet::from([from.clone()]);
        let mut next = 0;
        while let Some(port) = reached.get(next).cloned() {
            next += 1;
            let own = self.port(&port);
            let backends = self.splits_at(&port).flat_map(|split| &split.backends);
            let is_followed = |backend: &&SplitBackend| {
                followed(backend)
                    && own.is_some_and(|own| self.splits.has_like(&backend.service, own))
            };
            for backend in backends.filter(is_followed) {
                let next_port = ServicePort::new(backend.service.clone(), port.port);
                if known.insert(next_port.clone()) {
                    reached.push(next_port);
                }
            }
        }
        reached
    }

    /// The splits of a service that affect this port: on TCP, splits with conditions have no effect.
    fn splits_at(&self, port: &ServicePort) -> impl Iterator<Item = &'a TrafficSplit> {
        let of_service = self.splits.of(&port.service).iter().copied();
        let own = self.port(port);
        of_service.filter(move |split| {
            own.is_some_and(|own| own.protocol.is_http() || !split.is_conditional())
        })
    }

    fn port(&self, port: &ServicePort) -> Option<&'a Port> {
        self.splits.service(&port.service)?.port(port.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(shares: &[(&str, u32)]) -> SplitBranch {
        let share = |(service, weight): &(&str, u32)| WeightedService {
            service: service.parse().unwrap(),
            weight: *weight,
        };
        SplitBranch { conditions: Vec::new(), shares: shares.iter().map(share).collect() }
    }

    #[test]
    fn shares_are_shown_in_whole_percent_or_as_fractions() {
        assert_eq!(branch(&[("a", 9), ("b", 1)]).to_string(), "90 % default/a, 10 % default/b");
        assert_eq!(branch(&[("a", 2), ("b", 1)]).to_string(), "2/3 default/a, 1/3 default/b");
        assert_eq!(branch(&[("a", 7)]).to_string(), "all to default/a");
        assert!(branch(&[]).to_string().starts_with("no destination"));
    }

    #[test]
    fn branches_with_equal_weight_ratios_are_equal() {
        let nine = branch(&[("a", 9), ("b", 1)]);
        assert!(nine.is_equivalent(&branch(&[("a", 90), ("b", 10)])));
        assert!(!nine.is_equivalent(&branch(&[("a", 90), ("b", 11)])));
        assert!(!nine.is_equivalent(&branch(&[("a", 9)])));
        assert!(!nine.is_equivalent(&branch(&[("a", 9), ("c", 1)])));
    }
}
