//! Shared resources of proxies, compiled at their first use and kept while they stay the same.
//!
//! From one snapshot to the next, only what may have changed is compiled again. An equal result
//! keeps the earlier value: so the sets of all proxies continue to share it.

mod agent_fed;
mod by_caller;
mod localities;
mod reissued;
mod touched;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{
    CertificateSource, Collector, Egress, EndpointSource, IpRange, Locality, LocalitySetting, Port,
    Service, ServiceAccount, ServicePort, Snapshot, TcpAccess, UpstreamSettings,
};
use ironmesh_xds_wire::pb::google::protobuf::Any;
use ironmesh_xds_wire::{Discoverable, Resource, ResourceMap, ResourceSet};

use crate::destination::{Destination, Host};
use crate::egress::EgressScope;
use crate::index::PolicyIndex;
use crate::limits::Limits;
use crate::mirrors::Mirrors;
use crate::outbound::ByHost;
use crate::{external, inbound, outbound, revoked, secret, telemetry, upstream, withdrawals};
use agent_fed::AgentFed;
use by_caller::ByCaller;
use localities::Views;
use reissued::Reissued;

pub use update::Changes;

/// The resources that proxies share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) encoder: Encoder,
    index: PolicyIndex,
    scopes: BTreeMap<ServiceAccount, Arc<Scope>>,
    /// The accounts whose scopes contain the endpoints of a service port.
    endpoint_accounts: BTreeMap<ServicePort, BTreeSet<ServiceAccount>>,
    /// The clusters of service ports, which all callers share.
    clusters: BTreeMap<ServicePort, Arc<Resource>>,
    agent_fed: AgentFed,
    reissued: Reissued,
    endpoints: BTreeMap<ServicePort, Views>,
    /// The endpoints of an account's scope for callers in a locality, if they differ.
    localized: BTreeMap<ServiceAccount, BTreeMap<Locality, ResourceMap>>,
    inbound_routes: BTreeMap<ServicePort, Arc<Resource>>,
    tcp_authorizations: BTreeMap<ServicePort, Arc<Resource>>,
    by_caller: ByCaller,
    /// The runtime layer of proxies without a withdrawn caller.
    no_withdrawals: Arc<Resource>,
    upstream_routes: BTreeMap<(ServiceAccount, ServicePort), Arc<Resource>>,
    certificates: BTreeMap<ServiceAccount, Option<AccountCertificate>>,
    trust_bundle: Arc<Resource>,
    /// The refusal of revoked callers in all inbound routes.
    revoked: Option<Any>,
    /// The clusters of collectors.
    collectors: BTreeMap<Collector, Arc<Resource>>,
}

/// The certificate of an account, under both of its names.
#[derive(Debug, Clone)]
pub(crate) struct AccountCertificate {
    /// For proxies that call as this account.
    pub(crate) own: Arc<Resource>,
    /// For the chains of its services.
    pub(crate) served: Arc<Resource>,
}

/// The scope of one service account: all resources that its proxies need to call others.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) resources: ResourceSet,
    /// The service ports that it may call, with their destinations.
    pub(crate) callable: BTreeMap<ServicePort, Arc<Destination>>,
    /// The settings of the listener that routes by `Host`.
    pub(crate) by_host: ByHost,
    /// Its egresses, which determine the declared upstreams outside the mesh.
    pub(crate) egresses: Vec<Arc<Egress>>,
    pub(crate) passes_through: bool,
    /// The service ports whose endpoints differ by the caller's locality.
    pub(crate) by_locality: BTreeMap<ServicePort, Arc<LocalitySetting>>,
    /// The external service ports whose cluster differs by machine, because it contains the
    /// machine's own addresses.
    pub(crate) by_machine: Vec<ServicePort>,
}

/// Encodes resources, and counts them.
#[derive(Debug, Default)]
pub(crate) struct Encoder(u64);

impl Encoder {
    pub(crate) fn encode<M: Discoverable>(&mut self, message: &M) -> Arc<Resource> {
        self.0 += 1;
        Arc::new(Resource::new(message))
    }

    /// The same for a resource that may withdraw access, and so waits for no reference.
    pub(crate) fn encode_urgent<M: Discoverable>(&mut self, message: &M) -> Arc<Resource> {
        self.0 += 1;
        Arc::new(Resource::new(message).urgent())
    }

    pub(crate) fn count(&self) -> u64 {
        self.0
    }
}

