//! Findings about providers: staleness, unusable endpoints, held-back removals, flapping,
//! contradictions.
//!
//! This module only phrases the findings. It never decides what the guards do.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_catalog::codes::{
    ENDPOINT_FLAPS, ENDPOINTS_HELD, PROVIDER_STALE, PROVIDERS_CONTRADICT, UNUSABLE_ENDPOINT,
};
use ironmesh_catalog::{Endpoint, Finding, ObjectRef, Provider, ServiceName};

use crate::combine::Conflict;
use crate::guards::{GuardStatus, PendingShrink, ProviderGuards, QUIET, Source};

/// The number of unusable endpoints of one service that get a finding each.
const FEW: usize = 3;

/// Returns the findings about all providers, in a fixed order.
pub fn findings(
    guards: &ProviderGuards,
    conflicts: &OrdMap<ServiceName, Arc<[Conflict]>>,
) -> Vec<Finding> {
    let mut findings: Vec<_> = guards
        .reports()
        .filter_map(|(provider, report)| {
            let stale = report.stale.as_ref()?;
            let message = format!(
                "the endpoints provider {provider} is stale since {:.0}: {}",
                stale.since, stale.reason
            );
            let help =
                "the mesh keeps the last known endpoints, if any, until the provider answers";
            Some(Finding::warning(PROVIDER_STALE, None, message).object(provider).help(help))
        })
        .collect();
    // A provider that is stale as a whole gets one finding, and not one for each service.
    let is_stale: BTreeMap<_, _> =
        guards.reports().map(|(provider, report)| (provider, report.stale.is_some())).collect();
    for (provider, report) in guards.reports().filter(|(_, one)| one.stale.is_none()) {
        findings.extend(report.troubles.iter().map(|(service, trouble)| {
            let message = format!(
                "{provider} has not reported service `{service}` since {:.0}: {}",
                trouble.since, trouble.reason
            );
            let help = "until it does, the mesh uses only the saved endpoints of this provider";
            Finding::warning(PROVIDER_STALE, None, message).object(service).help(help)
        }));
    }
    for (source, status) in guards.statuses() {
        findings.extend(of_service(source, status, is_stale.get(&source.0) == Some(&true)));
    }
    for (service, conflicts) in conflicts {
        findings.extend(conflicts.iter().map(|conflict| contradiction(service, conflict)));
    }
    findings
}

fn of_service(
    (provider, service): &Source,
    status: &GuardStatus,
    is_provider_stale: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(report) = &status.report {
        if let Some(stale) = report.stale.as_ref().filter(|_| !is_provider_stale) {
            let message = format!(
                "the answer of {provider} for service `{service}` is stale since {:.0}: {}",
                stale.since, stale.reason
            );
            let help =
                "the mesh keeps the last known endpoints, if any, until the provider answers";
            findings
                .push(Finding::warning(PROVIDER_STALE, None, message).object(service).help(help));
        }
        let rest = report.problems.len().saturating_sub(FEW);
        findings.extend(report.problems.iter().take(FEW).map(|problem| {
            let message = format!(
                "endpoint `{}` of service `{service}` in {provider} cannot be used: {}",
                problem.instance, problem.reason
            );
            let help = "fix its registration; its last known endpoint stays in use";
            Finding::warning(UNUSABLE_ENDPOINT, None, message).object(service).help(help)
        }));
        if rest > 0 {
            let message = format!(
                "{rest} more endpoints of service `{service}` in {provider} cannot be used"
            );
            let help = format!("`ironmesh endpoints {service}` lists them all");
            findings.push(
                Finding::warning(UNUSABLE_ENDPOINT, None, message).object(service).help(help),
            );
        }
    }
    if let Some(held) = &status.held {
        findings.push(held_back(*provider, service, held));
    }
    findings.extend(status.flapping.iter().map(|(address, port)| {
        let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
        let message = format!(
            "endpoint {address}{port} of service `{service}` flaps in {provider}: it gets no traffic until it has been quiet for {} s",
            QUIET.as_secs()
        );
        let help = "find out why its health check alternates between failing and passing";
        let object = ObjectRef::Endpoint(service.clone(), *address);
        Finding::warning(ENDPOINT_FLAPS, None, message).object(object).help(help)
    }));
    findings
}

fn held_back(provider: Provider, service: &ServiceName, held: &PendingShrink) -> Finding {
    let PendingShrink { since, until, before, left } = held;
    let message = format!(
        "{provider} suddenly reports {left} of {before} healthy endpoints of service `{service}`, since {since:.0}: the others stay in use"
    );
    let until = match until {
        Some(until) => format!("they will be removed at {until:.0} unless they come back"),
        None => "they are kept until the provider is authoritative".to_owned(),
    };
    let help =
        format!("{until}; if the removal is intended: `ironmesh endpoints accept {service}`");
    Finding::warning(ENDPOINTS_HELD, None, message).object(service).help(help)
}

fn contradiction(service: &ServiceName, conflict: &Conflict) -> Finding {
    let Conflict { used, ignored } = conflict;
    let (first, second) = (used.provider, ignored.provider);
    let message = format!(
        "{first} and {second} contradict each other about endpoint {} of service `{service}`: {first} is used ({}; {second}: {})",
        used.address,
        words(used),
        words(ignored)
    );
    let help = "define the endpoint in one of them, or give both the same values";
    let object = ObjectRef::Endpoint(service.clone(), used.address);
    Finding::warning(PROVIDERS_CONTRADICT, None, message).object(object).help(help)
}

fn words(endpoint: &Endpoint) -> String {
    let Endpoint { weight, health, labels, proxy, .. } = endpoint;
    let labels = if labels.is_empty() { String::new() } else { format!(", {labels}") };
    let proxy = proxy.map(|proxy| format!(", proxy {proxy}")).unwrap_or_default();
    format!("{health}, weight {weight}{labels}{proxy}")
}
