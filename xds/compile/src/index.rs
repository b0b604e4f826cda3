//! Policy, indexed by the compiler's queries. Built once per policy; endpoints are no part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::http_routes::HttpRoutes;
use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{
    Egress, Name, OpenCallers, ServiceAccount, ServiceName, ServicePort, Snapshot, UpstreamSettings,
};

use crate::splits::SplitIndex;

/// The specification by service account and by apex.
#[derive(Debug)]
pub(crate) struct PolicyIndex {
    services: BTreeMap<ServiceAccount, Vec<ServiceName>>,
    splits: SplitIndex,
    http_routes: HttpRoutes,
    upstream_settings: UpstreamSettings,
    /// The egresses of each source account, in the order of names.
    egresses: BTreeMap<ServiceAccount, Vec<Arc<Egress>>>,
    /// The ports of services that allow all calls: those of public services, and those of private ones by namespace.
    permissive: BTreeMap<Option<Name>, BTreeSet<ServicePort>>,
    telemetries: Telemetries,
}

impl PolicyIndex {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let specification = &snapshot.specification;
        let mut index = Self {
            services: BTreeMap::new(),
            splits: SplitIndex::new(specification),
            http_routes: HttpRoutes::of_specification(specification),
            upstream_settings: UpstreamSettings::of(specification),
            egresses: BTreeMap::new(),
            permissive: BTreeMap::new(),
            telemetries: Telemetries::of(specification),
        };
        for service in specification.services.values() {
            let names = index.services.entry(service.account.clone()).or_default();
            names.push(service.name.clone());
            let namespace = match service.open_callers(snapshot.mode_of(service)) {
                Some(OpenCallers::All) => None,
                Some(OpenCallers::Namespace(namespace)) => Some(namespace.clone()),
                None => continue,
            };
            let ports = service.service_ports().map(|(port, _)| port);
            index.permissive.entry(namespace).or_default().extend(ports);
        }
        for egress in specification.egresses.values() {
            for source in &egress.sources {
                index.egresses.entry(source.clone()).or_default().push(Arc::clone(egress));
            }
        }
        index
    }

    /// The telemetry of all services.
    pub(crate) fn telemetries(&self) -> &Telemetries {
        &self.telemetries
    }

    /// The egresses with `account` as a source.
    pub(crate) fn egresses(&self, account: &ServiceAccount) -> &[Arc<Egress>] {
        self.egresses.get(account).map_or(&[], Vec::as_slice)
    }

    /// The services that run as `account`.
    pub(crate) fn services_of(&self, account: &ServiceAccount) -> &[ServiceName] {
        self.services.get(account).map_or(&[], Vec::as_slice)
    }

    /// The ports that every account may call, or every account of a namespace, without a grant.
    pub(crate) fn permissive(
        &self,
        namespace: Option<&Name>,
    ) -> impl Iterator<Item = &ServicePort> {
        self.permissive.get(&namespace.cloned()).into_iter().flatten()
    }

    /// The upstream traffic settings.
    pub(crate) fn upstream_settings(&self) -> &UpstreamSettings {
        &self.upstream_settings
    }

    /// HTTP routes and retries.
    pub(crate) fn http_routes(&self) -> &HttpRoutes {
        &self.http_routes
    }

    /// Traffic splits.
    pub(crate) fn splits(&self) -> &SplitIndex {
        &self.splits
    }
}
