//! Fixed lists: the endpoints that policy names itself.

use ironmesh_catalog::{Endpoint, StaticEndpoint};

/// The endpoints of a list. Which proxy is in front of each follows from its address.
pub fn endpoints(list: &[StaticEndpoint]) -> Vec<Endpoint> {
    let endpoint = |one: &StaticEndpoint| Endpoint {
        address: one.address,
        port: one.port,
        weight: one.weight,
        proxy: None,
        labels: one.labels.clone(),
    };
    list.iter().map(endpoint).collect()
}
