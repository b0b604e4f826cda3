//! Policy, indexed by the compiler's queries. Built once per snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::http_routes::{HttpRoutes, Treatment};
use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{
    Egress, EgressRules, Grant, Grants, HttpMatch, MeshSpecification, Name, Port, RouteRule,
    Service, ServiceAccount, ServiceName, ServicePort, Snapshot, SplitMatch, TcpRoute,
    TrafficTarget, UpstreamSettings,
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
            if snapshot.mode_of(service).lets_all_in() {
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
                let granted = ports.filter(|(_, port)| self.grants(&grant.target, port));
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
        port: &ServicePort,
    ) -> Allowed<'_> {
        if snapshot.mode_of(service).lets_all_in() {
            return Allowed::Everything;
        }
        let mut matches = Vec::new();
        for grant in self.grants.between(account, &service.account) {
            if self.allows_all_requests(&grant.target, port.port) {
                return Allowed::Everything;
            }
            matches.extend(self.matches(&grant.target));
        }
        Allowed::These(matches)
    }

    /// The matches that the rules of `target` name.
    pub(crate) fn matches<'a>(
        &'a self,
        target: &'a TrafficTarget,
    ) -> impl Iterator<Item = &'a HttpMatch> {
        target.rules.iter().flat_map(|rule| {
            let (group, names) = match rule {
                RouteRule::Http { group, matches, .. } => (Some(group), matches.as_ref()),
                RouteRule::Tcp { .. } => (None, None),
            };
            let groups = &self.specification.http_route_groups;
            let group =
                group.and_then(|name| groups.get(&(target.namespace.clone(), name.clone())));
            let all = group.into_iter().flat_map(|group| &group.matches);
            all.filter(move |one| names.is_none_or(|names| names.contains(&one.name)))
        })
    }

    /// The matches with these names, in `namespace`.
    pub(crate) fn matched<'a>(
        &'a self,
        namespace: &'a Name,
        named: &'a [SplitMatch],
    ) -> impl Iterator<Item = &'a HttpMatch> {
        self.specification.matched(namespace, named).map(|(_, one)| one)
    }

    /// Whether `target` grants something on `port` of its destination.
    fn grants(&self, target: &TrafficTarget, port: &Port) -> bool {
        if port.protocol.is_http() {
            let of_http = |rule: &RouteRule| matches!(rule, RouteRule::Http { .. });
            target.rules.iter().any(of_http) || self.allows_all_requests(target, port.number)
        } else {
            self.tcp_routes(target).any(|route| route.covers(port.number))
        }
    }

    /// Whether `target` allows every request on the HTTP port `number`: all its rules are TCP
    /// routes, and one of them covers the port (SMI; OSM answers 404).
    pub(crate) fn allows_all_requests(&self, target: &TrafficTarget, number: u16) -> bool {
        target.rules.iter().all(|rule| matches!(rule, RouteRule::Tcp { .. }))
            && self.tcp_routes(target).any(|route| route.covers(number))
    }

    fn tcp_routes(&self, target: &TrafficTarget) -> impl Iterator<Item = &TcpRoute> {
        target.rules.iter().filter_map(|rule| match rule {
            RouteRule::Http { .. } => None,
            RouteRule::Tcp { route, .. } => {
                let key = (target.namespace.clone(), route.clone());
                self.specification.tcp_routes.get(&key).map(|route| &**route)
            }
        })
    }
}
