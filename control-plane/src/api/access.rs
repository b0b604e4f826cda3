//! The admin API's view of access: the callers of each service port.

use ironmesh_admin::ApiError;
use ironmesh_analysis::access::{PortAccess, allows_everything, granting_rules};
use ironmesh_api::{
    AccessExtent, AccessPage, AccessQuery, CallerView, CallersView, MAX_ACCESS_PAGE,
    MAX_CALLER_RULES, MAX_PAGE_CALLERS, MAX_PORT_CALLERS, PortAccessView,
};
use ironmesh_catalog::{Port, Service, ServicePort, Snapshot};

use super::RunningControlPlane;
use super::page_query::{PageBounds, is_in};

impl RunningControlPlane {
    /// A page of service ports with their callers, by port.
    pub(super) fn access_page(&self, query: &AccessQuery) -> Result<AccessPage, ApiError> {
        access_page(&*self.snapshot()?, query)
    }
}

fn access_page(snapshot: &Snapshot, query: &AccessQuery) -> Result<AccessPage, ApiError> {
    let PageBounds { after, limit } =
        PageBounds::<ServicePort>::read(query.after.as_deref(), query.limit, MAX_ACCESS_PAGE)?;
    let is_listed =
        |service: &Service| is_in(service, query.namespace.as_ref()) && !service.is_subset();
    let mut page = AccessPage::default();
    let mut callers = 0;
    let services = snapshot.specification.services.values().filter(|service| is_listed(service));
    for (service, (key, port)) in
        services.flat_map(|service| service.service_ports().map(move |port| (service, port)))
    {
        page.matching += 1;
        if after.as_ref().is_some_and(|after| key <= *after) || page.next.is_some() {
            continue;
        }
        if page.ports.len() == limit || callers >= MAX_PAGE_CALLERS {
            page.next = page.ports.last().map(|last: &PortAccessView| last.port.to_string());
            continue;
        }
        let access = callers_view(snapshot, service, port);
        callers += access.callers.len();
        page.ports.push(PortAccessView {
            port: key,
            account: service.account.clone(),
            protocol: port.protocol.to_string(),
            mode: snapshot.mode_of(service).to_string(),
            access,
        });
    }
    Ok(page)
}

/// The callers of `port` of `service`, which is no subset.
pub(super) fn callers_view(snapshot: &Snapshot, service: &Service, port: &Port) -> CallersView {
    let PortAccess { open_to, granted } = PortAccess::of(snapshot, service, port);
    let more_callers = granted.len().saturating_sub(MAX_PORT_CALLERS);
    let callers = granted.into_iter().take(MAX_PORT_CALLERS).map(|(account, grants)| {
        let is_all = grants.iter().any(|grant| allows_everything(snapshot, grant, port));
        let mut all = grants.iter().flat_map(|grant| granting_rules(snapshot, grant, port));
        let rules = all.by_ref().take(MAX_CALLER_RULES).collect();
        CallerView {
            account: account.clone(),
            extent: if is_all { AccessExtent::All } else { AccessExtent::Some },
            rules,
            more_rules: all.count(),
        }
    });
    CallersView { open_to, callers: callers.collect(), more_callers }
}

#[cfg(test)]
mod tests;
