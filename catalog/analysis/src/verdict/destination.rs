//! Destinations of the calls of a service port, and its visibility, as the caller's sidecar is configured.
//!
//! This module owns the caller's side of a verdict. It never authorizes a call.

use std::collections::BTreeSet;

use ironmesh_catalog::http_routes::{HttpRoutes, Treatment};
use ironmesh_catalog::name::{ServiceAccount, ServiceName, ServicePort};
use ironmesh_catalog::policy::{HttpMatch, Mirror};
use ironmesh_catalog::service::{Port, Service};
use ironmesh_catalog::snapshot::Snapshot;

use super::RequestTreatment;
use super::matching::mismatches;
use super::request::Arrival;
use crate::routing::{MatchCondition, Routing, SplitBranch};

/// The branches of the calls of a service port; for one request, as the caller's sidecar sees it, the branch that
/// it follows.
pub(super) fn branches(
    routing: &Routing<'_>,
    service_port: &ServicePort,
    request: Option<&Arrival>,
) -> Vec<SplitBranch> {
    let Some(request) = request else { return routing.branches(service_port) };
    let paths = routing.paths(service_port);
    let holds = |condition: &&HttpMatch| mismatches(condition, request).is_empty();
    let followed = paths.iter().find(|path| path.conditions.iter().all(holds));
    followed.map(SplitBranch::of).into_iter().collect()
}

/// The HTTP treatments of calls of `caller` to a port; for one request, as the caller's sidecar sees it, the one
/// that applies.
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
    let applies = |one: &Treatment<'_>| one.condition.is_none_or(holds);
    treatments.into_iter().find(applies).into_iter().collect()
}

/// The settings of the treatments, if there are any. `mirror_exclusion` returns why a mirror gets no copy.
pub(super) fn request_treatments(
    treatments: &[Treatment<'_>],
    mirror_exclusion: impl Fn(&Mirror) -> Option<String>,
) -> Vec<RequestTreatment> {
    let described = |treatment: &Treatment<'_>| {
        let mut settings = treatment.settings();
        let exclusion = treatment.mirror().and_then(&mirror_exclusion);
        if let Some((setting, why)) =
            settings.iter_mut().find(|one| one.key == "mirror").zip(exclusion)
        {
            setting.value = format!("{}, but not of this caller: {why}", setting.value);
        }
        RequestTreatment { condition: treatment.condition.map(MatchCondition::from), settings }
    };
    let described: Vec<_> = treatments.iter().map(described).collect();
    let is_empty = described.iter().all(|one| one.settings.is_empty());
    if is_empty { Vec::new() } else { described }
}

/// Why the mirror gets no copy of calls of `caller` to a service port with these branches; none if it does. The
/// compiler decides the same.
pub(super) fn mirror_exclusion(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    service_port: &ServicePort,
    branches: &[SplitBranch],
    mirror: &Mirror,
) -> Option<String> {
    let to = ServicePort::new(mirror.service.clone(), service_port.port);
    let is_http = |service: &Service| {
        service.external.is_none()
            && service.port(to.port).is_some_and(|one| one.protocol.is_http())
    };
    let routing = Routing::from(&snapshot.specification, &to.service);
    let name = &to.service;
    let is_all_to =
        |branch: &SplitBranch| matches!(branch.shares.as_slice(), [only] if only.service == *name);
    if to.service == service_port.service {
        Some("that is the service itself".to_owned())
    } else if !snapshot.service(name).is_some_and(|service| is_http(service)) {
        Some(format!("{name} has no HTTP port {}", to.port))
    } else if !routing.splits_of(&to).is_empty() {
        Some(format!("{name} has traffic splits"))
    } else if !is_in_scope(snapshot, &routing, caller, &to) {
        Some(format!("it may not call {name}"))
    } else if !branches.is_empty() && branches.iter().all(is_all_to) {
        Some(format!("{name} answers them itself"))
    } else {
        None
    }
}

/// Removes the backends that are private to a namespace other than that of `caller`, and returns them.
pub(super) fn remove_private_backends(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    branches: &mut [SplitBranch],
) -> BTreeSet<ServiceName> {
    let mut removed = BTreeSet::new();
    for branch in branches {
        branch.shares.retain(|share| {
            let service = snapshot.service(&share.service);
            let is_visible = service.is_none_or(|one| one.is_visible_in(&caller.namespace));
            if !is_visible {
                removed.insert(share.service.clone());
            }
            is_visible
        });
    }
    removed
}

/// Whether a service port is in the scope of the proxies of `caller`: it is visible to them, and they may send
/// some request to it or to one of its backends, with or without a weight.
pub(super) fn is_in_scope(
    snapshot: &Snapshot,
    routing: &Routing<'_>,
    caller: &ServiceAccount,
    service_port: &ServicePort,
) -> bool {
    let find = |port: &ServicePort| {
        let service = snapshot.service(&port.service)?;
        Some((&**service, service.port(port.port)?))
    };
    let is_visible = |service: &Service| service.is_visible_in(&caller.namespace);
    let mut reached = routing.reach(service_port, |_| true).into_iter();
    find(service_port).is_some_and(|(service, _)| is_visible(service))
        && reached.any(|port| {
            find(&port).is_some_and(|(service, port)| {
                is_visible(service) && may_call(snapshot, caller, service, port)
            })
        })
}

/// Whether `caller` may send any request to a port.
fn may_call(snapshot: &Snapshot, caller: &ServiceAccount, service: &Service, port: &Port) -> bool {
    snapshot.mode_of(service).allows_all()
        || snapshot
            .grants
            .between(caller, &service.account)
            .any(|grant| snapshot.specification.has_rule_about(&grant.target, port))
}
