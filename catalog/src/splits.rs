//! Traffic splits, flattened: the final destinations of the calls of a service.
//!
//! A split may apply to some requests only, a service may have several, and a backend may have splits of its own.
//! This module owns their combination. It never decides visibility or access.
//!
//! ```text
//! store ─ matches beta ──▶ next
//!       └ otherwise ─ 9 ─▶ v1                      store:  beta         → next
//!                   └ 1 ─▶ v2 ─ matches beta ─▶ v3         (otherwise)  → v1 9, v2 1
//!                              └ otherwise ───▶ v2
//! ```
//!
//! Start reading at [`Splits`].

mod product;
mod weights;

use std::collections::{BTreeMap, BTreeSet};

use crate::name::{Name, ServiceName, ServicePort};
use crate::policy::{HttpMatch, HttpRouteGroup, SplitBackend, TrafficSplit};
use crate::service::{Port, Service};
use crate::specification::MeshSpecification;
use product::SplitPaths;
pub(crate) use product::{both, is_unreachable};

/// All splits of a mesh, with the services and matches that they name.
///
/// It does not rely on validation: a missing service gets no traffic.
#[derive(Debug)]
pub struct Splits<'a> {
    services: BTreeMap<&'a ServiceName, &'a Service>,
    groups: BTreeMap<(&'a Name, &'a Name), &'a HttpRouteGroup>,
    of: BTreeMap<&'a ServiceName, Vec<&'a TrafficSplit>>,
    /// The services that have splits, each after its backends.
    order: Vec<&'a ServiceName>,
    cycles: Vec<SplitCycle<'a>>,
}

/// One path for the calls of a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitPath<'a> {
    /// A request follows this path if all of these match it and no earlier path applies. The last path of a service
    /// port has no conditions.
    pub conditions: Vec<&'a HttpMatch>,
    /// The destinations by name, each once and with a weight of at least 1. The weights sum to at most `u32::MAX`.
    /// Empty if no destination exists.
    pub backends: Vec<(&'a ServiceName, u32)>,
}

/// The error that the splits of a service make more paths than [`MAX_PATHS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyPaths {
    /// Whether the splits of a backend alone have too many paths.
    pub is_in_backend: bool,
}

/// A cycle of splits: each service is a backend of the one before, and the first a backend of the last.
#[derive(Debug)]
pub struct SplitCycle<'a> {
    /// The services, in the order of the cycle.
    pub services: Vec<&'a ServiceName>,
    /// The backend of the last service that closes the cycle.
    pub back: &'a SplitBackend,
}

/// The most paths for the calls of one service port. Envoy evaluates them one after the other.
pub const MAX_PATHS: usize = 256;

impl<'a> Splits<'a> {
    /// The splits of a specification.
    pub fn of_specification(specification: &'a MeshSpecification) -> Self {
        Self::new(
            specification.services.values().map(|one| &**one),
            specification.http_route_groups.values().map(|one| &**one),
            specification.traffic_splits.values().map(|one| &**one),
        )
    }

    /// These splits, in any order.
    pub fn new(
        services: impl IntoIterator<Item = &'a Service>,
        groups: impl IntoIterator<Item = &'a HttpRouteGroup>,
        splits: impl IntoIterator<Item = &'a TrafficSplit>,
    ) -> Self {
        let mut of: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for split in splits {
            of.entry(&split.service).or_default().push(split);
        }
        for splits in of.values_mut() {
            splits.sort_by_key(|split| (!split.is_conditional(), &split.name));
        }
        let mut splits = Self {
            services: services.into_iter().map(|service| (&service.name, service)).collect(),
            groups: groups.into_iter().map(|one| ((&one.namespace, &one.name), one)).collect(),
            of,
            order: Vec::new(),
            cycles: Vec::new(),
        };
        splits.follow();
        splits
    }

