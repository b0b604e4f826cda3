//! Traffic splits, indexed by the compiler's queries. Built once per policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::splits::Splits;
use ironmesh_catalog::{MeshSpecification, Service, ServiceName, ServicePort};

use crate::destination::Destination;

/// The destinations of splits, and their apexes and backends.
#[derive(Debug)]
pub(crate) struct SplitIndex {
    /// The destination of each port of a service with splits.
    destinations: BTreeMap<ServicePort, Arc<Destination>>,
    /// The apex ports of each backend port.
    apexes: BTreeMap<ServicePort, Vec<ServicePort>>,
    /// The apex services of each backend, whatever their ports; and the reverse.
    apexes_of: Links,
    backends_of: Links,
    has_circles: bool,
}

type Links = BTreeMap<ServiceName, BTreeSet<ServiceName>>;

impl SplitIndex {
    pub(crate) fn new(specification: &MeshSpecification) -> Self {
        let splits = Splits::of_specification(specification);
        let branches = splits.paths().into_iter();
        let destinations = branches.map(|(port, branches)| {
            // The loader rejects too many branches. Here they would mean a destination without
            // backends.
            let destination = branches.map_or_else(
                |_| Destination::nowhere(),
                |branches| Destination::of(&branches, port.port),
            );
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
        let (mut apexes_of, mut backends_of) = (Links::new(), Links::new());
        for split in specification.traffic_splits.values() {
            for backend in split.backends.iter().map(|backend| &backend.service) {
                apexes_of.entry(backend.clone()).or_default().insert(split.service.clone());
                backends_of.entry(split.service.clone()).or_default().insert(backend.clone());
            }
        }
        let has_circles = !splits.cycles().is_empty();
        Self { destinations: destinations.collect(), apexes, apexes_of, backends_of, has_circles }
    }

    /// These services, their apexes, and all backends of any of these. A caller that sees a service
    /// through a split may call one of the linked services directly.
    pub(crate) fn linked<'a>(
        &'a self,
        services: impl IntoIterator<Item = &'a ServiceName>,
    ) -> BTreeSet<&'a ServiceName> {
        let with_apexes = reached(services, &self.apexes_of);
        // The loader rejects circles. All splits together decide where a circle is cut.
        let all = self.backends_of.keys().filter(|_| self.has_circles);
        reached(with_apexes.into_iter().chain(all), &self.backends_of)
    }

    /// The destination of calls to a service port: itself, if it has no split.
    pub(crate) fn destination(&self, port: &ServicePort) -> Arc<Destination> {
        let known = self.destinations.get(port);
        known.map_or_else(|| Arc::new(Destination::to(port.clone())), Arc::clone)
    }

    /// Adds the apexes of these ports, transitively.
    pub(crate) fn add_apexes(&self, ports: &mut BTreeSet<ServicePort>) {
        let mut pending: Vec<_> = ports.iter().cloned().collect();
        while let Some(port) = pending.pop() {
            for apex in self.apexes.get(&port).into_iter().flatten() {
                if ports.insert(apex.clone()) {
                    pending.push(apex.clone());
                }
            }
        }
    }
}

fn reached<'a>(
    from: impl IntoIterator<Item = &'a ServiceName>,
    links: &'a Links,
) -> BTreeSet<&'a ServiceName> {
    let mut pending: Vec<_> = from.into_iter().collect();
    let mut reached = BTreeSet::new();
    while let Some(service) = pending.pop() {
        if reached.insert(service) {
            pending.extend(links.get(service).into_iter().flatten());
        }
    }
    reached
}
