//! The admin API's view of endpoints, and the acceptance of their removal.

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_api::{
    AcceptedEndpoints, ConflictView, EndpointList, EndpointRow, HeldView, ProblemView,
    ProviderView, ProxyWithoutEndpoint, ReportedHealth, ServiceEndpoints, SourceView, StaleView,
};
use ironmesh_catalog::snapshot::{EndpointState, EndpointStatus, ExclusionReason};
use ironmesh_catalog::{
    ApplicationHealth, ApplicationState, Endpoint, Health, HealthSource, JoinRecord, Provider,
    Records, Service, ServiceName, Snapshot,
};
use ironmesh_config_language::closest;
use ironmesh_providers::{Conflict, GuardStatus, PendingShrink, Stale};

use super::RunningControlPlane;
use crate::reconciler::EndpointsView;

impl RunningControlPlane {
    /// The endpoints of a service, or of all.
    pub(super) fn endpoint_list(
        &self,
        service: Option<&ServiceName>,
    ) -> Result<EndpointList, ApiError> {
        let snapshot = self.snapshot()?;
        let found = self.feeds.endpoints.borrow().clone();
        let services: Vec<_> = match service {
            None => snapshot.specification.services.values().cloned().collect(),
            Some(name) => vec![find_service(&snapshot, name)?],
        };
        let past = self.past_records(&snapshot);
        let services = services.iter().map(|service| of_service(&snapshot, service, &past, &found));
        let providers = found.providers.iter().map(|(provider, state)| ProviderView {
            provider: *provider,
            synced: state.is_complete,
            stale: state.stale.as_ref().map(stale_view),
        });
        Ok(EndpointList { providers: providers.collect(), services: services.collect() })
    }

    /// Accepts the endpoint removal that is held back for a service.
    pub(super) fn accept(&self, service: &ServiceName) -> Result<AcceptedEndpoints, ApiError> {
        let snapshot = self.snapshot()?;
        // The endpoints of a subset are held back with those of the whole.
        let service = find_service(&snapshot, service)?.served_as().clone();
        self.acceptances.accept(&service)?;
        tracing::warn!(%service, "endpoint removal accepted");
        Ok(AcceptedEndpoints { service })
    }

    /// The records of proxies that are neither in use nor revoked. Each service examines all of these; it has the records
    /// in use itself.
    pub(super) fn past_records(&self, snapshot: &Snapshot) -> Records {
        let is_past =
            |record: &JoinRecord| record.revoked.is_none() && snapshot.record(record.id).is_none();
        self.register.all_records().into_iter().filter(|(_, record)| is_past(record)).collect()
    }

    pub(super) fn snapshot(&self) -> Result<Arc<Snapshot>, ApiError> {
        let none = || ApiError::Busy("no policy is active yet: see `ironmesh status`".to_owned());
        self.feeds.snapshot.borrow().clone().ok_or_else(none)
    }
}

/// The service of that name, or an error that suggests a similar one.
pub(super) fn find_service(
    snapshot: &Snapshot,
    name: &ServiceName,
) -> Result<Arc<Service>, ApiError> {
    snapshot.service(name).cloned().ok_or_else(|| {
        let names: Vec<_> =
            snapshot.specification.services.keys().map(ToString::to_string).collect();
        let near = closest(&name.to_string(), names.iter().map(String::as_str));
        let advice = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        ApiError::NotFound(format!("policy defines no service `{name}`{advice}"))
    })
}

fn of_service(
    snapshot: &Snapshot,
    service: &Service,
    past: &Records,
    found: &EndpointsView,
) -> ServiceEndpoints {
    // A subset has the endpoints of the whole, and its reports.
    let whole = service.served_as();
    let providers = found.providers.keys();
    let guards: Vec<_> = providers
        .filter_map(|provider| Some((*provider, found.guards.get(&(*provider, whole.clone()))?)))
        .collect();
    let known = guards.iter().map(|(provider, guard)| source(*provider, guard));
    let unanswered = found.providers.iter().filter_map(|(provider, state)| {
        let trouble = state.troubles.get(whole)?;
        let is_known = found.guards.contains_key(&(*provider, whole.clone()));
        (!is_known).then(|| never_answered(*provider, trouble))
    });
    let endpoint_statuses = snapshot.endpoint_statuses(&service.name, past);
    let without = |one: &EndpointStatus| {
        let id = one.proxy.filter(|_| one.endpoint.is_none())?;
        let name = one.proxy_name.clone().unwrap_or_else(|| id.into());
        Some(ProxyWithoutEndpoint { id, name, mesh_address: one.mesh_address? })
    };
    let conflicts = found.conflicts.get(whole).into_iter().flat_map(|all| all.iter());
    ServiceEndpoints {
        service: service.name.clone(),
        drained: service.drained,
        sources: known.chain(unanswered).collect(),
        without_endpoint: endpoint_statuses.iter().filter_map(without).collect(),
        endpoints: endpoint_statuses
            .into_iter()
            .filter_map(|one| row(service, one, &guards))
            .collect(),
        conflicts: conflicts.map(conflict_view).collect(),
    }
}

fn source(provider: Provider, guard: &GuardStatus) -> SourceView {
    let report = guard.report.as_deref();
    let problems = report.into_iter().flat_map(|report| report.problems.iter());
    let problem = |one: &ironmesh_providers::Problem| ProblemView {
        instance: one.instance.clone(),
        reason: one.reason.clone(),
    };
    SourceView {
        provider,
        learned_at: Some(guard.learned_at),
        index: report.map(|report| report.index),
        authoritative: report.is_some_and(|report| report.is_authoritative),
        stale: report.and_then(|report| report.stale.as_ref()).map(stale_view),
        held: guard.held.map(|PendingShrink { since, until, before, left }| HeldView {
            since,
            until,
            before,
            left,
        }),
        problems: problems.map(problem).collect(),
    }
}

