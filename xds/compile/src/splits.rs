//! Traffic splits, indexed by the compiler's queries. Built once per policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::splits::Splits;
use ironmesh_catalog::{MeshSpecification, Service, ServicePort};

use crate::destination::Destination;

/// The destinations of splits, and their apexes and backends.
#[derive(Debug)]
pub(crate) struct SplitIndex {
    /// The destination of each port of a service with splits.
    destinations: BTreeMap<ServicePort, Arc<Destination>>,
    /// The apex ports of each backend port.
    apexes: BTreeMap<ServicePort, Vec<ServicePort>>,
}

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
        Self { destinations: destinations.collect(), apexes }
    }

    /// The destination of calls to a service port: itself, if it has no split.
    pub(crate) fn destination(&self, port: &ServicePort) -> Arc<Destination> {
        let known = self.destinations.get(port);
        known.map_or_else(|| Arc::new(Destination::to(port.clone())), Arc::clone)
    }

    /// The ports with a split to this one.
    pub(crate) fn apexes(&self, backend: &ServicePort) -> &[ServicePort] {
        self.apexes.get(backend).map_or(&[], Vec::as_slice)
    }
}
