//! The derivation of a snapshot from the one before it, at a cost linear in the changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::{Inputs, Records, Snapshot};
use crate::grants::GrantInputs;
use crate::ingress;
use crate::name::{Name, ServiceName};
use crate::policy::{Level, UpstreamTrafficSetting};
use crate::proxy::JoinRecord;
use crate::tcp_access::tcp_accesses;

impl Snapshot {
    /// Derives the next snapshot. The cost is linear in the changes (invariant 5), and the result equals one that is
    /// assembled from the inputs alone.
    #[must_use]
    pub fn revise(&self, inputs: Inputs) -> Self {
        let mut changed: BTreeSet<ServiceName> = BTreeSet::new();
        let mut proxies = self.proxies.clone();
        for item in self.records.diff(&inputs.records) {
            let (before, after) = match item {
                DiffItem::Add(_, after) => (None, Some(after)),
                DiffItem::Remove(_, before) => (Some(before), None),
                DiffItem::Update { old, new } => (Some(old.1), Some(new.1)),
            };
            // With the same services, the new record replaces the old one.
            let is_moved =
                |old: &&Arc<JoinRecord>| after.is_none_or(|new| new.services != old.services);
            if let Some(record) = before.filter(is_moved) {
                remove_proxy(&mut proxies, record);
            }
            if let Some(record) = after {
                add_proxy(&mut proxies, record);
            }
            match (before, after) {
                (Some(before), Some(after)) => changed.extend(before.services_that_differ(after)),
                (one, other) => {
                    let records = one.into_iter().chain(other);
                    changed.extend(records.flat_map(|record| record.services.iter().cloned()));
                }
            }
        }
        for item in self.revoked.diff(&inputs.revoked) {
            let (DiffItem::Add(_, record)
            | DiffItem::Remove(_, record)
            | DiffItem::Update { new: (_, record), .. }) = item;
            changed.extend(record.services.iter().cloned());
        }
        for item in self.leaving.diff(&inputs.leaving) {
            // A proxy whose services changed, too, was found above.
            let record = inputs.records.get(&key(&item));
            changed.extend(record.into_iter().flat_map(|record| record.services.iter().cloned()));
        }
        changed.extend(self.health.diff(&inputs.health).map(|item| key(&item).1.service));
        changed.extend(self.discovered.0.diff(&inputs.discovered.0).map(|item| key(&item)));
        let services = &inputs.specification.services;
        let is_same_value = Arc::ptr_eq(&self.specification, &inputs.specification);
        if !is_same_value {
            changed.extend(self.specification.services.diff(services).map(|item| key(&item)));
        }
        let settings = &inputs.specification.upstream_traffic_settings;
        let localities = if settings.ptr_eq(&self.specification.upstream_traffic_settings) {
            self.localities.clone()
        } else {
            localities(settings)
        };
        changed.extend(self.localities.diff(&localities).map(|item| key(&item)));
        if self.mode != inputs.mode
            || self.specification.namespaces != inputs.specification.namespaces
        {
            changed.extend(services.keys().cloned());
        }
        // A change of a service's proxies affects its subsets.
        let subsets = |name| services.get(name).map_or(&[][..], |known| known.subsets.as_slice());
        let of_changed: Vec<_> = changed.iter().flat_map(subsets).cloned().collect();
        changed.extend(of_changed);
        let same_policy =
            is_same_value || self.specification.has_same_access(&inputs.specification);
        let mut snapshot = Self {
            mesh: inputs.mesh,
            mode: inputs.mode,
            egress: inputs.egress,
            specification: inputs.specification,
            certificates: inputs.certificates,
            trust_bundle: inputs.trust_bundle,
            revoked_callers: inputs.revoked_callers,
            grants: self.grants.clone(),
            tcp_accesses: self.tcp_accesses.clone(),
            ingress_rules: self.ingress_rules.clone(),
            endpoints: self.endpoints.clone(),
            local_endpoints: self.local_endpoints.clone(),
            ports_without_endpoints: self.ports_without_endpoints.clone(),
            findings: self.findings.clone(),
            localities,
            discovered: inputs.discovered,
            records: inputs.records,
            revoked: inputs.revoked,
            leaving: inputs.leaving,
            health: inputs.health,
            proxies,
        };
        for name in &changed {
            self.remove_service(name, &mut snapshot);
            snapshot.add_service(name);
        }
        snapshot.grants = {
            let inputs = GrantInputs {
                specification: &snapshot.specification,
                trust_domain: &snapshot.mesh.trust_domain,
                labels_of: &|service| snapshot.labels_of(service),
            };
            if same_policy {
                self.grants.follow(&inputs, &changed)
            } else {
                self.grants.resolve(&inputs, &changed)
            }
        };
        if !same_policy || ingress::are_about(&snapshot.specification, &changed) {
            let addresses_of = |service: &ServiceName| snapshot.addresses_of(service);
            snapshot.ingress_rules =
                ingress::ingress_rules(&snapshot.specification, addresses_of, &self.ingress_rules);
        }
        let same_grants = same_policy && snapshot.grants.are_same_as(&self.grants);
        if !same_grants || snapshot.mode != self.mode {
            let (specification, mode) = (&snapshot.specification, snapshot.mode);
            let before = &self.tcp_accesses;
            snapshot.tcp_accesses = tcp_accesses(specification, &snapshot.grants, mode, before);
        }
        snapshot
    }
}

/// The key of a difference between two maps.
fn key<K: Clone, V>(item: &DiffItem<'_, '_, K, V>) -> K {
    match item {
        DiffItem::Add(key, _)
        | DiffItem::Remove(key, _)
        | DiffItem::Update { new: (key, _), .. } => (*key).clone(),
    }
}

/// The upstream traffic settings with a `locality`, by service.
fn localities(
    settings: &OrdMap<(Name, Name), Arc<UpstreamTrafficSetting>>,
) -> OrdMap<ServiceName, Arc<UpstreamTrafficSetting>> {
    let of_one = |setting: &Arc<UpstreamTrafficSetting>| match &setting.level {
        Level::Service(name) if setting.locality.is_some() => {
            Some((name.clone(), Arc::clone(setting)))
        }
        _ => None,
    };
    settings.values().filter_map(of_one).collect()
}

fn add_proxy(proxies: &mut OrdMap<ServiceName, Records>, record: &Arc<JoinRecord>) {
    for service in &record.services {
        proxies.entry(service.clone()).or_default().insert(record.id, Arc::clone(record));
    }
}

fn remove_proxy(proxies: &mut OrdMap<ServiceName, Records>, record: &JoinRecord) {
    for service in &record.services {
        if let Some(records) = proxies.get_mut(service) {
            records.remove(&record.id);
            if records.is_empty() {
                proxies.remove(service);
            }
        }
    }
}
