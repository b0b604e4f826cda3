//! Backends that no caller may call, beside others that callers may: their share of the calls is denied,
//! which is surely not intended.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::splits::{SplitPath, Splits, TooManyPaths};
use ironmesh_catalog::{
    Finding, Mode, Port, Service, ServiceAccount, ServiceName, ServicePort, SplitBackend,
    TrafficTarget,
};

use super::super::coverage::has_rule_about;
use crate::codes;
use crate::policy::draft::Draft;

/// Reports backends that deny all calls, if other backends of the same service answer calls in the end. A
/// split whose backends all deny calls is not in use, and not reported.
pub(super) fn check(
    draft: &Draft<'_>,
    splits: &Splits<'_>,
    paths: &BTreeMap<ServicePort, Result<Vec<SplitPath<'_>>, TooManyPaths>>,
    findings: &mut Vec<Finding>,
) {
    // An object with an error may be the one that grants access.
    if draft.findings.has_errors() {
        return;
    }
    let targets = Targets::new(draft);
    let (mut called, mut beside) = (BTreeSet::new(), BTreeMap::new());
    for (port, paths) in paths {
        let backends = paths.iter().flatten().flat_map(|path| &path.backends);
        let answering: BTreeSet<_> = backends.map(|(backend, _)| *backend).collect();
        let gate = |name: &ServiceName| {
            let service = splits.service(name)?;
            gate(draft, &targets, service, service.port(port.port)?)
        };
        let (admitted, others): (Vec<_>, Vec<_>) = answering
            .into_iter()
            .map(|name| (name, gate(name)))
            .partition(|(_, gate)| gate.is_some());
        called.extend(admitted.iter().map(|(name, _)| *name));
        if let Some((sibling, Some(gate))) = admitted.first() {
            beside.extend(others.into_iter().map(|(name, _)| (name, (*sibling, *gate))));
        }
    }
    for backend in splits.iter().flat_map(|(_, own)| own).flat_map(|split| &split.backends) {
        if backend.weight > 0
            && !called.contains(&backend.service)
            && let Some(service) = splits.service(&backend.service)
            && let Some((sibling, gate)) = beside.get(&backend.service)
        {
            findings.push(uncalled(backend, service, splits.service(sibling), *gate));
        }
    }
}

/// Traffic targets by their destination.
#[derive(Debug, Default)]
struct Targets<'a> {
    by_account: BTreeMap<ServiceAccount, Vec<&'a TrafficTarget>>,
    /// Targets with an identity binding that selects by labels, which may match any account.
    by_labels: Vec<&'a TrafficTarget>,
}

impl<'a> Targets<'a> {
    fn new(draft: &Draft<'a>) -> Self {
        let mut targets = Self::default();
        for target in draft.traffic_targets.iter() {
            match draft.accounts_of(&target.destination) {
                Some(accounts) => {
                    for account in accounts {
                        targets.by_account.entry(account).or_default().push(target);
                    }
                }
                None => targets.by_labels.push(target),
            }
        }
        targets
    }
}

/// What allows a caller to call a service.
#[derive(Debug, Clone, Copy)]
enum Gate<'a> {
    Target(&'a TrafficTarget),
    /// The service itself, which allows all calls.
    Open,
}

/// What allows a caller to call a port of `service`.
fn gate<'a>(
    draft: &Draft<'_>,
    targets: &Targets<'a>,
    service: &Service,
    port: &Port,
) -> Option<Gate<'a>> {
    let namespace = &service.name.namespace;
    let namespace = draft.namespaces.get(&(namespace.clone(), namespace.clone()));
    let mode = service.mode.or_else(|| namespace?.mode);
    if mode.is_some_and(Mode::allows_all) {
        return Some(Gate::Open);
    }
    let of_account = targets.by_account.get(&service.account).into_iter().flatten();
    let mut targets = of_account.chain(&targets.by_labels).copied();
    targets.find(|target| has_rule_about(draft, target, port)).map(Gate::Target)
}

fn uncalled(
    backend: &SplitBackend,
    service: &Service,
    sibling: Option<&Service>,
    gate: Gate<'_>,
) -> Finding {
    let (name, account) = (&service.name.name, &service.account.name);
    let message = format!("no caller may call backend `{name}`: its share of the calls is denied");
    let mut finding =
        Finding::warning(codes::UNCALLED_BACKEND, Some(backend.spot.clone()), message)
            .label("denies all callers")
            .related(
                service.spot.clone(),
                format!("it runs as `{account}`, which no traffic target allows"),
            );
    let mut help = format!("let a traffic target have the destination `{account}`");
    if let Some(sibling) = sibling {
        let (name, account) = (&sibling.name.name, &sibling.account.name);
        if let Gate::Target(target) = gate {
            finding =
                finding.related(target.spot.clone(), format!("this allows calls of `{name}`"));
        }
        if sibling.account != service.account {
            help = format!(
                "{help}, or give the service `service_account = \"{account}\"`, as `{name}` has"
            );
        }
    }
    finding.help(help)
}
