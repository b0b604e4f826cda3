//! Services that no caller may call.
//!
//! A mesh that denies by default begins with such services. So all of them are one finding, and there is none
//! as long as no target grants any access.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{Finding, Mode, Name, Service, ServiceAccount, ServiceName};

use super::draft::Draft;
use crate::codes;

/// The most services that the finding names.
const MOST_NAMED: usize = 5;

/// Reports the services of `draft` that no caller may call.
pub(super) fn check(draft: &mut Draft<'_>) {
    // A rejected object may be the one that grants access.
    if !draft.is_whole() || draft.traffic_targets.keys().next().is_none() {
        return;
    }
    let called = Called::new(draft);
    // The loader does not know the mode of the mesh. If policy marks some services as strict explicitly, the
    // others are assumed to be not strict.
    let mode = |service: &Service| {
        let name = &service.name.namespace;
        let namespace = draft.namespaces.get(&(name.clone(), name.clone()));
        service.mode.or_else(|| namespace?.mode)
    };
    let sets_strict = |service: &Service| mode(service) == Some(Mode::Strict);
    let is_set = draft.services.iter().any(sets_strict);
    let is_strict =
        |service: &&Service| if is_set { sets_strict(service) } else { mode(service).is_none() };
    let services = draft.services.iter().filter(is_strict);
    // A backend beside others with callers is reported with its split.
    let in_split = called.beside();
    let unreachable: Vec<_> = services
        .filter(|service| !service.ports.is_empty() && !called.may_be_called(service))
        .filter(|service| !in_split.contains(&service.name))
        .collect();
    draft.findings.extend(finding(&unreachable));
}

/// The services that have callers.
struct Called<'a> {
    accounts: BTreeSet<ServiceAccount>,
    /// Whether a target may match any account, because it selects by the labels of endpoints.
    namespaces: BTreeSet<&'a Name>,
    /// The services that callers outside of the mesh may call.
    ingress_services: BTreeSet<&'a ServiceName>,
    /// The backends of each service that is split.
    backends: BTreeMap<&'a ServiceName, Vec<&'a Service>>,
}

impl<'a> Called<'a> {
    fn new(draft: &Draft<'a>) -> Self {
        let (mut accounts, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
        for target in draft.traffic_targets.iter() {
            match draft.accounts_of(&target.destination) {
                Some(known) => accounts.extend(known),
                None => {
                    namespaces.insert(&target.namespace);
                }
            }
        }
        let mut backends: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for split in draft.traffic_splits.iter() {
            let services = split.backends.iter().filter_map(|backend| {
                let ServiceName { namespace, name } = &backend.service;
                draft.services.get(&(namespace.clone(), name.clone()))
            });
            backends.entry(&split.service).or_default().extend(services);
        }
        let ingress_services = draft.ingress_backends.iter().flat_map(|policy| &policy.backends);
        let ingress_services = ingress_services.map(|backend| &backend.port.service).collect();
        Self { accounts, namespaces, ingress_services, backends }
    }

    /// The backends of services that have callers.
    fn beside(&self) -> BTreeSet<&'a ServiceName> {
        let may_be_called =
            |services: &&Vec<&Service>| services.iter().any(|service| self.may_be_called(service));
        let called = self.backends.values().filter(may_be_called);
        called.flatten().map(|service| &service.name).collect()
    }

    /// Whether any caller may call the service, or a service that answers for it.
    fn may_be_called(&self, service: &Service) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![service];
        while let Some(service) = open.pop() {
            let is_granted = self.ingress_services.contains(&service.name)
                || self.accounts.contains(&service.account)
                || self.namespaces.contains(&service.account.namespace);
            if is_granted {
                return true;
            }
            if seen.insert(&service.name) {
                open.extend(self.backends.get(&service.name).into_iter().flatten());
            }
        }
        false
    }
}

fn finding(services: &[&Service]) -> Option<Finding> {
    let (first, others) = services.split_first()?;
    let names: Vec<_> =
        services.iter().take(MOST_NAMED).map(|service| format!("`{}`", service.name)).collect();
    let more = match services.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if others.is_empty() { "service" } else { "services" };
    let message = format!("no caller may call {noun} {}{more}", names.join(", "));
    let account = &first.account.name;
    let finding = Finding::warning(codes::UNREACHABLE, Some(first.spot.clone()), message)
        .label("no traffic target allows calls to it")
        .help(format!(
            "write a traffic target with `destination = {{ name = \"{account}\" }}`; a service that calls \
             and is not called needs no `ports`"
        ));
    let shown = others.iter().take(MOST_NAMED - 1);
    Some(shown.fold(finding, |finding, service| finding.related(service.spot.clone(), "nor here")))
}
