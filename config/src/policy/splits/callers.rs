//! Backends that nobody may call, beside others that somebody may: their share of the calls is answered
//! 403, which is surely not meant.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::splits::{Splits, TooManyWays, Way};
use ironmesh_catalog::{
    Finding, Mode, Port, Service, ServiceName, ServicePort, SplitBackend, TrafficTarget,
};

use super::super::coverage::covers;
use crate::codes;
use crate::policy::draft::Draft;

/// Tells backends that answer nobody, where calls of the same service are answered by others, in the end.
/// Of a split none of whose backends anybody may call, nothing is told: it is not in use.
pub(super) fn check(
    draft: &Draft<'_>,
    splits: &Splits<'_>,
    ways: &BTreeMap<ServicePort, Result<Vec<Way<'_>>, TooManyWays>>,
    findings: &mut Vec<Finding>,
) {
    // What is wrong may have been meant to allow what nothing seems to.
    if draft.findings.iter().any(Finding::is_error) {
        return;
    }
    let (mut called, mut beside) = (BTreeSet::new(), BTreeMap::new());
    for (port, ways) in ways {
        let backends = ways.iter().flatten().flat_map(|way| &way.backends);
        let answering: BTreeSet<_> = backends.map(|(backend, _)| *backend).collect();
        let who_lets_call = |name: &ServiceName| {
            let service = splits.service(name)?;
            who_lets_call(draft, service, service.port(port.port)?)
        };
        let (let_in, others): (Vec<_>, Vec<_>) = answering
            .into_iter()
            .map(|name| (name, who_lets_call(name)))
            .partition(|(_, who)| who.is_some());
        called.extend(let_in.iter().map(|(name, _)| *name));
        if let Some((sibling, Some(target))) = let_in.first() {
            beside.extend(others.into_iter().map(|(name, _)| (name, (*sibling, *target))));
        }
    }
    for backend in splits.iter().flat_map(|(_, own)| own).flat_map(|split| &split.backends) {
        if backend.weight > 0
            && !called.contains(&backend.service)
            && let Some(service) = splits.service(&backend.service)
            && let Some((sibling, target)) = beside.get(&backend.service)
        {
            findings.push(uncalled(backend, service, splits.service(sibling), *target));
        }
    }
}

/// The target that lets somebody call something on a port of `service`, or none where the service lets
/// everybody in by itself. `None` where nothing does.
fn who_lets_call<'a>(
    draft: &Draft<'a>,
    service: &Service,
    port: &Port,
) -> Option<Option<&'a TrafficTarget>> {
    if service.mode == Some(Mode::Permissive) {
        return Some(None);
    }
    let is_about = |target: &&TrafficTarget| {
        // A binding that selects by labels may be about it.
        let accounts = draft.accounts_of(&target.destination);
        accounts.is_none_or(|accounts| accounts.contains(&service.account))
    };
    let mut targets = draft.traffic_targets.iter().filter(is_about);
    let lets_in =
        |target: &&TrafficTarget| target.rules.iter().any(|rule| covers(draft, target, rule, port));
    targets.find(lets_in).map(Some)
}

fn uncalled(
    backend: &SplitBackend,
    service: &Service,
    sibling: Option<&Service>,
    target: Option<&TrafficTarget>,
) -> Finding {
    let (name, account) = (&service.name.name, &service.account.name);
    let message =
        format!("nobody may call backend `{name}`: its share of the calls is answered 403");
    let mut finding =
        Finding::warning(codes::UNCALLED_BACKEND, Some(backend.spot.clone()), message)
            .label("answers nobody")
            .related(
                service.spot.clone(),
                format!("it runs as `{account}`, which no traffic target allows"),
            );
    let mut help = format!("let a traffic target have the destination `{account}`");
    if let Some(sibling) = sibling {
        let (name, account) = (&sibling.name.name, &sibling.account.name);
        if let Some(target) = target {
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
