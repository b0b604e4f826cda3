//! Endpoints providers: where the processes of a service are.
//!
//! This crate turns what a platform knows into [`Discovered`] endpoints. It decides nothing about who
//! takes part in the mesh (the catalog does), and never touches policy.
//!
//! Now: [`fixed`] lists in policy, the proxies that joined ([`registered`]), and [`consul`]. Azure is to
//! stand beside them.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use ironmesh_catalog::{
    Discovered, Endpoint, EndpointSource, MeshSpecification, Providers, Records, ServiceName,
};

pub mod consul;
pub mod fixed;
mod provider;
pub mod registered;

pub use provider::{EndpointsProvider, Problem, Sighting, Sightings, Stale};

use registered::Registered;

/// The endpoints of all services, each from its own source, kept up to date.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    specification: Arc<MeshSpecification>,
    registered: Registered,
    discovered: Discovered,
}

impl Discovery {
    /// The endpoints of all services, as of now. It costs as much as has changed since the last time.
    pub fn discover(
        &mut self,
        specification: &Arc<MeshSpecification>,
        records: &Records,
    ) -> Discovered {
        let mut changed: BTreeSet<ServiceName> = self.registered.follow(records);
        if !Arc::ptr_eq(&self.specification, specification) {
            for item in self.specification.services.diff(&specification.services) {
                match item {
                    DiffItem::Add(name, _) | DiffItem::Update { new: (name, _), .. } => {
                        changed.insert(name.clone());
                    }
                    DiffItem::Remove(name, _) => {
                        self.discovered.0.remove(name);
                    }
                }
            }
            self.specification = Arc::clone(specification);
        }
        let subsets = |name| {
            let service = self.specification.services.get(name);
            service.map_or(&[][..], |service| service.subsets.as_slice())
        };
        let of_changed: Vec<_> = changed.iter().flat_map(subsets).cloned().collect();
        changed.extend(of_changed);
        for name in changed {
            let Some(endpoints) = self.endpoints(&name) else { continue };
            if self.discovered.0.get(&name).is_none_or(|known| **known != endpoints) {
                self.discovered.0.insert(name, Arc::new(endpoints));
            }
        }
        self.discovered.clone()
    }

    /// The endpoints of a service that policy defines.
    fn endpoints(&self, name: &ServiceName) -> Option<Vec<Endpoint>> {
        Some(match &self.specification.services.get(name)?.endpoints {
            EndpointSource::Providers(asked) => self.found(name, asked),
            EndpointSource::Hostname => Vec::new(),
            EndpointSource::Subset { of, labels } => {
                let asked = self.specification.services.get(of)?.endpoints.providers();
                let mut endpoints = asked.map_or_else(Vec::new, |asked| self.found(of, asked));
                endpoints.retain(|endpoint| endpoint.labels.include(labels));
                endpoints
            }
        })
    }

    /// What all providers together have found that a service asks.
    fn found(&self, name: &ServiceName, asked: &Providers) -> Vec<Endpoint> {
        let mut found = fixed::endpoints(&asked.fixed);
        if asked.registered {
            found.extend(self.registered.endpoints(name));
        }
        found
    }
}

/// The endpoints of all services, of one moment.
pub fn discover(specification: &Arc<MeshSpecification>, records: &Records) -> Discovered {
    Discovery::default().discover(specification, records)
}
