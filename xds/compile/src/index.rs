//! Policy, indexed by what the compiler asks of it. Built once per snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{
    MeshSpecification, ServiceAccount, ServiceName, TrafficSplit, TrafficTarget,
};

/// The specification by service account and by apex.
#[derive(Debug)]
pub(crate) struct PolicyIndex {
    specification: Arc<MeshSpecification>,
    by_source: BTreeMap<ServiceAccount, Vec<Arc<TrafficTarget>>>,
    by_destination: BTreeMap<ServiceAccount, Vec<Arc<TrafficTarget>>>,
    services: BTreeMap<ServiceAccount, Vec<ServiceName>>,
    splits: BTreeMap<ServiceName, Arc<TrafficSplit>>,
    /// The apexes in front of a backend.
    apexes: BTreeMap<ServiceName, Vec<ServiceName>>,
}

impl PolicyIndex {
    pub(crate) fn new(specification: &Arc<MeshSpecification>) -> Self {
        let mut index = Self {
            specification: Arc::clone(specification),
            by_source: BTreeMap::new(),
            by_destination: BTreeMap::new(),
            services: BTreeMap::new(),
            splits: BTreeMap::new(),
            apexes: BTreeMap::new(),
        };
        for target in specification.traffic_targets.values() {
            let destination = target.destination.clone();
            index.by_destination.entry(destination).or_default().push(Arc::clone(target));
            for source in &target.sources {
                index.by_source.entry(source.clone()).or_default().push(Arc::clone(target));
            }
        }
        for service in specification.services.values() {
            let names = index.services.entry(service.account.clone()).or_default();
            names.push(service.name.clone());
        }
        for split in specification.traffic_splits.values() {
            index.splits.insert(split.service.clone(), Arc::clone(split));
            for backend in &split.backends {
                let apexes = index.apexes.entry(backend.service.clone()).or_default();
                apexes.push(split.service.clone());
            }
        }
        index
    }

    pub(crate) fn specification(&self) -> &MeshSpecification {
        &self.specification
    }

    /// The targets whose destination is `account`.
    pub(crate) fn targets_to(&self, account: &ServiceAccount) -> &[Arc<TrafficTarget>] {
        self.by_destination.get(account).map_or(&[], Vec::as_slice)
    }

    /// The split of which `service` is the apex.
    pub(crate) fn split_of(&self, service: &ServiceName) -> Option<&TrafficSplit> {
        self.splits.get(service).map(|split| &**split)
    }

    /// The services that `account` may call: those of the destinations of its targets, and every
    /// apex of which it may call a backend.
    pub(crate) fn callable(&self, account: &ServiceAccount) -> BTreeSet<&ServiceName> {
        let targets = self.by_source.get(account).into_iter().flatten();
        let granted = targets.filter_map(|target| self.services.get(&target.destination)).flatten();
        let granted: BTreeSet<_> = granted.collect();
        let apexes = granted.iter().filter_map(|name| self.apexes.get(*name)).flatten();
        apexes.chain(granted.iter().copied()).collect()
    }
}
