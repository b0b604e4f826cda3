//! Static lists: the endpoints that policy itself defines.

use ironmesh_catalog::{Endpoint, Provider, StaticEndpoint};

/// The endpoints of a static list. The address of each decides which proxy it belongs to.
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
