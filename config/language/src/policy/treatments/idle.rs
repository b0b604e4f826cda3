//! HTTP routes and retries without effect on any call: legal, and surely not intended.

use std::collections::BTreeSet;

use ironmesh_catalog::hosts::is_passed_through;
use ironmesh_catalog::http_routes::{HttpRoutes, Treatment};
use ironmesh_catalog::{Finding, HttpRoute, ServiceName, Spot};

use crate::codes;
use crate::policy::draft::Draft;
use crate::policy::http_route::UPSTREAM_KEYS;

/// Reports HTTP routes and retries without effect.
pub(super) fn check(draft: &Draft<'_>, findings: &mut Vec<Finding>) {
    for route in draft.http_routes.iter() {
        let service = route.reach.service();
        findings.extend(service.and_then(|name| without_http(draft, name, &route.spot)));
        findings.extend(service.and_then(|name| ineffective_host_rewrite(draft, name, route)));
    }
    for retry in draft.retries.iter() {
        let about = |service: &ServiceName, spot: &Spot| without_http(draft, service, spot);
        let idle = retry.destinations.iter().filter_map(|one| about(&one.service, &one.spot));
        findings.extend(idle);
    }
    find_combined_settings(draft, findings);
}

/// A service without HTTP ports has no requests.
fn without_http(draft: &Draft<'_>, name: &ServiceName, spot: &Spot) -> Option<Finding> {
    let service = draft.services.get(&(name.namespace.clone(), name.name.clone()))?;
    if service.ports.iter().any(|port| port.protocol.is_http()) {
        return None;
    }
    let message = format!("this has no effect: service `{}` has no HTTP port", name.name);
    let finding = Finding::warning(codes::IDLE_ROUTE, Some(spot.clone()), message);
    Some(
        finding
            .label("applies to requests")
            .related(service.spot.clone(), "the service is defined here")
            .help("name another service, or give this one an HTTP port"),
    )
}

/// The finding for a rewritten host of calls that are routed by their own host: they would go elsewhere.
fn ineffective_host_rewrite(
    draft: &Draft<'_>,
    name: &ServiceName,
    route: &HttpRoute,
) -> Option<Finding> {
    let host = route.settings.rewrite.as_ref()?.host.as_ref()?;
    let service = draft.services.get(&(name.namespace.clone(), name.name.clone()))?;
    is_passed_through(service).then(|| {
        let message = format!(
            "the host is not rewritten to `{host}`: calls of service `{}` are routed by their own host",
            name.name
        );
        Finding::warning(codes::IDLE_ROUTE, Some(route.spot.clone()), message)
            .label("rewrites the host")
            .related(service.spot.clone(), "the service is defined here")
            .help("remove `host`, or define a service of that hostname")
    })
}

/// Settings of different objects that have no effect together.
fn find_combined_settings(draft: &Draft<'_>, findings: &mut Vec<Finding>) {
    let group = |namespace: &_, name: &_| {
        draft.http_route_groups.get(&(Clone::clone(namespace), Clone::clone(name)))
    };
    let all = HttpRoutes::new(draft.http_routes.shared(), draft.retries.shared(), group);
    let of_routes = draft.services.iter().flat_map(|service| all.treatments_of_all(&service.name));
    let of_retries = draft.retries.iter().flat_map(|retry| {
        retry.destinations.iter().flat_map(|one| all.treatments(&retry.source, &one.service))
    });
    let mut reported = BTreeSet::new();
    for treatment in of_routes.chain(of_retries) {
        for (spots, finding) in
            [endless_try(&treatment), redirected(&treatment)].into_iter().flatten()
        {
            if reported.insert(spots) {
                findings.push(finding);
            }
        }
    }
}

/// A setting of a more specific object for requests that a less specific one redirects.
fn redirected(treatment: &Treatment<'_>) -> Option<([Spot; 2], Finding)> {
    treatment.redirect()?;
    let settings = treatment.settings();
    let (n, redirect) =
        settings.iter().enumerate().find(|(_, setting)| setting.key == "redirect")?;
    let nearer = settings.get(..n).unwrap_or_default();
    let idle = nearer.iter().find(|setting| {
        UPSTREAM_KEYS.contains(&setting.key.as_str()) && setting.by.spot != redirect.by.spot
    })?;
    let message = format!("`{}` has no effect: redirected requests are not forwarded", idle.key);
    let finding = Finding::warning(codes::IDLE_ROUTE, Some(idle.by.spot.clone()), message)
        .label("has no effect")
        .related(redirect.by.spot.clone(), "they are redirected by this")
        .help("give the redirect `matches` that leave these requests out, or remove it");
    Some(([idle.by.spot.clone(), redirect.by.spot.clone()], finding))
}

fn endless_try(treatment: &Treatment<'_>) -> Option<([Spot; 2], Finding)> {
    let (timeout, retries) = (treatment.timeout()?, treatment.retries());
    let per_try = retries.per_try_timeout.filter(|per_try| *per_try >= timeout)?;
    let settings = treatment.settings();
    let of = |key: &str| settings.iter().find(|setting| setting.key == key);
    let (whole, tries) = (&of("timeout")?.by, &of("retries")?.by);
    if whole.spot == tries.spot {
        return None;
    }
    let message = format!(
        "one try may take {per_try:?}, and the request with all of its tries {timeout:?}: nothing is \
         tried again that takes too long"
    );
    let finding = Finding::warning(codes::IDLE_ROUTE, Some(tries.spot.clone()), message)
        .label("each of its tries")
        .related(whole.spot.clone(), "the whole request")
        .help("make `per_try_timeout` shorter than `timeout`");
    Some(([tries.spot.clone(), whole.spot.clone()], finding))
}
