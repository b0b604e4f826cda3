//! Grants: traffic targets with their subjects resolved to service accounts.
//!
//! A subject may be an identity binding, and a binding may select by the labels of endpoints. So access does
//! not follow from policy alone. This module resolves it once per snapshot, for every user of access rules. It
//! never decides what a rule allows.

mod binding;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use crate::allowed_traffic::{AllowedTraffic, AllowingRule};
use crate::finding::Finding;
use crate::identity::TrustDomain;
use crate::name::{Name, ServiceAccount, ServiceName};
use crate::policy::{Subject, TrafficTarget};
use crate::service::{Port, Service};
use crate::service_labels::ServiceLabels;
use crate::specification::MeshSpecification;

/// Namespace and name of an object of policy.
type ObjectKey = (Name, Name);

/// The accounts of each identity binding.
type Bindings = BTreeMap<ObjectKey, BTreeSet<ServiceAccount>>;

/// The labels of the services that bindings select by labels.
type LabelsByService = BTreeMap<ServiceName, Arc<ServiceLabels>>;

/// A traffic target with its subjects resolved.
///
/// Either set may be empty; the target then grants nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The target.
    pub target: Arc<TrafficTarget>,
    /// The accounts that may be called, all of the target's namespace.
    pub destinations: BTreeSet<ServiceAccount>,
    /// The accounts that may call them.
    pub sources: BTreeSet<ServiceAccount>,
}

/// The inputs of grants.
pub(crate) struct GrantInputs<'a> {
    /// The policy of the operators.
    pub(crate) specification: &'a MeshSpecification,
    /// The trust domain of the mesh.
    pub(crate) trust_domain: &'a TrustDomain,
    /// The labels of the endpoints and proxies of a service.
    pub(crate) labels_of: &'a dyn Fn(&ServiceName) -> ServiceLabels,
}

/// The grants of all traffic targets of a mesh.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    by_target: OrdMap<ObjectKey, Arc<Grant>>,
    by_account: Arc<ByAccount>,
    /// The accounts of each identity binding.
    pub bindings: Arc<Bindings>,
    findings: Arc<[Finding]>,
    /// Kept, so that only the labels of changed services are computed again.
    labels_by_service: Arc<LabelsByService>,
}

/// The same grants by account, each list in the order of the targets.
#[derive(Debug, Default)]
struct ByAccount {
    destinations: BTreeMap<ServiceAccount, Vec<Arc<Grant>>>,
    sources: BTreeMap<ServiceAccount, Vec<Arc<Grant>>>,
}

impl ByAccount {
    fn new(by_target: &OrdMap<ObjectKey, Arc<Grant>>) -> Self {
        let mut index = Self::default();
        for grant in by_target.values() {
            for destination in &grant.destinations {
                let granted = index.destinations.entry(destination.clone()).or_default();
                granted.push(Arc::clone(grant));
            }
            for source in &grant.sources {
                index.sources.entry(source.clone()).or_default().push(Arc::clone(grant));
            }
        }
        index
    }
}

impl Grants {
    /// The grants by namespace and name of the target.
    pub fn by_target(&self) -> &OrdMap<ObjectKey, Arc<Grant>> {
        &self.by_target
    }

    /// The grants with `account` as a destination, in the order of the targets.
    pub fn on(&self, account: &ServiceAccount) -> &[Arc<Grant>] {
        self.by_account.destinations.get(account).map_or(&[], Vec::as_slice)
    }

    /// The grants with `account` as a source, in the order of the targets.
    pub fn to(&self, account: &ServiceAccount) -> &[Arc<Grant>] {
        self.by_account.sources.get(account).map_or(&[], Vec::as_slice)
    }

    /// The grants from `caller` to `destination`, in the order of the targets. It searches the shorter of the
    /// two lists.
    pub fn between(
        &self,
        caller: &ServiceAccount,
        destination: &ServiceAccount,
    ) -> impl Iterator<Item = &Arc<Grant>> {
        let (to, on) = (self.to(caller), self.on(destination));
        let fewer = if to.len() < on.len() { to } else { on };
        fewer.iter().filter(|grant| {
            grant.sources.contains(caller) && grant.destinations.contains(destination)
        })
    }

    /// The traffic that targets allow from `caller` to `port` of `service`, regardless of mode and visibility.
    pub fn allowed_traffic(
        &self,
        specification: &MeshSpecification,
        caller: &ServiceAccount,
        service: &Service,
        port: &Port,
    ) -> BTreeSet<AllowedTraffic> {
        let grants = self.between(caller, &service.account);
        let rules = grants.flat_map(|grant| specification.allowing_rules(&grant.target, port));
        rules.map(AllowingRule::traffic).collect()
    }