/// A provider without any report of a service yet.
fn never_answered(provider: Provider, trouble: &Stale) -> SourceView {
    SourceView {
        provider,
        learned_at: None,
        index: None,
        authoritative: false,
        stale: Some(stale_view(trouble)),
        held: None,
        problems: Vec::new(),
    }
}

pub(super) fn stale_view(stale: &Stale) -> StaleView {
    StaleView { since: stale.since, reason: stale.reason.clone() }
}

fn conflict_view(Conflict { used, ignored }: &Conflict) -> ConflictView {
    ConflictView {
        address: used.address,
        port: used.port,
        used: used.provider,
        ignored: ignored.provider,
    }
}

/// An endpoint's row; none for a proxy without an endpoint.
fn row(
    service: &Service,
    status: EndpointStatus,
    guards: &[(Provider, &Arc<GuardStatus>)],
) -> Option<EndpointRow> {
    let endpoint = status.endpoint?;
    let application = || {
        let target = match &service.ports[..] {
            [only] => Some(only.target),
            _ => None,
        };
        Some(SocketAddr::new(endpoint.address, endpoint.port.or(target)?))
    };
    let dialled_at = match &status.state {
        _ if service.ports.is_empty() => None,
        EndpointState::Participant => status.mesh_address,
        EndpointState::Plaintext(_) | EndpointState::External => application(),
        EndpointState::Excluded(_) => None,
    };
    let reason = reason(&status.state).or_else(|| failure(status.application.as_ref()));
    let (health, health_source) = health(&endpoint, status.application.as_ref());
    let place = endpoint.place();
    let guard = guards.iter().find(|(provider, _)| *provider == endpoint.provider);
    let guard = guard.map(|(_, guard)| guard);
    Some(EndpointRow {
        dialled_at,
        since: guard.and_then(|guard| guard.since.get(&place).copied()),
        flapping: guard.is_some_and(|guard| guard.flapping.contains(&place)),
        address: endpoint.address,
        port: endpoint.port,
        provider: endpoint.provider,
        instance: endpoint.instance.map(|name| name.to_string()),
        health,
        health_source,
        application: status.application,
        locality: endpoint.locality,
        weight: endpoint.weight,
        labels: endpoint.labels,
        proxy: status.proxy,
        proxy_name: status.proxy_name,
        leaving_since: status.leaving_since,
        cordon: status.cordon,
        status: status_word(&status.state).to_owned(),
        reason,
    })
}

/// Why an application gets no calls by its health check, or why its health is unknown.
fn failure(application: Option<&ApplicationHealth>) -> Option<String> {
    let ApplicationHealth { state, since, reason, .. } = application?;
    match state {
        ApplicationState::Healthy => None,
        ApplicationState::Unhealthy => {
            let why = reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            Some(format!("its application fails its health check since {since:.0}{why}"))
        }
        ApplicationState::Unknown => {
            reason.as_ref().map(|why| format!("the health of its application is unknown: {why}"))
        }
    }
}

/// The worse health of those that the provider and the source of the application's health report, and the component that
/// probes it.
fn health(
    endpoint: &Endpoint,
    application: Option<&ApplicationHealth>,
) -> (ReportedHealth, Option<HealthSource>) {
    let provider = endpoint.probed.then_some(HealthSource::Provider);
    match application.map(|application| (application.state, application.source)) {
        Some((ApplicationState::Unhealthy, source)) => (ReportedHealth::Unhealthy, Some(source)),
        Some((ApplicationState::Healthy, source)) if endpoint.health == Health::Healthy => {
            (ReportedHealth::Healthy, Some(source))
        }
        _ => (ReportedHealth::of(endpoint.health, endpoint.probed), provider),
    }
}

/// The status of an endpoint as its JSON value.
pub(super) fn status_word(state: &EndpointState) -> &'static str {
    match state {
        EndpointState::Participant => "participant",
        EndpointState::External => "external",
        EndpointState::Plaintext(_) => "plaintext",
        EndpointState::Excluded(reason) => word(reason),
    }
}

/// The reason in words, if callers do not use an endpoint as a participant.
fn reason(state: &EndpointState) -> Option<String> {
    match state {
        EndpointState::Participant | EndpointState::External => None,
        EndpointState::Plaintext(reason) | EndpointState::Excluded(reason) => {
            Some(reason.to_string())
        }
    }
}

fn word(reason: &ExclusionReason) -> &'static str {
    match reason {
        ExclusionReason::Drained => "drained",
        ExclusionReason::Excluded { .. } => "excluded",
        ExclusionReason::NoProxy => "no_proxy",
        ExclusionReason::SeveralProxies { .. } => "several_proxies",
        ExclusionReason::Unclaimed => "unclaimed",
        ExclusionReason::NotAcked { .. } => "not_acked",
        ExclusionReason::NotReported { .. } => "not_reported",
        ExclusionReason::NotConfigured { .. } => "not_configured",
        ExclusionReason::Unreachable { .. } => "unreachable",
        ExclusionReason::Revoked => "revoked",
        ExclusionReason::Expired => "expired",
        ExclusionReason::NoEndpoint => "no_endpoint",
    }
}
