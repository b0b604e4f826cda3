//! Registered endpoints: each enrolled proxy is an endpoint of its services, without any other
//! provider.
//!
//! This module owns the index of join records by service. It never reads the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use ironmesh_catalog::{Endpoint, JoinRecord, Provider, ProxyId, Records, ServiceName};

/// The enrolled proxies, by service.
#[derive(Debug, Clone, Default)]
pub struct Registered {
    records: Records,
    by_service: BTreeMap<ServiceName, BTreeMap<ProxyId, Arc<JoinRecord>>>,
}

impl Registered {
    /// Takes the newest join records, and returns the services whose proxies were added, removed or
    /// moved.
    pub fn follow(&mut self, records: &Records) -> BTreeSet<ServiceName> {
        let mut changed = BTreeSet::new();
        for item in self.records.diff(records) {
            let (before, after) = match item {
                DiffItem::Add(_, after) => (None, Some(after)),
                DiffItem::Remove(_, before) => (Some(before), None),
                DiffItem::Update { old, new } => (Some(old.1), Some(new.1)),
            };
            // A change of the certificate state does not change endpoints.
            let is_same_place = |(one, other): (&Arc<JoinRecord>, &Arc<JoinRecord>)| {
                (&one.services, one.mesh_address.ip(), one.machine, &one.labels, &one.locality)
                    == (
                        &other.services,
                        other.mesh_address.ip(),
                        other.machine,
                        &other.labels,
                        &other.locality,
                    )
            };
            if before.zip(after).is_some_and(is_same_place) {
                continue;
            }
            if let Some(record) = before {
                for service in &record.services {
                    if let Some(proxies) = self.by_service.get_mut(service) {
                        proxies.remove(&record.id);
                    }
                    changed.insert(service.clone());
                }
            }
            if let Some(record) = after {
                for service in &record.services {
                    let proxies = self.by_service.entry(service.clone()).or_default();
                    proxies.insert(record.id, Arc::clone(record));
                    changed.insert(service.clone());
                }
            }
        }
        self.records = records.clone();
        changed
    }

    /// Returns one endpoint for each proxy that is enrolled for the service, at its mesh address,
    /// with its labels and locality.
    pub fn endpoints(&self, service: &ServiceName) -> Vec<Endpoint> {
        let proxies = self.by_service.get(service).into_iter().flatten();
        let endpoint = |record: &Arc<JoinRecord>| Endpoint {
            proxy: Some(record.id),
            machine: record.machine,
            labels: record.labels.clone(),
            locality: record.locality.clone(),
            ..Endpoint::new(Provider::Registered, record.mesh_address.ip())
        };
        proxies.map(|(_, record)| endpoint(record)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(address: &str) -> JoinRecord {
        JoinRecord::new(
            ProxyId("6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap()),
            vec!["a".parse().unwrap(), "shop/b".parse().unwrap()],
            address.parse().unwrap(),
            "2026-01-01T00:00:00Z".parse().unwrap(),
            "2027-01-01T00:00:00Z".parse().unwrap(),
        )
    }

    fn records(records: &[JoinRecord]) -> Records {
        records.iter().map(|record| (record.id, Arc::new(record.clone()))).collect()
    }

    #[test]
    fn proxy_is_an_endpoint_of_each_enrolled_service() {
        let mut registered = Registered::default();
        let record = record("10.0.0.1:15003");
        let changed = registered.follow(&records(std::slice::from_ref(&record)));
        assert_eq!(changed.len(), 2);
        for service in &record.services {
            let found = registered.endpoints(service);
            let [one] = found.as_slice() else { panic!("{found:?}") };
            // The proxy id ties the endpoint to its proxy, even if two proxies share an address.
            assert_eq!((one.proxy, one.port), (Some(record.id), None));
        }
    }

    #[test]
    fn endpoints_follow_only_their_join_records() {
        let mut registered = Registered::default();
        let (mut here, there) = (record("10.0.0.1:15003"), record("10.0.0.2:15003"));
        registered.follow(&records(std::slice::from_ref(&here)));
        here.claimed_at = Some(here.enrolled_at);
        assert!(registered.follow(&records(std::slice::from_ref(&here))).is_empty());
        assert_eq!(registered.follow(&records(std::slice::from_ref(&there))).len(), 2);
        let service = &there.services[0];
        let moved = JoinRecord { locality: "eu/1".parse().unwrap(), ..there.clone() };
        assert_eq!(registered.follow(&records(std::slice::from_ref(&moved))).len(), 2);
        assert_eq!(registered.endpoints(service)[0].locality, moved.locality);
        assert_eq!(registered.endpoints(service)[0].address, there.mesh_address.ip());
        assert_eq!(registered.follow(&Records::new()).len(), 2);
        assert!(registered.endpoints(service).is_empty());
    }
}
