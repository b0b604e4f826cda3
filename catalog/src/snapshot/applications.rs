//! The applications of a service as their probes report them: which of them callers avoid, and the findings about that.
//!
//! This module decides which applications of a proxy are probed, and what a report means for callers. It never probes, and
//! forgets reports about ports that policy does not probe any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::Snapshot;
use super::classifier::EndpointClassifier;
use super::endpoint_status::{EndpointState, EndpointStatus};
use crate::application_health::{
    ApplicationHealth, ApplicationState, PortHealth, ProbedApplication, ReportedApplications,
};
use crate::codes::APPLICATION_UNHEALTHY;
use crate::endpoint::Endpoint;
use crate::finding::Finding;
use crate::name::ServicePort;
use crate::proxy::{JoinRecord, ProxyId};
use crate::proxy_index::ProxyIndex;
use crate::service::Service;

impl Snapshot {
    /// The applications of a proxy that policy probes. They listen where their endpoints say, or on policy's target port.
    pub fn probed_applications(&self, record: &JoinRecord) -> Vec<ProbedApplication> {
        let mut applications = Vec::new();
        for service in record.services.iter().filter_map(|name| self.service(name)) {
            let Some(check) = &service.health else { continue };
            let Some(port) = service.port(check.port) else { continue };
            let service_port = ServicePort::new(service.name.clone(), port.number);
            let key = (record.id, service_port.clone());
            let known = self.local_endpoints.get(&key);
            let mut targets: BTreeSet<_> =
                known.into_iter().flat_map(|all| all.iter()).map(|one| one.port).collect();
            if targets.is_empty() {
                targets.insert(port.target);
            }
            applications.extend(targets.into_iter().map(|target| ProbedApplication {
                service_port: service_port.clone(),
                target,
                check: check.clone(),
            }));
        }
        applications.truncate(ProbedApplication::MAX);
        applications
    }

    /// The proxies whose probed applications may differ from those of an earlier snapshot with the same policy.
    pub fn proxies_with_other_applications<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = ProxyId> + 'a {
        let id = |item: DiffItem<'_, '_, (ProxyId, ServicePort), _>| match item {
            DiffItem::Add((id, _), _)
            | DiffItem::Remove((id, _), _)
            | DiffItem::Update { new: ((id, _), _), .. } => *id,
        };
        let moved = earlier.local_endpoints.diff(&self.local_endpoints).map(id);
        moved.chain(self.proxies_with_other_services(earlier))
    }
}

/// The most applications that a finding names.
const FEW: usize = 3;

/// The reports about the applications of one service, if policy probes them.
#[derive(Debug, Default)]
pub(super) struct ApplicationsOfService {
    /// The probed port, as proxies serve it; none without a health check.
    probed: Option<ServicePort>,
    reports: ReportedApplications,
}

impl ApplicationsOfService {
    /// Those of `service`. A subset has the health check of its `whole`.
    pub(super) fn new(
        service: &Service,
        whole: Option<&Arc<Service>>,
        reports: &ReportedApplications,
    ) -> Self {
        let whole = whole.map_or(service, |whole| whole);
        let probed = whole
            .health
            .as_ref()
            .map(|check| ServicePort::new(service.served_as().clone(), check.port));
        let reports = if probed.is_some() { reports.clone() } else { ReportedApplications::new() };
        Self { probed, reports }
    }

    /// The report about the application of a proxy that listens on `target`, if its service port is probed.
    fn report(&self, proxy: ProxyId, target: u16) -> Option<&ApplicationHealth> {
        let key = (proxy, self.probed.clone()?);
        self.reports.get(&key).and_then(|ports: &Arc<PortHealth>| ports.get(&target))
    }

    /// Whether callers of this port avoid the application: it fails its health check.
    pub(super) fn is_failing(&self, proxy: ProxyId, port: u16, target: u16) -> bool {
        self.probed.as_ref().is_some_and(|probed| probed.port == port)
            && self
                .report(proxy, target)
                .is_some_and(|report| report.state == ApplicationState::Unhealthy)
    }
}

impl EndpointStatus {
    /// Whether its application fails its health check.
    pub fn is_failing(&self) -> bool {
        let state = self.application.as_ref().map(|application| application.state);
        state == Some(ApplicationState::Unhealthy)
    }
}

impl EndpointClassifier<'_> {
    /// The reported health of the application of an endpoint, whose proxy has these records.
    pub(super) fn application(
        &self,
        endpoint: &Endpoint,
        records: &[Arc<JoinRecord>],
    ) -> Option<ApplicationHealth> {
        let probed = self.health.probed.as_ref()?;
        let port = self.service.port(probed.port)?;
        let target = self.target(endpoint, port);
        // If a machine was enrolled again, the newest record that reports is decisive.
        let newest_first = {
            let mut records: Vec<_> = records.iter().collect();
            records.sort_by_key(|record| std::cmp::Reverse(record.enrolled_at));
            records
        };
        newest_first.into_iter().find_map(|record| self.health.report(record.id, target)).cloned()
    }

    /// The finding about the applications that fail their health check: an error if no other one is left.
    pub(super) fn failing_applications(&self, endpoints: &[Endpoint]) -> Option<Finding> {
        let probed = self.health.probed.as_ref()?;
        if self.service.is_subset() || self.is_drained {
            return None;
        }
        let past = ProxyIndex::default();
        let statuses: Vec<_> = endpoints.iter().map(|one| self.status(one, &past)).collect();
        let used: Vec<_> =
            statuses.iter().filter(|one| one.state == EndpointState::Participant).collect();
        let failing: Vec<_> = used.iter().filter(|one| one.is_failing()).collect();
        let addresses: BTreeSet<_> =
            failing.iter().filter_map(|one| Some(one.endpoint.as_ref()?.address)).collect();
        if failing.is_empty() {
            return None;
        }
        let named: Vec<_> = addresses.iter().take(FEW).map(ToString::to_string).collect();
        let rest = addresses.len().saturating_sub(FEW);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let (name, port) = (&self.service.name, probed.port);
        let message = format!(
            "{} of {} applications of service `{name}`, port {port} fail their health check: {}{more}",
            failing.len(),
            used.len(),
            named.join(", ")
        );
        let spot = Some(self.service.spot.clone());
        let finding = if failing.len() == used.len() {
            Finding::error(APPLICATION_UNHEALTHY, spot, message)
        } else {
            Finding::warning(APPLICATION_UNHEALTHY, spot, message)
        };
        let help = format!(
            "callers do not use them until they pass again: `ironmesh endpoints {name}` lists them, and `ironmesh agent status` on a machine shows why the probe fails"
        );
        let object = &ServicePort::new(name.clone(), port);
        Some(finding.object(object).label("health check").help(help))
    }
}
