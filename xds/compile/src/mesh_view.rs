//! The mesh as compilation sees it: the snapshot behind methods that record each read.
//!
//! Resources are compiled from a [`MeshView`] only, so that no dependency can be missing. The names of the mesh are fixed
//! at its first start, so that they are no reads. Endpoints and the applications of a proxy have paths of their own
//! ([`crate::shared`]), because they change most.

mod changed;
mod settings;

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::hosts::MeshHosts;
use ironmesh_catalog::http_routes::Treatment;
use ironmesh_catalog::{
    AccessLog, AllowingRule, DeclaredUpstreams, Domain, Egress, EgressRules, External, Grant,
    HttpMatch, IngressBackend, IngressRule, Mode, Name, Port, Proxy, ProxyUpstreams, RouteRule,
    Service, ServiceAccount, ServiceCertificate, ServiceName, ServicePort, Snapshot, SplitMatch,
    TcpAccess, Telemetry, Tracing, TrafficTarget, TrustBundle, TrustDomain,
};

use crate::destination::Destination;
use crate::index::PolicyIndex;
use crate::reads::{Read, Reads};
use crate::shared::Visibility;

pub(crate) use changed::keys;
pub(crate) use settings::ServiceSettings;

/// A snapshot with the index of its policy.
#[derive(Debug)]
pub(crate) struct IndexedSnapshot {
    pub(crate) snapshot: Arc<Snapshot>,
    index: Arc<PolicyIndex>,
}

impl IndexedSnapshot {
    pub(crate) fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { index: Arc::new(PolicyIndex::new(&snapshot)), snapshot }
    }

    /// The next snapshot. It keeps the index if policy differs at most in endpoints.
    pub(crate) fn next(&self, snapshot: Arc<Snapshot>) -> Self {
        let (old, new) = (&self.snapshot, &snapshot);
        let same_policy = Arc::ptr_eq(&old.specification, &new.specification)
            || old.specification.has_same_access(&new.specification);
        if same_policy && old.mode == new.mode {
            return Self { index: Arc::clone(&self.index), snapshot };
        }
        Self::new(snapshot)
    }

    /// Whether both have the same policy, except for endpoints.
    pub(crate) fn has_same_index(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.index, &other.index)
    }

    /// The view of a compilation.
    pub(crate) fn read_by<'a>(&'a self, reads: &'a Reads) -> MeshView<'a> {
        MeshView { snapshot: &self.snapshot, index: &self.index, reads }
    }

    /// Whether any telemetry object still has a collector.
    pub(crate) fn uses_collector(&self, collector: &ironmesh_catalog::Collector) -> bool {
        self.index.telemetries().use_collector(collector)
    }
}

/// The mesh, as one compilation sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeshView<'a> {
    snapshot: &'a Snapshot,
    index: &'a PolicyIndex,
    reads: &'a Reads,
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

