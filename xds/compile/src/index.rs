//! Policy, indexed by the compiler's queries. Built once per snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::http_routes::{HttpRoutes, Treatment};
use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{
    AllowingRule, Egress, EgressRules, Grant, Grants, HttpMatch, MeshSpecification, Name, Port,
    Service, ServiceAccount, ServiceName, ServicePort, Snapshot, SplitMatch, TrafficTarget,
    UpstreamSettings,
};

use crate::destination::Destination;
use crate::splits::SplitIndex;

/// The specification by service account and by apex.
#[derive(Debug)]
pub(crate) struct PolicyIndex {
    specification: Arc<MeshSpecification>,
    grants: Grants,
    services: BTreeMap<ServiceAccount, Vec<ServiceName>>,
    splits: SplitIndex,
    http_routes: HttpRoutes,
    upstream_settings: UpstreamSettings,
    /// The egresses of each source account, in the order of names.
    egresses: BTreeMap<ServiceAccount, Vec<Arc<Egress>>>,
    /// The ports of services that allow all calls.
    permissive: BTreeSet<ServicePort>,
    telemetries: Arc<Telemetries>,
}

/// The requests that a caller may send.
#[derive(Debug)]
pub(crate) enum Allowed<'a> {
    Everything,
    /// Requests that one of these matches.
    These(Vec<&'a HttpMatch>),
}

impl<'a> Allowed<'a> {
    /// What these rules allow together on an HTTP port.
    fn by(rules: impl Iterator<Item = AllowingRule<'a>>) -> Self {
        // One without a condition allows every request.
        let conditions: Option<Vec<_>> = rules.map(AllowingRule::condition).collect();
        conditions.map_or(Self::Everything, Self::These)
    }
}

impl PolicyIndex {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let specification = &snapshot.specification;
        let mut index = Self {
            specification: Arc::clone(specification),
            grants: snapshot.grants.clone(),
            services: BTreeMap::new(),
            splits: SplitIndex::new(specification),
            http_routes: HttpRoutes::of_specification(specification),
            upstream_settings: UpstreamSettings::of(specification),
            egresses: BTreeMap::new(),
            permissive: BTreeSet::new(),
            telemetries: Arc::new(Telemetries::of(specification)),
        };
        for service in specification.services.values() {
            let names = index.services.entry(service.account.clone()).or_default();
            names.push(service.name.clone());
            if snapshot.mode_of(service).allows_all() {
                index.permissive.extend(service.service_ports().map(|(port, _)| port));
            }
        }
        for egress in specification.egresses.values() {
            for source in &egress.sources {
                index.egresses.entry(source.clone()).or_default().push(Arc::clone(egress));
            }
        }
        index
    }

    /// Moves to a specification that differs only in endpoints and in source locations.
    pub(crate) fn follow(&mut self, specification: &Arc<MeshSpecification>) {
        self.specification = Arc::clone(specification);
    }

    /// The grants on `account`.
    pub(crate) fn grants_on(&self, account: &ServiceAccount) -> &[Arc<Grant>] {
        self.grants.on(account)
    }

    /// The telemetry of all services.
    pub(crate) fn telemetries(&self) -> &Arc<Telemetries> {
        &self.telemetries
    }

    /// The egresses with `account` as a source.
    pub(crate) fn egresses(&self, account: &ServiceAccount) -> &[Arc<Egress>] {
        self.egresses.get(account).map_or(&[], Vec::as_slice)
    }

    /// The hosts and addresses that `account` may call outside the mesh.
    pub(crate) fn exits(&self, account: &ServiceAccount) -> EgressRules<'_> {
        EgressRules::of(self.egresses(account).iter().map(|egress| &**egress))
    }

    /// The services that run as `account`.
    pub(crate) fn services_of(
        &self,
        account: &ServiceAccount,
    ) -> impl Iterator<Item = &ServiceName> {
        self.services.get(account).into_iter().flatten()
    }

    /// These services, and those that splits link with them ([`SplitIndex::linked`]).
    pub(crate) fn linked<'a>(
        &'a self,
        services: impl IntoIterator<Item = &'a ServiceName>,
    ) -> BTreeSet<&'a ServiceName> {
        self.splits.linked(services)
    }

    /// The upstream traffic settings.
    pub(crate) fn upstream_settings(&self) -> &UpstreamSettings {
        &self.upstream_settings
    }

    /// The destination of calls to a service port.
    pub(crate) fn destination(&self, port: &ServicePort) -> Arc<Destination> {
        self.splits.destination(port)
    }

    /// The treatments of calls by `account` to a service.
    pub(crate) fn treatments(
        &self,
        account: &ServiceAccount,
        service: &ServiceName,
    ) -> Vec<Treatment<'_>> {
        self.http_routes.treatments(account, service)
    }

    /// The service ports that `account` may call, of services visible to it.
    ///
    /// These are ports on which a target grants it something, ports of permissive services, every
    /// port of an apex with a backend that it may call, and the apexes of such an apex.
    pub(crate) fn callable(&self, account: &ServiceAccount) -> BTreeSet<ServicePort> {
        let is_visible = |port: &ServicePort| {
            let service = self.specification.services.get(&port.service);
            service.is_some_and(|known| known.is_visible_in(&account.namespace))
        };
        let mut callable = self.permissive.clone();
        for grant in self.grants.to(account) {
            let services = grant.destinations.iter().flat_map(|account| self.services_of(account));
            for service in services.filter_map(|name| self.specification.services.get(name)) {
                let ports = service.service_ports();
                let granted = ports
                    .filter(|(_, port)| self.specification.has_rule_about(&grant.target, port));
                callable.extend(granted.map(|(service_port, _)| service_port));
            }
        }
        callable.retain(is_visible);
        self.splits.add_apexes(&mut callable);
        callable.retain(is_visible);
        callable
    }

    /// The requests that `account` may send to an HTTP port of `service`, to which it has some
    /// access.
    pub(crate) fn allowed(
        &self,
        snapshot: &Snapshot,
        account: &ServiceAccount,
        service: &Service,
        port: &Port,
    ) -> Allowed<'_> {
        if snapshot.mode_of(service).allows_all() {
            return Allowed::Everything;
        }
        let grants = self.grants.between(account, &service.account);
        Allowed::by(grants.flat_map(|grant| self.specification.allowing_rules(&grant.target, port)))
    }

    /// The requests that `target` allows to the HTTP `port` of one of its destination services.
    pub(crate) fn allowed_by<'a>(&'a self, target: &'a TrafficTarget, port: &Port) -> Allowed<'a> {
        Allowed::by(self.specification.allowing_rules(target, port))
    }

    /// The matches with these names, in `namespace`.
    pub(crate) fn matched<'a>(
        &'a self,
        namespace: &'a Name,
        named: &'a [SplitMatch],
    ) -> impl Iterator<Item = &'a HttpMatch> {
        self.specification.matched(namespace, named).map(|(_, one)| one)
    }
}
