//! Traffic targets without anything to call.

use std::collections::BTreeMap;

use ironmesh_catalog::{Finding, Service, ServiceAccount, TrafficTarget};

use super::draft::Draft;
use crate::codes;

/// Reports the targets of `draft` whose destination account runs no service with ports.
pub(super) fn check(draft: &mut Draft<'_>) {
    // A rejected service may have the ports that seem to be missing.
    if !draft.is_whole() {
        return;
    }
    let mut services: BTreeMap<&ServiceAccount, Vec<&Service>> = BTreeMap::new();
    for service in draft.services.iter() {
        services.entry(&service.account).or_default().push(service);
    }
    let findings = draft.traffic_targets.iter().filter_map(|target| {
        let accounts = draft.accounts_of(&target.destination)?;
        let of_them = accounts.iter().filter_map(|account| services.get(account)).flatten();
        let mut clients = Vec::new();
        for service in of_them {
            if !service.ports.is_empty() {
                return None;
            }
            clients.push(*service);
        }
        Some(finding(target, clients.first()?))
    });
    let findings: Vec<_> = findings.collect();
    draft.findings.extend(findings);
}

fn finding(target: &TrafficTarget, client: &Service) -> Finding {
    let destination = &target.destination;
    let message = format!("this target allows no calls: no service of `{destination}` has ports");
    Finding::warning(codes::NOTHING_TO_CALL, Some(target.spot.clone()), message)
        .label("nothing to call")
        .related(client.spot.clone(), "a service without ports calls, and is not called")
        .help("give the service `ports`; if it is the caller, name it in `sources`")
}
