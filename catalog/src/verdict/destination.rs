//! Where the calls of a service port go, and who may know of it: as the caller's sidecar is told.

use std::collections::BTreeSet;

use super::Treated;
use super::matching::mismatches;
use super::request::Arrival;
use crate::http_routes::{HttpRoutes, Treatment};
use crate::name::{ServiceAccount, ServiceName, ServicePort};
use crate::policy::HttpMatch;
use crate::routing::{Branch, Condition, Routing};
use crate::service::{Port, Service};
use crate::snapshot::Snapshot;
use crate::way::allowances;

/// The branches that calls of `asked` may take; of one request, as it arrives at the caller's sidecar, the
/// one that it takes.
pub(super) fn branches(
    routing: &Routing<'_>,
    asked: &ServicePort,
    request: Option<&Arrival>,
) -> Vec<Branch> {
    let Some(request) = request else { return routing.branches(asked) };
    let ways = routing.ways(asked);
    let holds = |condition: &&HttpMatch| mismatches(condition, request).is_empty();
    let taken = ways.iter().find(|way| way.conditions.iter().all(holds));
    taken.map(Branch::of).into_iter().collect()
}

/// How calls of `caller` to a port are treated; of one request, as it arrives at the caller's sidecar, how
/// that one is.
pub(super) fn treatments(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service: &Service,
    port: &Port,
    request: Option<&Arrival>,
) -> Vec<Treated> {
    if !port.protocol.is_http() {
        return Vec::new();
    }
    let all = HttpRoutes::of_specification(&snapshot.specification);
    let mut treatments = all.treatments(caller, &service.name);
    if let Some(request) = request {
        let holds = |one: &HttpMatch| mismatches(one, request).is_empty();
        let is_for = |one: &Treatment<'_>| one.condition.is_none_or(holds);
        treatments = treatments.into_iter().find(is_for).into_iter().collect();
    }
    let treated: Vec<_> = treatments.iter().map(treated).collect();
    let says_nothing = treated.iter().all(|one| one.settings.is_empty());
    if says_nothing { Vec::new() } else { treated }
}

fn treated(treatment: &Treatment<'_>) -> Treated {
    Treated { condition: treatment.condition.map(Condition::from), settings: treatment.settings() }
}

/// Takes those out of `branches` of whom `caller` may not know: they have no share of its calls. Returns
/// who they are.
pub(super) fn leave_out(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    branches: &mut [Branch],
) -> BTreeSet<ServiceName> {
    let mut left_out = BTreeSet::new();
    for branch in branches {
        branch.shares.retain(|share| {
            let service = snapshot.service(&share.service);
            let is_known = service.is_none_or(|one| one.is_visible_in(&caller.namespace));
            if !is_known {
                left_out.insert(share.service.clone());
            }
            is_known
        });
    }
    left_out
}

/// Whether the proxies of `caller` are told of `asked`: it is visible to them, and they may call it in some
/// way or what is behind it, by backends with or without a weight.
pub(super) fn is_known(
    snapshot: &Snapshot,
    routing: &Routing<'_>,
    caller: &ServiceAccount,
    asked: &ServicePort,
) -> bool {
    let find = |port: &ServicePort| {
        let service = snapshot.service(&port.service)?;
        Some((&**service, service.port(port.port)?))
    };
    let is_visible = |service: &Service| service.is_visible_in(&caller.namespace);
    let mut behind = routing.reach(asked, |_| true).into_iter();
    find(asked).is_some_and(|(service, _)| is_visible(service))
        && behind.any(|port| {
            find(&port).is_some_and(|(service, port)| {
                is_visible(service) && may_call(snapshot, caller, service, port)
            })
        })
}

/// Whether `caller` may call a port in some way.
fn may_call(snapshot: &Snapshot, caller: &ServiceAccount, service: &Service, port: &Port) -> bool {
    snapshot.mode_of(service).lets_all_in()
        || snapshot
            .grants
            .between(caller, &service.account)
            .any(|grant| !allowances(&snapshot.specification, &grant.target, port).is_empty())
}