impl<'a> MeshView<'a> {
    /// The reads so far, to which compiled pieces that this one contains are added.
    pub(crate) fn reads(self) -> &'a Reads {
        self.reads
    }

    pub(crate) fn domain(self) -> &'a Domain {
        &self.snapshot.mesh.domain
    }

    pub(crate) fn trust_domain(self) -> &'a TrustDomain {
        &self.snapshot.mesh.trust_domain
    }

    /// The service of that name, if policy defines it.
    pub(crate) fn service(self, name: &ServiceName) -> Option<&'a Arc<Service>> {
        self.reads.record(Read::Service(name.clone()));
        self.snapshot.service(name)
    }

    /// A port of a service, if policy defines it.
    pub(crate) fn port(self, port: &ServicePort) -> Option<(&'a Arc<Service>, &'a Port)> {
        let service = self.service(&port.service)?;
        Some((service, service.port(port.port)?))
    }

    /// The upstreams of `proxy`, by policy and by its bootstrap.
    pub(crate) fn upstreams_of(self, proxy: &Proxy) -> ProxyUpstreams {
        let service = |name: &ServiceName| self.service(name).map(|service| &**service);
        let declared = |name: &ServiceName| {
            self.reads.record(Read::Upstreams(name.clone()));
            self.snapshot.service(name).map(|service| service.upstreams.as_slice())
        };
        DeclaredUpstreams { service: &service, declared: &declared }.of(proxy)
    }

    pub(crate) fn mode_of(self, service: &Service) -> Mode {
        self.reads.record(Read::Mode(service.name.clone()));
        self.snapshot.mode_of(service)
    }

    /// Whether callers may dial endpoints of a service in plaintext.
    pub(crate) fn has_plaintext(self, service: &Service) -> bool {
        self.reads.record(Read::Plaintext(service.name.clone()));
        self.snapshot.has_plaintext(service)
    }

    /// Whether a host is reserved for services of the mesh.
    pub(crate) fn is_mesh_host(self, host: &str) -> bool {
        let is_service = |name: &ServiceName| self.service(name).is_some();
        MeshHosts { domain: self.domain(), is_service: &is_service }.contain(host)
    }

    /// The hosts by which `caller` calls a service port.
    pub(crate) fn hosts(
        self,
        caller: &ServiceAccount,
        service: &Service,
        port: &ServicePort,
    ) -> Vec<String> {
        let is_service = |name: &ServiceName| self.service(name).is_some();
        MeshHosts { domain: self.domain(), is_service: &is_service }.of_port(caller, service, port)
    }

    /// All ports of external services.
    pub(crate) fn external_ports(self) -> impl Iterator<Item = (&'a External, ServicePort)> {
        self.reads.record(Read::ExternalHosts);
        external_ports(self.snapshot)
    }

    /// The namespaces of all services.
    pub(crate) fn namespaces(self) -> BTreeSet<&'a Name> {
        self.reads.record(Read::Namespaces);
        namespaces(self.snapshot)
    }

    /// Whether calls of accounts of `namespace` to the outside pass.
    pub(crate) fn passes_through(self, namespace: &Name) -> bool {
        self.reads.record(Read::Passthrough(namespace.clone()));
        self.snapshot.passes_through(namespace)
    }

    /// The services that run as `account`.
    pub(crate) fn services_of(self, account: &ServiceAccount) -> &'a [ServiceName] {
        self.reads.record(Read::ServicesOf(account.clone()));
        self.index.services_of(account)
    }

    /// The grants on `account`.
    pub(crate) fn grants_on(self, account: &ServiceAccount) -> &'a [Arc<Grant>] {
        self.reads.record(Read::GrantsOn(account.clone()));
        self.snapshot.grants.on(account)
    }

    /// The destination of calls to a service port.
    pub(crate) fn destination(self, port: &ServicePort) -> Arc<Destination> {
        self.reads.record(Read::Destination(port.clone()));
        self.index.splits().destination(port)
    }

    /// The treatments of calls by `account` to a service.
    pub(crate) fn treatments(
        self,
        account: &ServiceAccount,
        service: &ServiceName,
    ) -> Vec<Treatment<'a>> {
        self.reads.record(Read::Treatments(service.clone()));
        self.index.http_routes().treatments(account, service)
    }

    /// What decides which services `account` may call, and how.
    pub(crate) fn visibility(self, account: &ServiceAccount) -> Visibility {
        self.reads.record(Read::GrantsTo(account.clone()));
        let grants = self.snapshot.grants.to(account).iter();
        let targets = grants.map(|grant| &grant.target);
        let egresses = self.egresses(account).iter();
        self.reads.record(Read::NamedCaller(account.clone()));
        let is_named = self.index.http_routes().names_caller(account);
        Visibility {
            namespace: account.namespace.clone(),
            targets: targets.map(|one| (one.namespace.clone(), one.name.clone())).collect(),
            egresses: egresses.map(|one| (one.namespace.clone(), one.name.clone())).collect(),
            reissues: self.certificate(account).map_or(0, |one| one.history.reissues),
            named_caller: is_named.then(|| account.clone()),
        }
    }

    /// The upstream traffic settings of a service.
    pub(crate) fn settings(self, service: &'a Service) -> ServiceSettings<'a> {
        for name in [&service.name, service.served_as()] {
            self.reads.record(Read::Settings(name.clone()));
        }
        ServiceSettings::new(self.index.upstream_settings(), service)
    }

    /// The egresses with `account` as a source.
    pub(crate) fn egresses(self, account: &ServiceAccount) -> &'a [Arc<Egress>] {
        self.reads.record(Read::Egresses(account.clone()));
        self.index.egresses(account)
    }

    /// The hosts and addresses that `account` may call outside the mesh.
    pub(crate) fn exits(self, account: &ServiceAccount) -> EgressRules<'a> {
        EgressRules::of(self.egresses(account).iter().map(|egress| &**egress))
    }

    /// The service ports that `account` may call, of services visible to it.
    ///
    /// These are ports on which a target grants it something, ports of permissive services, every
    /// port of an apex with a backend that it may call, and the apexes of such an apex.
    pub(crate) fn callable(self, account: &ServiceAccount) -> BTreeSet<ServicePort> {
        let mut callable = BTreeSet::new();
        for namespace in [None, Some(&account.namespace)] {
            self.reads.record(Read::Permissive(namespace.cloned()));
            callable.extend(self.index.permissive(namespace).cloned());
        }
        self.reads.record(Read::GrantsTo(account.clone()));
        for grant in self.snapshot.grants.to(account) {
            let services = grant.destinations.iter().flat_map(|account| self.services_of(account));
            for service in services.filter_map(|name| self.service(name)) {
                let ports = service.service_ports();
                let granted = ports.filter(|(_, port)| self.has_rule_about(&grant.target, port));
                callable.extend(granted.map(|(service_port, _)| service_port));
            }
        }
        let is_visible = |port: &ServicePort| {
            let service = self.service(&port.service);
            service.is_some_and(|known| known.is_visible_in(&account.namespace))
        };
        callable.retain(is_visible);
        let mut pending: Vec<_> = callable.iter().cloned().collect();
        while let Some(port) = pending.pop() {
            self.reads.record(Read::Apexes(port.clone()));
            for apex in self.index.splits().apexes(&port) {
                if callable.insert(apex.clone()) {
                    pending.push(apex.clone());
                }
            }
        }
        callable.retain(is_visible);
        callable
    }

    /// Whether a rule of `target` applies to `port`.
    fn has_rule_about(self, target: &TrafficTarget, port: &Port) -> bool {
        for rule in &target.rules {
            if let RouteRule::Tcp { route, .. } = rule {
                self.reads.record(Read::TcpRoute(target.namespace.clone(), route.clone()));
            }
        }
        self.snapshot.specification.has_rule_about(target, port)
    }

    /// The requests that `account` may send to an HTTP port of `service`, to which it has some
    /// access.
    pub(crate) fn allowed(
        self,
        account: &ServiceAccount,
        service: &Service,
        port: &Port,
    ) -> Allowed<'a> {
        if self.mode_of(service).allows_all() {
            return Allowed::Everything;
        }
        self.reads.record(Read::GrantsTo(account.clone()));
        let grants = self.snapshot.grants.between(account, &service.account);
        Allowed::by(grants.flat_map(|grant| self.allowing_rules(&grant.target, port)))
    }

    /// The requests that `target` allows to the HTTP `port` of one of its destination services.
    pub(crate) fn allowed_by(self, target: &'a TrafficTarget, port: &Port) -> Allowed<'a> {
        Allowed::by(self.allowing_rules(target, port))
    }

    fn allowing_rules(
        self,
        target: &'a TrafficTarget,
        port: &Port,
    ) -> impl Iterator<Item = AllowingRule<'a>> {
        for rule in &target.rules {
            let namespace = target.namespace.clone();
            self.reads.record(match rule {
                RouteRule::Http { group, .. } => Read::RouteGroup(namespace, group.clone()),
                RouteRule::Tcp { route, .. } => Read::TcpRoute(namespace, route.clone()),
            });
        }
        self.snapshot.specification.allowing_rules(target, port)
    }

    /// The matches with these names, in `namespace`.
    pub(crate) fn matched(
        self,
        namespace: &'a Name,
        named: &'a [SplitMatch],
    ) -> impl Iterator<Item = &'a HttpMatch> {
        for one in named {
            self.reads.record(Read::RouteGroup(namespace.clone(), one.group.clone()));
        }
        self.snapshot.specification.matched(namespace, named).map(|(_, one)| one)
    }

    /// The ingress rules of a port, with the port.
    pub(crate) fn ingress_rules(
        self,
        port: &ServicePort,
    ) -> Option<(&'a ServicePort, &'a [IngressRule])> {
        self.reads.record(Read::IngressRules(port.clone()));
        let (port, rules) = self.snapshot.ingress_rules.get_key_value(port)?;
        Some((port, rules))
    }

    /// The ingress backend of that name.
    pub(crate) fn ingress_backend(self, key: &(Name, Name)) -> Option<&'a IngressBackend> {
        self.reads.record(Read::IngressBackend(key.0.clone(), key.1.clone()));
        self.snapshot.specification.ingress_backends.get(key).map(|backend| &**backend)
    }

    /// The access log of a service, with the object that sets it.
    pub(crate) fn access_log(
        self,
        service: &ServiceName,
    ) -> Option<(&'a AccessLog, &'a Telemetry)> {
        self.reads.record(Read::Telemetry(service.clone()));
        self.index.telemetries().access_log(service)
    }

    /// The tracing of a service.
    pub(crate) fn tracing(self, service: &ServiceName) -> Option<&'a Tracing> {
        self.reads.record(Read::Telemetry(service.clone()));
        self.index.telemetries().tracing(service).map(|(tracing, _)| tracing)
    }

    /// The callers of a TCP port.
    pub(crate) fn tcp_access(self, port: &ServicePort) -> Option<&'a TcpAccess> {
        self.reads.record(Read::TcpAccess(port.clone()));
        self.snapshot.tcp_accesses.ports.get(port)
    }

    /// The certificate of an account.
    pub(crate) fn certificate(self, account: &ServiceAccount) -> Option<&'a ServiceCertificate> {
        self.reads.record(Read::Certificate(account.clone()));
        self.snapshot.certificates.get(account).map(|certificate| &**certificate)
    }

    pub(crate) fn trust_bundle(self) -> &'a TrustBundle {
        self.reads.record(Read::TrustBundle);
        &self.snapshot.trust_bundle
    }

    /// The certificate revocation lists.
    pub(crate) fn revocation_lists(self) -> Option<&'a str> {
        self.reads.record(Read::RevocationLists);
        self.snapshot.revoked_callers.lists.as_deref()
    }

    /// The number of the newest revocation of a proxy of `account`.
    pub(crate) fn last_listed(self, account: &ServiceAccount) -> Option<u64> {
        self.reads.record(Read::LastListed(account.clone()));
        self.snapshot.revoked_callers.last_listed.get(account).copied()
    }
}

fn external_ports(snapshot: &Snapshot) -> impl Iterator<Item = (&External, ServicePort)> {
    let services = snapshot.specification.services.values();
    services.filter_map(|service| Some((service, service.external.as_ref()?))).flat_map(
        |(service, external)| service.service_ports().map(move |(port, _)| (external, port)),
    )
}

fn namespaces(snapshot: &Snapshot) -> BTreeSet<&Name> {
    snapshot.specification.services.keys().map(|name| &name.namespace).collect()
}
