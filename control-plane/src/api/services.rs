//! The admin API's view of the services of policy.

use std::collections::BTreeMap;

use ironmesh_admin::ApiError;
use ironmesh_analysis::routing::split_branches;
use ironmesh_analysis::verdict::ExternalDestination;
use ironmesh_api::{
    EndpointCounts, MAX_SERVICE_PAGE, PortView, ServiceDetail, ServicePage, ServicePortDetail,
    ServiceQuery, ServiceView,
};
use ironmesh_catalog::service::External;
use ironmesh_catalog::splits::Splits;
use ironmesh_catalog::{Health, Port, Records, Service, ServiceName, ServicePort, Snapshot};

use super::RunningControlPlane;
use super::access::callers_view;
use super::endpoints::{find_service, status_word};
use super::page_query::{PageBounds, is_in};

impl RunningControlPlane {
    /// A page of the services, by name.
    pub(super) fn service_page(&self, query: &ServiceQuery) -> Result<ServicePage, ApiError> {
        let PageBounds { after, limit } =
            PageBounds::read(query.after.as_deref(), query.limit, MAX_SERVICE_PAGE)?;
        let snapshot = self.snapshot()?;
        let services = snapshot.specification.services.values();
        let matching: Vec<_> =
            services.filter(|service| is_in(service, query.namespace.as_ref())).collect();
        let start =
            after.map_or(0, |after| matching.partition_point(|service| service.name <= after));
        let page = matching.get(start..).unwrap_or_default();
        let has_more = page.len() > limit;
        let page = page.get(..limit).unwrap_or(page);
        let splits = Splits::of_specification(&snapshot.specification);
        let past = self.past_records(&snapshot);
        Ok(ServicePage {
            services: page.iter().map(|one| view(&snapshot, one, &splits, &past)).collect(),
            matching: matching.len(),
            next: page.last().filter(|_| has_more).map(|last| last.name.to_string()),
        })
    }

    /// A service in detail.
    pub(super) fn service_detail(&self, name: &ServiceName) -> Result<ServiceDetail, ApiError> {
        let snapshot = self.snapshot()?;
        let service = find_service(&snapshot, name)?;
        let splits = Splits::of_specification(&snapshot.specification);
        let past = self.past_records(&snapshot);
        let access = service.ports.iter().map(|port| port_detail(&snapshot, &service, port));
        Ok(ServiceDetail {
            service: view(&snapshot, &service, &splits, &past),
            subsets: service.subsets.clone(),
            access: access.collect(),
        })
    }
}

fn view(
    snapshot: &Snapshot,
    service: &Service,
    splits: &Splits<'_>,
    past: &Records,
) -> ServiceView {
    let external = |external: &External| ExternalDestination {
        hostname: external.hostname.as_ref().map(ToString::to_string),
        resolution: external.resolution.to_string(),
    };
    ServiceView {
        service: service.name.clone(),
        account: service.account.clone(),
        hostname: snapshot.mesh.domain.hostname(&service.name),
        mode: snapshot.mode_of(service).to_string(),
        visibility: service.visibility.to_string(),
        drained: is_drained(snapshot, service),
        subset_of: service.is_subset().then(|| service.served_as().clone()),
        external: service.external.as_ref().map(external),
        split: !splits.of(&service.name).is_empty(),
        ports: service.ports.iter().map(|port| port_view(snapshot, service, port)).collect(),
        endpoints: endpoint_counts(snapshot, service, past),
        spot: service.spot.clone(),
    }
}

/// Whether policy drains a service, or the whole of which it is a subset.
fn is_drained(snapshot: &Snapshot, service: &Service) -> bool {
    let whole = snapshot.service(service.served_as());
    service.drained || whole.is_some_and(|whole| whole.drained)
}

fn port_view(snapshot: &Snapshot, service: &Service, port: &Port) -> PortView {
    let key = ServicePort::new(service.name.clone(), port.number);
    // Only healthy endpoints get new calls (docs/decisions/0032).
    let ready = || match snapshot.endpoints.get(&key) {
        Some(used) if !is_drained(snapshot, service) => {
            used.iter().filter(|one| one.health == Health::Healthy).count()
        }
        _ => 0,
    };
    PortView {
        number: port.number,
        name: port.name.clone(),
        protocol: port.protocol.to_string(),
        target: port.target,
        ready: (!service.endpoints.is_hostname()).then(ready),
    }
}

fn endpoint_counts(snapshot: &Snapshot, service: &Service, past: &Records) -> EndpointCounts {
    let (mut known, mut by_status) = (0, BTreeMap::new());
    for status in snapshot.endpoint_statuses(&service.name, past) {
        known += usize::from(status.endpoint.is_some());
        *by_status.entry(status_word(&status.state).to_owned()).or_default() += 1;
    }
    EndpointCounts { known, by_status }
}

fn port_detail(snapshot: &Snapshot, service: &Service, port: &Port) -> ServicePortDetail {
    let key = ServicePort::new(service.name.clone(), port.number);
    let (splits, branches) = split_branches(&snapshot.specification, &key);
    // A call of a subset is a call of its service.
    let whole = snapshot.service(service.served_as()).map_or(service, |whole| &**whole);
    let callers = callers_view(snapshot, whole, port);
    ServicePortDetail { number: port.number, splits, branches, callers }
}
