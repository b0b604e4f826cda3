//! The register: a proxy that joined as a service is an endpoint of it, with no provider at all.

use std::collections::BTreeMap;

use ironmesh_catalog::{Endpoint, JoinRecord, ServiceName};

/// One endpoint for each service of each record, at the address that the proxy joined with.
pub fn endpoints(records: &[JoinRecord]) -> BTreeMap<ServiceName, Vec<Endpoint>> {
    let mut endpoints: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for record in records {
        for service in &record.services {
            endpoints.entry(service.clone()).or_default().push(Endpoint {
                address: record.mesh_address.ip(),
                port: None,
                weight: 1,
                proxy: Some(record.id),
            });
        }
    }
    endpoints
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{Participation, ProxyId};

    use super::*;

    #[test]
    fn a_proxy_is_an_endpoint_of_every_service_that_it_joined_as() {
        let record = JoinRecord {
            id: ProxyId("6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap()),
            services: vec!["a".parse().unwrap(), "shop/b".parse().unwrap()],
            mesh_address: "10.0.0.1:15003".parse().unwrap(),
            joined_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            certificate_expires_at: "2027-01-01T00:00:00Z".parse().unwrap(),
            claimed_at: None,
            participation: Participation::default(),
        };
        let endpoints = endpoints(std::slice::from_ref(&record));
        assert_eq!(endpoints.len(), 2);
        for found in endpoints.values() {
            let [one] = found.as_slice() else { panic!("{found:?}") };
            // Its key ties it to its proxy, also where two proxies share an address.
            assert_eq!((one.proxy, one.port), (Some(record.id), None));
        }
    }
}
