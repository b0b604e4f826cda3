//! Endpoints providers: where the processes of a service are.
//!
//! This crate turns what a platform knows into [`Discovered`] endpoints. It decides nothing about who
//! takes part in the mesh (the catalog does), and never touches policy.
//!
//! Now: [`fixed`] lists in policy, and the proxies that joined ([`registered`]). Consul and Azure are
//! to stand beside them.

use std::sync::Arc;

use ironmesh_catalog::{Discovered, EndpointSource, JoinRecord, MeshSpecification};

pub mod fixed;
pub mod registered;

/// The endpoints of all services, each from its own source.
pub fn discover(specification: &MeshSpecification, records: &[JoinRecord]) -> Discovered {
    let mut registered = registered::endpoints(records);
    let services = specification.services.iter().map(|(name, service)| {
        let endpoints = match &service.endpoints {
            EndpointSource::Static(list) => fixed::endpoints(list),
            EndpointSource::Registered => registered.remove(name).unwrap_or_default(),
        };
        (name.clone(), Arc::new(endpoints))
    });
    Discovered(services.collect())
}
