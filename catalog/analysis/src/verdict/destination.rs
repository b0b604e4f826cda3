//! Where the calls of a service port go, and who may know of it: as the caller's sidecar is told.

use std::collections::BTreeSet;

use ironmesh_catalog::http_routes::{HttpRoutes, Treatment};
use ironmesh_catalog::name::{ServiceAccount, ServiceName, ServicePort};
use ironmesh_catalog::policy::{HttpMatch, Mirror};
use ironmesh_catalog::service::{Port, Service};
use ironmesh_catalog::snapshot::Snapshot;

use super::Treated;
use super::matching::mismatches;
use super::request::Arrival;
use crate::routing::{Branch, Condition, Routing};

/// The branches that calls of `asked` may take; of one request, as it arrives at the caller's sidecar, the
/// one that it takes.
pub(super) fn branches(
    routing: &Routing<'_>,
    asked: &ServicePort,
    request: Option<&Arrival>,
) -> Vec<Branch> {
    let Some(request) = request else { return routing.branches(asked) };
    let paths = routing.paths(asked);
    let holds = |condition: &&HttpMatch| mismatches(condition, request).is_empty();
    let taken = paths.iter().find(|path| path.conditions.iter().all(holds));
    taken.map(Branch::of).into_iter().collect()
}

/// How calls of `caller` to a port are treated; of one request, as it arrives at the caller's sidecar, how
/// that one is.
pub(super) fn treatments<'a>(
    all: &'a HttpRoutes,
    caller: &ServiceAccount,
    service: &Service,
    port: &Port,
    request: Option<&Arrival>,
) -> Vec<Treatment<'a>> {
    if !port.protocol.is_http() {
        return Vec::new();
    }
    let treatments = all.treatments(caller, &service.name);
    let Some(request) = request else { return treatments };
    let holds = |one: &HttpMatch| mismatches(one, request).is_empty();
    let is_for = |one: &Treatment<'_>| one.condition.is_none_or(holds);
    treatments.into_iter().find(is_for).into_iter().collect()
}

/// What is said of these, if anything is. `why_no_mirror` says why a copy goes nowhere, if it does not.
pub(super) fn told(
    treatments: &[Treatment<'_>],
    why_no_mirror: impl Fn(&Mirror) -> Option<String>,
) -> Vec<Treated> {
    let treated = |treatment: &Treatment<'_>| {
        let mut settings = treatment.settings();
        let why_not = treatment.mirror().and_then(&why_no_mirror);
        if let Some((said, why)) = settings.iter_mut().find(|one| one.key == "mirror").zip(why_not)
        {
            said.value = format!("{}, but not of this caller: {why}", said.value);
        }
        Treated { condition: treatment.condition.map(Condition::from), settings }
    };
    let treated: Vec<_> = treatments.iter().map(treated).collect();
    let says_nothing = treated.iter().all(|one| one.settings.is_empty());
    if says_nothing { Vec::new() } else { treated }
}

/// Why no copy of calls of `caller` to `asked`, which go these ways, goes where a mirror says, if none does: as
/// the compiler has it.
pub(super) fn why_no_mirror(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    asked: &ServicePort,
    branches: &[Branch],
    mirror: &Mirror,
) -> Option<String> {
    let to = ServicePort::new(mirror.service.clone(), asked.port);
    let is_http = |service: &Service| {
        service.external.is_none()
            && service.port(to.port).is_some_and(|one| one.protocol.is_http())
    };
    let routing = Routing::from(&snapshot.specification, &to.service);
    let name = &to.service;
    let is_all_to =
        |branch: &Branch| matches!(branch.shares.as_slice(), [only] if only.service == *name);
    if to.service == asked.service {
        Some("that is the service itself".to_owned())
    } else if !snapshot.service(name).is_some_and(|service| is_http(service)) {
        Some(format!("{name} has no HTTP port {}", to.port))
    } else if !routing.splits_of(&to).is_empty() {
        Some(format!("{name} has traffic splits"))
    } else if !is_known(snapshot, &routing, caller, &to) {
        Some(format!("it may not call {name}"))
    } else if !branches.is_empty() && branches.iter().all(is_all_to) {
        Some(format!("{name} answers them itself"))
    } else {
        None
    }
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
            .any(|grant| snapshot.specification.has_rule_about(&grant.target, port))
}
