//! Who may call whom, worked out from policy by plain search instead of by index.

use std::collections::BTreeSet;

use ironmesh_catalog::{ServiceAccount, ServiceName, Snapshot, TrafficTarget};

/// The same questions that the compiler answers.
pub(super) struct Model<'a>(&'a Snapshot);

impl<'a> Model<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self(snapshot)
    }

    /// The SPIFFE IDs that may call something of the services of `account`.
    pub(super) fn callers_of(&self, account: &ServiceAccount) -> BTreeSet<String> {
        let trust_domain = &self.0.mesh.trust_domain;
        self.targets()
            .filter(|target| target.destination == *account && self.grants_something(target))
            .flat_map(|target| &target.sources)
            .map(|source| trust_domain.workload(source).to_string())
            .collect()
    }

    /// The services that a target lets `account` call, and the apexes in front of them.
    pub(super) fn callable(&self, account: &ServiceAccount) -> BTreeSet<ServiceName> {
        let granted = |name: &ServiceName| {
            self.0.specification.services.get(name).is_some_and(|service| {
                self.targets().any(|target| {
                    target.destination == service.account && target.sources.contains(account)
                })
            })
        };
        let services = self.0.specification.services.keys();
        services
            .filter(|name| granted(name) || self.backends(name).any(|b| granted(&b)))
            .cloned()
            .collect()
    }

    /// The backends of the split of `apex`.
    pub(super) fn backends(&self, apex: &ServiceName) -> impl Iterator<Item = ServiceName> {
        let splits = self.0.specification.traffic_splits.values();
        let backends = splits.filter(move |split| split.service == *apex);
        backends
            .flat_map(|split| &split.backends)
            .map(|b| b.service.clone())
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn grants_something(&self, target: &TrafficTarget) -> bool {
        let groups = &self.0.specification.http_route_groups;
        target.rules.iter().any(|rule| {
            let group = groups.get(&(target.namespace.clone(), rule.group.clone()));
            group.is_some_and(|group| match &rule.matches {
                None => !group.matches.is_empty(),
                Some(names) => group.matches.iter().any(|one| names.contains(&one.name)),
            })
        })
    }

    fn targets(&self) -> impl Iterator<Item = &TrafficTarget> {
        self.0.specification.traffic_targets.values().map(|target| &**target)
    }
}
