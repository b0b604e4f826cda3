//! Traffic splits, indexed by what the compiler asks of them. Built once per policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::splits::Splits;
use ironmesh_catalog::{MeshSpecification, Service, ServiceName, ServicePort};

use crate::destination::Destination;

/// Where splits lead, and who is in front of whom.
#[derive(Debug)]
pub(crate) struct SplitIndex {
    /// Of each port of a service that has splits.
    destinations: BTreeMap<ServicePort, Arc<Destination>>,
    /// The ports of the apexes in front of a backend's.
    apexes: BTreeMap<ServicePort, Vec<ServicePort>>,
    /// Of each backend the services that have it, whatever their ports; and the other way round.
    in_front: Links,
    behind: Links,
    has_circles: bool,
}

type Links = BTreeMap<ServiceName, BTreeSet<ServiceName>>;

impl SplitIndex {
    pub(crate) fn new(specification: &MeshSpecification) -> Self {
        let splits = Splits::of_specification(specification);
        let ways = splits.paths().into_iter();
        let destinations = ways.map(|(port, ways)| {
            // The loader refuses too many. Were they here all the same, nobody would answer.
            let destination = ways
                .map_or_else(|_| Destination::nowhere(), |ways| Destination::of(&ways, port.port));
            (port, Arc::new(destination))
        });
        let mut apexes: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (apex, of_service) in splits.iter() {
            let ports = splits.service(apex).into_iter().flat_map(Service::service_ports);
            for (apex, port) in ports {
                for split in of_service {
                    if split.is_conditional() && !port.protocol.is_http() {
                        continue;
                    }
                    let backends = split.backends.iter().map(|backend| &backend.service);
                    for backend in backends.filter(|backend| splits.has_like(backend, port)) {
                        let backend = ServicePort::new(backend.clone(), port.number);
                        apexes.entry(backend).or_default().push(apex.clone());
                    }
                }
            }
        }
        let (mut in_front, mut behind) = (Links::new(), Links::new());
        for split in specification.traffic_splits.values() {
            for backend in split.backends.iter().map(|backend| &backend.service) {
                in_front.entry(backend.clone()).or_default().insert(split.service.clone());
                behind.entry(split.service.clone()).or_default().insert(backend.clone());
            }
        }
        let has_circles = !splits.circles().is_empty();
        Self { destinations: destinations.collect(), apexes, in_front, behind, has_circles }
    }

    /// These services, those in front of them, and all that is behind any of these. Whom a split lets know
    /// of one of these services may call one of the linked by itself.
    pub(crate) fn linked<'a>(
        &'a self,
        services: impl IntoIterator<Item = &'a ServiceName>,
    ) -> BTreeSet<&'a ServiceName> {
        let in_front = reached(services, &self.in_front);
        // The loader refuses circles. Where one is cut depends on all splits.
        let all = self.behind.keys().filter(|_| self.has_circles);
        reached(in_front.into_iter().chain(all), &self.behind)
    }

    /// Where calls of a service port go: to itself, where it has no split.
    pub(crate) fn destination(&self, port: &ServicePort) -> Arc<Destination> {
        let known = self.destinations.get(port);
        known.map_or_else(|| Arc::new(Destination::to(port.clone())), Arc::clone)
    }

    /// Adds the ports of the apexes in front of these, and in front of those.
    pub(crate) fn add_apexes(&self, ports: &mut BTreeSet<ServicePort>) {
        let mut to_follow: Vec<_> = ports.iter().cloned().collect();
        while let Some(port) = to_follow.pop() {
            for apex in self.apexes.get(&port).into_iter().flatten() {
                if ports.insert(apex.clone()) {
                    to_follow.push(apex.clone());
                }
            }
        }
    }
}

fn reached<'a>(
    from: impl IntoIterator<Item = &'a ServiceName>,
    links: &'a Links,
) -> BTreeSet<&'a ServiceName> {
    let mut to_follow: Vec<_> = from.into_iter().collect();
    let mut reached = BTreeSet::new();
    while let Some(service) = to_follow.pop() {
        if reached.insert(service) {
            to_follow.extend(links.get(service).into_iter().flatten());
        }
    }
    reached
}
