//! Backends of traffic splits that policy alone shows to have no endpoints.
//!
//! Reports of providers are not known here: the control plane checks those (IM0732, and `ironmesh policy
//! plan`).

use ironmesh_catalog::splits::Splits;
use ironmesh_catalog::{EndpointSource, Finding, Service, ServiceName, SplitBackend, TrafficSplit};

use super::draft::Draft;
use crate::codes;

/// Warns of backends with a share of the calls and without endpoints.
pub(super) fn check(draft: &mut Draft<'_>) {
    // A rejected service may be the one that is missing.
    if !draft.is_whole() {
        return;
    }
    let (services, groups) = (draft.services.iter(), draft.http_route_groups.iter());
    let splits = Splits::new(services, groups, draft.traffic_splits.iter());
    let of_splits = splits.iter().flat_map(|(_, own)| own).flat_map(|split| {
        split
            .backends
            .iter()
            .filter_map(|backend| backend_without_endpoints(&splits, split, backend))
    });
    let findings: Vec<_> = of_splits.collect();
    draft.findings.extend(findings);
}

fn backend_without_endpoints(
    splits: &Splits<'_>,
    split: &TrafficSplit,
    backend: &SplitBackend,
) -> Option<Finding> {
    let (apex, service) = (splits.service(&split.service)?, splits.service(&backend.service)?);
    let leads_on = |name: &ServiceName| splits.of(name).iter().any(|one| !one.is_conditional());
    if backend.weight == 0
        || is_drained(splits, apex)
        || (service.name != apex.name && leads_on(&service.name))
    {
        return None;
    }
    let name = &service.name.name;
    let (why, help) = if is_drained(splits, service) {
        ("it is drained", "give it the weight 0, or remove its `state`".to_owned())
    } else if has_no_labelled(splits, service) {
        (
            "none of the listed endpoints has its labels",
            format!("give it the weight 0, or an endpoint of the list the labels of `{name}`"),
        )
    } else {
        return None;
    };
    let sum: u64 = split.backends.iter().map(|backend| u64::from(backend.weight)).sum();
    let share = (u64::from(backend.weight) * 100).div_ceil(sum.max(1));
    let which = if split.is_conditional() { "matching calls" } else { "calls" };
    let message = format!(
        "backend `{name}` has no endpoints, {why}: {share} % of the {which} of `{}` fail",
        apex.name.name
    );
    let finding =
        Finding::warning(codes::BACKEND_WITHOUT_ENDPOINTS, Some(backend.spot.clone()), message)
            .label("no endpoints")
            .related(service.spot.clone(), "the backend")
            .help(help);
    Some(finding)
}

/// Whether the service, or the service whose subset it is, is drained.
fn is_drained(splits: &Splits<'_>, service: &Service) -> bool {
    let whole = splits.service(service.served_as());
    service.drained || whole.is_some_and(|whole| whole.drained)
}

/// Whether it is a subset of a service with all endpoints listed in policy, none of which has its labels.
fn has_no_labelled(splits: &Splits<'_>, service: &Service) -> bool {
    let EndpointSource::Subset { of, labels } = &service.endpoints else { return false };
    let providers = splits.service(of).and_then(|whole| whole.endpoints.providers());
    providers.is_some_and(|providers| {
        providers.external().next().is_none()
            && !providers.registered
            && !providers.fixed.iter().any(|endpoint| endpoint.labels.include(labels))
    })
}
