//! Policy, indexed by what the compiler asks of it. Built once per snapshot.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{
    MeshSpecification, Service, ServiceAccount, ServiceName, TrafficSplit, TrafficTarget,
};

/// The specification by service account and by apex.
#[derive(Debug)]
pub(crate) struct PolicyIndex<'a> {
    specification: &'a MeshSpecification,
    by_source: BTreeMap<&'a ServiceAccount, Vec<&'a TrafficTarget>>,
    by_destination: BTreeMap<&'a ServiceAccount, Vec<&'a TrafficTarget>>,
    services: BTreeMap<&'a ServiceAccount, Vec<&'a Service>>,
    splits: BTreeMap<&'a ServiceName, &'a TrafficSplit>,
    /// The apexes in front of a backend.
    apexes: BTreeMap<&'a ServiceName, Vec<&'a ServiceName>>,
}

impl<'a> PolicyIndex<'a> {
    pub(crate) fn new(specification: &'a MeshSpecification) -> Self {
        let mut index = Self {
            specification,
            by_source: BTreeMap::new(),
            by_destination: BTreeMap::new(),
            services: BTreeMap::new(),
            splits: BTreeMap::new(),
            apexes: BTreeMap::new(),
        };
        for target in specification.traffic_targets.values() {
            index.by_destination.entry(&target.destination).or_default().push(target);
            for source in &target.sources {
                index.by_source.entry(source).or_default().push(target);
            }
        }
        for service in specification.services.values() {
            index.services.entry(&service.account).or_default().push(service);
        }
        for split in specification.traffic_splits.values() {
            index.splits.insert(&split.service, split);
            for backend in &split.backends {
                index.apexes.entry(&backend.service).or_default().push(&split.service);
            }
        }
        index
    }

    pub(crate) fn specification(&self) -> &'a MeshSpecification {
        self.specification
    }

    /// The targets whose destination is `account`.
    pub(crate) fn targets_to(&self, account: &ServiceAccount) -> &[&'a TrafficTarget] {
        self.by_destination.get(account).map_or(&[], Vec::as_slice)
    }

    /// The split of which `service` is the apex.
    pub(crate) fn split_of(&self, service: &ServiceName) -> Option<&'a TrafficSplit> {
        self.splits.get(service).copied()
    }

    /// The services that `account` may call: those of the destinations of its targets, and every
    /// apex of which it may call a backend.
    pub(crate) fn callable(&self, account: &ServiceAccount) -> BTreeSet<&'a ServiceName> {
        let targets = self.by_source.get(account).into_iter().flatten();
        let granted = targets.filter_map(|target| self.services.get(&target.destination)).flatten();
        let mut callable: BTreeSet<_> = granted.map(|service| &service.name).collect();
        let apexes = callable.iter().filter_map(|name| self.apexes.get(*name)).flatten();
        let apexes: Vec<_> = apexes.copied().collect();
        callable.extend(apexes);
        callable
    }
}
