//! The number of routes of a sidecar to one service, and whether Envoy can compare their conditions.

use std::collections::BTreeMap;

use ironmesh_catalog::http_routes::{HttpRoutes, Treatment, cross};
use ironmesh_catalog::splits::{MAX_PATHS, Splits};
use ironmesh_catalog::{Finding, HttpMatch, RouteRule, Service, ServiceName, ServicePort};

use super::super::splits::two_large_paths;
use crate::codes;
use crate::policy::draft::Draft;

/// Reports services with too many routes, or with routes that Envoy would reject.
pub(super) fn check(draft: &Draft<'_>, findings: &mut Vec<Finding>) {
    let group = |namespace: &_, name: &_| {
        draft.http_route_groups.get(&(Clone::clone(namespace), Clone::clone(name)))
    };
    let all = HttpRoutes::new(draft.http_routes.shared(), draft.retries.shared(), group);
    if all.services_with_requests().next().is_none() {
        return;
    }
    let splits = Splits::new(
        draft.services.iter(),
        draft.http_route_groups.iter(),
        draft.traffic_splits.iter(),
    );
    let mut inseparable = BTreeMap::new();
    for name in all.services_with_requests() {
        let Some(service) = splits.service(name) else { continue };
        let treatments = all.treatments_of_all(name);
        let paths = if service.external.is_some() {
            allowed(draft, service)
        } else {
            paths(&splits, service)
        };
        for paths in paths {
            // A product of this size is not even computed.
            let pairs = treatments.len().saturating_mul(paths.len());
            let crossings = (pairs <= MOST_LOOKED_AT).then(|| cross(&treatments, &paths));
            let Some(crossings) = crossings.filter(|some| some.len() <= MAX_PATHS) else {
                findings.extend(too_many(name, &treatments));
                break;
            };
            inseparable
                .extend(crossings.into_iter().filter_map(|one| two_large_paths(&one.conditions)));
        }
    }
    findings.extend(inseparable.into_values());
}

/// The conditions of the paths from each HTTP port.
fn paths<'a>(splits: &Splits<'a>, service: &Service) -> Vec<Vec<Vec<&'a HttpMatch>>> {
    let known = splits.paths_from(&service.name);
    let conditions = |(port, _): (ServicePort, _)| match known.get(&port) {
        Some(Ok(paths)) => Some(paths.iter().map(|path| path.conditions.clone()).collect()),
        // Another check has reported it.
        Some(Err(_)) => None,
        None => Some(vec![Vec::new()]),
    };
    let ports = service.service_ports().filter(|(_, port)| port.protocol.is_http());
    ports.filter_map(conditions).collect()
}

/// The matches that callers of an external service may use, which become its routes.
fn allowed<'a>(draft: &Draft<'a>, service: &Service) -> Vec<Vec<Vec<&'a HttpMatch>>> {
    let mut allowed: Vec<Vec<&HttpMatch>> = Vec::new();
    for target in draft.traffic_targets.iter() {
        let accounts = draft.accounts_of(&target.destination);
        if accounts.is_some_and(|accounts| !accounts.contains(&service.account)) {
            continue;
        }
        for rule in &target.rules {
            let RouteRule::Http { group, matches, .. } = rule else { continue };
            let group = draft.http_route_groups.get(&(target.namespace.clone(), group.clone()));
            let named = group.into_iter().flat_map(|group| group.named_matches(matches.as_deref()));
            allowed.extend(named.map(|one| vec![one]));
        }
    }
    vec![allowed]
}

/// The most pairs of conditions that are combined.
const MOST_LOOKED_AT: usize = 16 * MAX_PATHS;

fn too_many(service: &ServiceName, treatments: &[Treatment<'_>]) -> Option<Finding> {
    let condition = treatments.iter().find_map(|treatment| treatment.condition)?;
    let message = format!(
        "HTTP routes make more than {MAX_PATHS} routes to service `{}`, and Envoy would look at one after the other",
        service.name
    );
    let finding = Finding::error(codes::TOO_LARGE, Some(condition.spot.clone()), message);
    Some(
        finding
            .label("multiplied by the matches of its splits and traffic targets")
            .help("combine several matches, as in `path_regex = \"/(?:a|b)\"`"),
    )
}