    /// Whether both have the same grants. The check is free if one is an unchanged copy of the other.
    pub fn are_same_as(&self, other: &Self) -> bool {
        self.by_target.ptr_eq(&other.by_target) || self.by_target == other.by_target
    }

    /// The findings about bindings in this mesh.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    /// The grants after a change of policy, where these services, their endpoints or proxies changed. Equal
    /// grants keep their value.
    #[must_use]
    pub(crate) fn resolve(
        &self,
        inputs: &GrantInputs<'_>,
        changed: &BTreeSet<ServiceName>,
    ) -> Self {
        self.bind(inputs, changed).grant(inputs.specification)
    }

    /// The grants after a change without a change of policy.
    #[must_use]
    pub(crate) fn follow(&self, inputs: &GrantInputs<'_>, changed: &BTreeSet<ServiceName>) -> Self {
        let is_about = |namespace: &Name| changed.iter().any(|one| one.namespace == *namespace);
        if !by_labels(inputs.specification).any(is_about) {
            return self.clone();
        }
        let bound = self.bind(inputs, changed);
        if bound.bindings == self.bindings { bound } else { bound.grant(inputs.specification) }
    }

    /// The same grants, with newly resolved bindings.
    fn bind(&self, inputs: &GrantInputs<'_>, changed: &BTreeSet<ServiceName>) -> Self {
        let labels_by_service = self.labels_by_service(inputs, changed);
        let mut findings = Vec::new();
        let bindings = inputs.specification.identity_bindings.iter().map(|(key, binding)| {
            (key.clone(), binding::accounts(inputs, binding, &labels_by_service, &mut findings))
        });
        Self {
            by_target: self.by_target.clone(),
            by_account: Arc::clone(&self.by_account),
            bindings: Arc::new(bindings.collect()),
            findings: findings.into(),
            labels_by_service: Arc::new(labels_by_service),
        }
    }

    fn labels_by_service(
        &self,
        inputs: &GrantInputs<'_>,
        changed: &BTreeSet<ServiceName>,
    ) -> LabelsByService {
        let namespaces: BTreeSet<_> = by_labels(inputs.specification).collect();
        let services = inputs.specification.services.values();
        // A subset has the endpoints of its service.
        let services = services
            .filter(|service| namespaces.contains(&service.name.namespace) && !service.is_subset());
        let labels_by_service = services.map(|service| {
            let name = &service.name;
            let known = self.labels_by_service.get(name).filter(|_| !changed.contains(name));
            let labels = || Arc::new((inputs.labels_of)(name));
            (name.clone(), known.cloned().unwrap_or_else(labels))
        });
        labels_by_service.collect()
    }

    /// The grants of the targets with these bindings.
    fn grant(self, specification: &MeshSpecification) -> Self {
        let accounts = |subject: &Subject| match subject {
            Subject::Account(account) => BTreeSet::from([account.clone()]),
            Subject::Binding(namespace, name) => {
                self.bindings.get(&(namespace.clone(), name.clone())).cloned().unwrap_or_default()
            }
        };
        let mut by_target = self.by_target.clone();
        for (key, target) in &specification.traffic_targets {
            let mut destinations = accounts(&target.destination);
            // SMI: the owner of a namespace alone decides who may call into it.
            destinations.retain(|account| account.namespace == target.namespace);
            let sources = target.sources.iter().flat_map(accounts).collect();
            let grant = Grant { target: Arc::clone(target), destinations, sources };
            if by_target.get(key).is_none_or(|known| **known != grant) {
                by_target.insert(key.clone(), Arc::new(grant));
            }
        }
        let is_gone = |key: &&ObjectKey| !specification.traffic_targets.contains_key(*key);
        for key in self.by_target.keys().filter(is_gone) {
            by_target.remove(key);
        }
        let by_account = if by_target.ptr_eq(&self.by_target) {
            Arc::clone(&self.by_account)
        } else {
            Arc::new(ByAccount::new(&by_target))
        };
        Self { by_target, by_account, ..self }
    }

    #[cfg(test)]
    pub(crate) fn of(by_target: OrdMap<ObjectKey, Arc<Grant>>) -> Self {
        let by_account = Arc::new(ByAccount::new(&by_target));
        Self { by_target, by_account, ..Self::default() }
    }
}

/// The namespaces in which bindings select by the labels of endpoints.
fn by_labels(specification: &MeshSpecification) -> impl Iterator<Item = &Name> {
    let bindings = specification.identity_bindings.values();
    let by_labels = bindings.filter(|binding| binding.endpoint_labels.is_some());
    by_labels.map(|binding| &binding.namespace)
}

#[cfg(test)]
mod tests;
