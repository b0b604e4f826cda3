//! Backends that nobody may call, beside others that somebody may: their share of the calls is refused,
//! which is surely not meant.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::splits::{SplitPath, Splits, TooManyPaths};
use ironmesh_catalog::{
    Finding, Mode, Port, Service, ServiceAccount, ServiceName, ServicePort, SplitBackend,
    TrafficTarget,
};

use super::super::coverage::covers;
use crate::codes;
use crate::policy::draft::Draft;

/// Tells backends that answer nobody, where calls of the same service are answered by others, in the end.
/// Of a split none of whose backends anybody may call, nothing is told: it is not in use.
pub(super) fn check(
    draft: &Draft<'_>,
    splits: &Splits<'_>,
    ways: &BTreeMap<ServicePort, Result<Vec<SplitPath<'_>>, TooManyPaths>>,
    findings: &mut Vec<Finding>,
) {
    // What is wrong may have been meant to allow what nothing seems to.
    if draft.findings.has_errors() {
        return;
    }
    let targets = Targets::new(draft);
    let (mut called, mut beside) = (BTreeSet::new(), BTreeMap::new());
    for (port, ways) in ways {
        let backends = ways.iter().flatten().flat_map(|way| &way.backends);
        let answering: BTreeSet<_> = backends.map(|(backend, _)| *backend).collect();
        let gate = |name: &ServiceName| {
            let service = splits.service(name)?;
            gate(draft, &targets, service, service.port(port.port)?)
        };
        let (let_in, others): (Vec<_>, Vec<_>) = answering
            .into_iter()
            .map(|name| (name, gate(name)))
            .partition(|(_, gate)| gate.is_some());
        called.extend(let_in.iter().map(|(name, _)| *name));
        if let Some((sibling, Some(gate))) = let_in.first() {
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
    /// Those about an identity binding that selects by labels: they may be about any account.
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

/// What lets somebody call a service.
#[derive(Debug, Clone, Copy)]
enum Gate<'a> {
    Target(&'a TrafficTarget),
    /// The service itself, which lets all in.
    Open,
}

/// What lets somebody call something on a port of `service`.
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
    let lets_in =
        |target: &&TrafficTarget| target.rules.iter().any(|rule| covers(draft, target, rule, port));
    targets.find(lets_in).map(Gate::Target)
}

fn uncalled(
    backend: &SplitBackend,
    service: &Service,
    sibling: Option<&Service>,
    gate: Gate<'_>,
) -> Finding {
    let (name, account) = (&service.name.name, &service.account.name);
    let message = format!("nobody may call backend `{name}`: its share of the calls is refused");
    let mut finding =
        Finding::warning(codes::UNCALLED_BACKEND, Some(backend.spot.clone()), message)
            .label("refuses everybody")
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
