//! Fixed lists: the endpoints that policy names itself.

use ironmesh_catalog::{Endpoint, Provider, StaticEndpoint};

/// The endpoints of a list. Which proxy is in front of each follows from its address.
pub fn endpoints(list: &[StaticEndpoint]) -> Vec<Endpoint> {
    let endpoint = |one: &StaticEndpoint| Endpoint {
        port: one.port,
        weight: one.weight,
        labels: one.labels.clone(),
        locality: one.locality.clone(),
        ..Endpoint::new(Provider::Static, one.address)
    };
    list.iter().map(endpoint).collect()
}