impl Shared {
    pub(crate) fn new(snapshot: Arc<Snapshot>) -> Self {
        let mut encoder = Encoder::default();
        Self {
            index: PolicyIndex::new(&snapshot),
            scopes: BTreeMap::new(),
            endpoint_accounts: BTreeMap::new(),
            clusters: BTreeMap::new(),
            agent_fed: AgentFed::default(),
            reissued: Reissued::default(),
            endpoints: BTreeMap::new(),
            localized: BTreeMap::new(),
            inbound_routes: BTreeMap::new(),
            tcp_authorizations: BTreeMap::new(),
            by_caller: ByCaller::default(),
            no_withdrawals: encoder.encode(&withdrawals::layer([])),
            upstream_routes: BTreeMap::new(),
            certificates: BTreeMap::new(),
            collectors: BTreeMap::new(),
            trust_bundle: encoder.encode(&secret::trust_bundle(&snapshot.trust_bundle)),
            revoked: revoked::per_route(&snapshot.revoked_callers),
            encoder,
            snapshot,
        }
    }

    /// The scope of `account`.
    pub(crate) fn scope(&mut self, account: &ServiceAccount) -> Arc<Scope> {
        if let Some(scope) = self.scopes.get(account) {
            return Arc::clone(scope);
        }
        let scope = Arc::new(self.compile_scope(account));
        self.scopes.insert(account.clone(), Arc::clone(&scope));
        scope
    }

    /// Compiles the scope of `account`.
    fn compile_scope(&mut self, account: &ServiceAccount) -> Scope {
        let mut resources = ResourceSet::default();
        let snapshot = Arc::clone(&self.snapshot);
        let callable: BTreeMap<_, _> = self
            .index
            .callable(account)
            .into_iter()
            .map(|port| {
                let mut destination = self.index.destination(&port);
                let is_known = |port: &ServicePort| {
                    let service = snapshot.service(&port.service);
                    service.is_none_or(|service| service.is_visible_in(&account.namespace))
                };
                if !destination.service_ports().into_iter().all(is_known) {
                    destination = Arc::new(destination.restricted_to(is_known));
                }
                (port, destination)
            })
            .collect();
        let mut by_locality = BTreeMap::new();
        let mut by_machine = Vec::new();
        let called: BTreeSet<_> =
            callable.values().flat_map(|destination| destination.service_ports()).collect();
        for service_port in called {
            let service = snapshot.service(&service_port.service);
            let Some((service, port)) =
                service.and_then(|service| Some((service, service.port(service_port.port)?)))
            else {
                continue;
            };
            resources.insert(self.cluster_of_caller(account, service, port, service_port));
            let external = service.external.as_ref();
            if external.is_some_and(|external| external::is_checked_per_endpoint(external, port)) {
                by_machine.push(service_port.clone());
            }
            // Proxies resolve these themselves, so there are no endpoints to push.
            if service.endpoints != EndpointSource::Hostname {
                resources.insert(self.endpoints(service_port, &Locality::default()));
                let locality = self.index.upstream_settings().locality(service);
                if let Some(locality) = locality.filter(|locality| locality.depth() > 0) {
                    by_locality.insert(service_port.clone(), Arc::clone(locality));
                }
                self.endpoint_accounts
                    .entry(service_port.clone())
                    .or_default()
                    .insert(account.clone());
            }
        }
        let service = |port: &ServicePort| snapshot.service(&port.service).map(|one| &**one);
        let by_host = ByHost::of(callable.keys().filter_map(service));
        let egress_scope = EgressScope::of(&self.index, &snapshot, account);
        let passes_through = egress_scope.passes_through;
        let routes = outbound::by_host_routes(&egress_scope, &callable, by_host);
        if let Some(cluster) = egress_scope.cluster() {
            resources.insert(self.encoder.encode(&cluster));
        }
        resources.insert(self.encoder.encode(&routes));
        if let Some(AccountCertificate { own, served }) = self.certificate(account) {
            // Also without a cluster or a chain that names them: so a grant changes no secret, and
            // overlays of the bootstrap may name the second one.
            resources.insert(own);
            resources.insert(served);
        }
        resources.insert(self.trust_bundle());
        let egresses = self.index.egresses(account).to_vec();
        Scope { resources, callable, by_host, egresses, passes_through, by_locality, by_machine }
    }

    /// The cluster of a service port.
    fn cluster(
        &mut self,
        service: &Service,
        port: &Port,
        service_port: &ServicePort,
    ) -> Arc<Resource> {
        if let Some(resource) = self.clusters.get(service_port) {
            return Arc::clone(resource);
        }
        let limits = Limits::of(self.index.upstream_settings(), service);
        let cluster = match &service.external {
            None => {
                outbound::cluster(&self.snapshot, service, port, limits, CertificateSource::Ads)
            }
            Some(external) => external::cluster(service, external, port, limits, &BTreeSet::new()),
        };
        let resource = self.encoder.encode(&cluster);
        self.clusters.insert(service_port.clone(), Arc::clone(&resource));
        resource
    }

