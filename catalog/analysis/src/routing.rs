//! Routing: where the calls of a service port go by traffic splits, in data that can be told and compared.

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

/// One of the branches of a service port's calls. The first whose conditions hold is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// What must hold of a request, all of it. Of the last branch nothing.
    pub conditions: Vec<Condition>,
    /// Who answers. Nobody where no backend with a weight has the port.
    pub shares: Vec<Share>,
}

/// What must hold of a request for a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The match that says so.
    pub by: Cited,
    /// What it says.
    pub way: AllowedTraffic,
}

/// What one service has of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The service.
    pub service: ServiceName,
    /// Its weight among the shares of the branch, at least 1.
    pub weight: u32,
}

impl Branch {
    pub(crate) fn of(path: &SplitPath<'_>) -> Self {
        let share = |(service, weight): &(&ServiceName, u32)| Share {
            service: (*service).clone(),
            weight: *weight,
        };
        Self {
            conditions: path.conditions.iter().map(|one| Condition::from(*one)).collect(),
            shares: path.backends.iter().map(share).collect(),
        }
    }

    /// The sum of the weights.
    pub fn sum(&self) -> u64 {
        self.shares.iter().map(|share| u64::from(share.weight)).sum()
    }

    /// Whether both send the same requests to the same, wherever that is written.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let ways = |branch: &Self| -> Vec<_> {
            branch.conditions.iter().map(|condition| condition.way.clone()).collect()
        };
        let (sum, of_other) = (u128::from(self.sum()), u128::from(other.sum()));
        let is_same = |(one, two): (&Share, &Share)| {
            one.service == two.service
                && u128::from(one.weight) * of_other == u128::from(two.weight) * sum
        };
        ways(self) == ways(other)
            && self.shares.len() == other.shares.len()
            && self.shares.iter().zip(&other.shares).all(is_same)
    }
}

impl From<&HttpMatch> for Condition {
    fn from(one: &HttpMatch) -> Self {
        let by = Cited { object: format!("match `{}`", one.name), spot: one.spot.clone() };
        Self { by, way: AllowedTraffic::from(one) }
    }
}

impl fmt::Display for Branch {
    /// The shares, in percent as far as that is whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = self.sum();
        let mut link = "";
        for Share { service, weight } in &self.shares {
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

/// The branches of a mesh.
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

    /// Of one service, and of those that its calls are led to, alone.
    pub(crate) fn from(specification: &'a MeshSpecification, service: &ServiceName) -> Self {
        let splits = Splits::of_specification(specification);
        Self { paths: splits.paths_from(service), splits }
    }

    /// The service ports that have splits, of those that it is about.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &ServicePort> {
        self.paths.keys()
    }

    /// Whether some condition on the way of its calls is about their host.
    pub(crate) fn compares_hosts(&self, port: &ServicePort) -> bool {
        let conditions = self.paths(port).into_iter().flat_map(|path| path.conditions);
        conditions.into_iter().any(|one| one.headers.contains_key("host"))
    }

    /// The paths of a service port, as the caller's sidecar has them: all to itself, where it has no
    /// split. None where there is no such port. (It must be one that this is about.)
    pub(crate) fn paths(&self, port: &ServicePort) -> Vec<SplitPath<'a>> {
        let nowhere = || SplitPath { conditions: Vec::new(), backends: Vec::new() };
        match self.paths.get(port) {
            Some(Ok(paths)) => paths.clone(),
            // The loader refuses too many; were they here all the same, nobody would answer.
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

    /// The same in data.
    pub(crate) fn branches(&self, port: &ServicePort) -> Vec<Branch> {
        self.paths(port).iter().map(Branch::of).collect()
    }

    /// The splits that act on the calls of a service port: its own, and then those behind them.
    pub(crate) fn splits_of(&self, port: &ServicePort) -> Vec<Cited> {
        let reached = self.reach(port, |backend| backend.weight > 0);
        let splits = reached.iter().flat_map(|port| self.splits_at(port));
        let cited = splits.map(|split| Cited {
            object: format!("traffic split `{}/{}`", split.namespace, split.name),
            spot: split.spot.clone(),
        });
        cited.collect()
    }

    /// A service port, and those that its calls are led to in turn by the backends that are `followed`.
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
            let is_led_to = |backend: &&SplitBackend| {
                followed(backend)
                    && own.is_some_and(|own| self.splits.has_like(&backend.service, own))
            };
            for backend in backends.filter(is_led_to) {
                let behind = ServicePort::new(backend.service.clone(), port.port);
                if known.insert(behind.clone()) {
                    reached.push(behind);
                }
            }
        }
        reached
    }

    /// The splits of a service that act on this port of it: on TCP no request meets a condition.
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

    fn branch(shares: &[(&str, u32)]) -> Branch {
        let share = |(service, weight): &(&str, u32)| Share {
            service: service.parse().unwrap(),
            weight: *weight,
        };
        Branch { conditions: Vec::new(), shares: shares.iter().map(share).collect() }
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
        assert!(nine.says_the_same(&branch(&[("a", 90), ("b", 10)])));
        assert!(!nine.says_the_same(&branch(&[("a", 90), ("b", 11)])));
        assert!(!nine.says_the_same(&branch(&[("a", 9)])));
        assert!(!nine.says_the_same(&branch(&[("a", 9), ("c", 1)])));
    }
}