    /// The services that have splits, by name, each with its splits in the order of evaluation: conditional splits by
    /// their names, then the one for all requests.
    pub fn iter(&self) -> impl Iterator<Item = (&'a ServiceName, &[&'a TrafficSplit])> {
        self.of.iter().map(|(service, splits)| (*service, splits.as_slice()))
    }

    /// The splits of one service.
    pub fn of(&self, service: &ServiceName) -> &[&'a TrafficSplit] {
        self.of.get(service).map_or(&[], Vec::as_slice)
    }

    /// The service of that name, if there is one.
    pub fn service(&self, name: &ServiceName) -> Option<&'a Service> {
        self.services.get(name).copied()
    }

    /// The cycles, each listed once.
    pub fn cycles(&self) -> &[SplitCycle<'a>] {
        &self.cycles
    }

    /// The paths of each port of each service that has splits.
    pub fn paths(&self) -> BTreeMap<ServicePort, Result<Vec<SplitPath<'a>>, TooManyPaths>> {
        self.paths_for(self.order.iter().copied())
    }

    /// The paths of one service, and of those that its calls reach by splits.
    pub fn paths_from(
        &self,
        service: &ServiceName,
    ) -> BTreeMap<ServicePort, Result<Vec<SplitPath<'a>>, TooManyPaths>> {
        let mut reached = BTreeSet::from([service]);
        let mut next = vec![service];
        while let Some(service) = next.pop() {
            let backends = self.of(service).iter().flat_map(|split| &split.backends);
            next.extend(backends.map(|one| &one.service).filter(|one| reached.insert(*one)));
        }
        self.paths_for(self.order.iter().copied().filter(|one| reached.contains(*one)))
    }

    /// The paths of these services, each listed after its backends.
    fn paths_for(
        &self,
        services: impl Iterator<Item = &'a ServiceName>,
    ) -> BTreeMap<ServicePort, Result<Vec<SplitPath<'a>>, TooManyPaths>> {
        let mut known = FinishedPaths::new();
        for service in services {
            for (service_port, port) in
                self.service(service).into_iter().flat_map(Service::service_ports)
            {
                let paths = self.paths_of(&service_port, port, &known);
                known.insert(service_port, paths);
            }
        }
        known
            .into_iter()
            .map(|(port, paths)| (port, paths.map(|SplitPaths(paths)| paths)))
            .collect()
    }

    /// The paths of one service port, given those of its backends. Backends in a cycle get no traffic.
    fn paths_of(
        &self,
        service_port: &ServicePort,
        port: &Port,
        known: &FinishedPaths<'a>,
    ) -> Result<SplitPaths<'a>, TooManyPaths> {
        let mut paths = SplitPaths::default();
        for split in self.of(&service_port.service) {
            if !split.is_conditional() {
                paths.extend(&[], &self.split_paths(split, port, known)?)?;
                return Ok(paths);
            }
            if !port.protocol.is_http() {
                continue;
            }
            let split_paths = self.split_paths(split, port, known)?;
            for condition in self.matches(split) {
                paths.extend(&[condition], &split_paths)?;
            }
        }
        let own = self.service(&service_port.service).map(|service| &service.name);
        paths.extend(&[], &SplitPaths::to(own.into_iter().map(|own| (own, 1)).collect()))?;
        Ok(paths)
    }

    /// The paths of one split, regardless of its condition.
    fn split_paths(
        &self,
        split: &'a TrafficSplit,
        port: &Port,
        known: &FinishedPaths<'a>,
    ) -> Result<SplitPaths<'a>, TooManyPaths> {
        let mut parts = Vec::new();
        for backend in split.backends.iter().filter(|backend| backend.weight > 0) {
            // SMI: a backend without the port gets no traffic. (`config` warns.)
            if !self.has_like(&backend.service, port) {
                continue;
            }
            let service_port = ServicePort::new(backend.service.clone(), port.number);
            let is_leaf =
                backend.service == split.service || !self.of.contains_key(&backend.service);
            let paths = if is_leaf {
                SplitPaths::to(vec![(&backend.service, 1)])
            } else {
                match known.get(&service_port) {
                    Some(Ok(paths)) => paths.clone(),
                    Some(Err(_)) => return Err(TooManyPaths { is_in_backend: true }),
                    None => continue,
                }
            };
            parts.push((backend.weight, paths));
        }
        SplitPaths::product(&parts)
    }

    /// Whether a service has a port of the same number and kind of protocol: HTTP cannot be sent to plain TCP,
    /// nor the reverse.
    pub fn has_like(&self, service: &ServiceName, port: &Port) -> bool {
        let own = self.service(service).and_then(|service| service.port(port.number));
        own.is_some_and(|own| own.protocol.is_http() == port.protocol.is_http())
    }

    /// The matches of a conditional split, any of which selects a request.
    fn matches(&self, split: &'a TrafficSplit) -> impl Iterator<Item = &'a HttpMatch> {
        split.matches.iter().flat_map(|named| {
            let group = self.groups.get(&(&split.namespace, &named.group));
            group.into_iter().flat_map(|group| group.named_matches(named.matches.as_deref()))
        })
    }

    /// Walks the splits from each service, depth first. A finished service enters the order, and a backend on
    /// the current path closes a cycle. A backend that is the apex itself is neither.
    fn follow(&mut self) {
        let mut done: BTreeSet<&ServiceName> = BTreeSet::new();
        for start in self.of.keys() {
            // An explicit stack, because users choose the depth. Each entry is a service of the path from
            // `start`, with the number of its backends that the walk has visited.
            let mut path: Vec<(&'a ServiceName, usize)> = vec![(start, 0)];
            let mut is_on_path = BTreeSet::from([*start]);
            while let Some((service, followed)) = path.last_mut() {
                let service: &'a ServiceName = service;
                let backends = || self.of(service).iter().flat_map(|split| &split.backends);
                let next = if done.contains(service) { None } else { backends().nth(*followed) };
                let Some(backend) = next else {
                    if done.insert(service) {
                        self.order.push(service);
                    }
                    path.pop();
                    is_on_path.remove(service);
                    continue;
                };
                *followed += 1;
                if backend.service == *service || !self.of.contains_key(&backend.service) {
                    continue;
                }
                if is_on_path.insert(&backend.service) {
                    path.push((&backend.service, 0));
                } else {
                    let own = path.iter().map(|(service, _)| *service);
                    let services = own.skip_while(|one| **one != backend.service).collect();
                    self.cycles.push(SplitCycle { services, back: backend });
                }
            }
        }
    }
}

/// The paths of the service ports that the walk has finished.
type FinishedPaths<'a> = BTreeMap<ServicePort, Result<SplitPaths<'a>, TooManyPaths>>;

#[cfg(test)]
mod tests;