    /// The cluster of an external service port, for a machine whose `own` addresses are never
    /// called.
    pub(crate) fn external_cluster(
        &mut self,
        service_port: &ServicePort,
        own: &BTreeSet<IpRange>,
    ) -> Option<Arc<Resource>> {
        let service = self.snapshot.service(&service_port.service)?;
        let (external, port) = (service.external.as_ref()?, service.port(service_port.port)?);
        let limits = Limits::of(self.index.upstream_settings(), service);
        let cluster = external::cluster(service, external, port, limits, own);
        Some(self.encoder.encode(&cluster))
    }

    /// The egress scope of `account`.
    pub(crate) fn egress_scope<'a>(&'a self, account: &'a ServiceAccount) -> EgressScope<'a> {
        EgressScope::of(&self.index, &self.snapshot, account)
    }

    pub(crate) fn upstream_settings(&self) -> &UpstreamSettings {
        self.index.upstream_settings()
    }

    pub(crate) fn trust_bundle(&self) -> Arc<Resource> {
        Arc::clone(&self.trust_bundle)
    }

    pub(crate) fn inbound_routes(
        &mut self,
        service: &Service,
        port: &ServicePort,
    ) -> Arc<Resource> {
        if let Some(resource) = self.inbound_routes.get(port) {
            return Arc::clone(resource);
        }
        let (index, revoked) = (&self.index, self.revoked.as_ref());
        let routes = inbound::route_configuration(index, &self.snapshot, service, port, revoked);
        let resource = self.encoder.encode_urgent(&routes);
        self.inbound_routes.insert(port.clone(), Arc::clone(&resource));
        resource
    }

    pub(crate) fn tcp_authorization(
        &mut self,
        port: &ServicePort,
        access: &TcpAccess,
    ) -> Arc<Resource> {
        if let Some(resource) = self.tcp_authorizations.get(port) {
            return Arc::clone(resource);
        }
        let Snapshot { mesh, trust_bundle, revoked_callers, .. } = &*self.snapshot;
        let secret = secret::tcp_authorization(
            &mesh.trust_domain,
            trust_bundle,
            revoked_callers,
            port,
            &access.callers,
        );
        let resource = self.encoder.encode(&secret);
        self.tcp_authorizations.insert(port.clone(), Arc::clone(&resource));
        resource
    }

    /// The runtime layer of proxies without a withdrawn caller.
    pub(crate) fn no_withdrawals(&self) -> Arc<Resource> {
        Arc::clone(&self.no_withdrawals)
    }

    /// The routes of a declared HTTP upstream of `account`, whose scope is given.
    pub(crate) fn upstream_routes(
        &mut self,
        account: &ServiceAccount,
        scope: &Scope,
        service: &Service,
        port: &ServicePort,
    ) -> Arc<Resource> {
        let key = (account.clone(), port.clone());
        if let Some(resource) = self.upstream_routes.get(&key) {
            return Arc::clone(resource);
        }
        let hostname = self.snapshot.mesh.domain.hostname(&port.service);
        let snapshot = &self.snapshot;
        let mirrors = Mirrors { snapshot, callable: &scope.callable };
        let routes = match (scope.callable.get(port), &service.external) {
            (Some(to), None) => {
                let treatments = self.index.treatments(account, &port.service);
                let host = format!("{hostname}:{}", port.port);
                to.routes(port, Host::Other(&host), &treatments, mirrors)
            }
            (Some(_), Some(external)) => {
                external::routes(&self.index, mirrors, account, service, external, port)
            }
            (None, _) => vec![upstream::forbidden(snapshot, account, service)],
        };
        let resource = self.encoder.encode(&upstream::upstream_routes(service, port, routes));
        self.upstream_routes.insert(key, Arc::clone(&resource));
        resource
    }

    /// The telemetry of all services.
    pub(crate) fn telemetries(&self) -> Arc<Telemetries> {
        Arc::clone(self.index.telemetries())
    }

    /// The cluster of a collector.
    pub(crate) fn collector(&mut self, collector: &Collector) -> Arc<Resource> {
        if let Some(resource) = self.collectors.get(collector) {
            return Arc::clone(resource);
        }
        let resource = self.encoder.encode(&telemetry::cluster(collector));
        self.collectors.insert(collector.clone(), Arc::clone(&resource));
        resource
    }

    /// The certificate of an account; `None` if it has none yet.
    pub(crate) fn certificate(&mut self, account: &ServiceAccount) -> Option<AccountCertificate> {
        if let Some(known) = self.certificates.get(account) {
            return known.clone();
        }
        let certificate = self.snapshot.certificates.get(account).map(|certificate| {
            let mut secret =
                |name| self.encoder.encode(&secret::service_certificate(name, certificate));
            AccountCertificate {
                own: secret(secret::OWN_CERTIFICATE.to_owned()),
                served: secret(secret::service_certificate_name(account)),
            }
        });
        self.certificates.insert(account.clone(), certificate.clone());
        certificate
    }
}
