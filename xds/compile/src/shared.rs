//! Shared resources of proxies, compiled at their first use and kept while they stay the same.
//!
//! From one snapshot to the next, only what has read something else is compiled again ([`crate::reads`]). An equal result
//! keeps the earlier value: so the sets of all proxies continue to share it.

mod callees;
mod clusters;
mod localities;
mod pieces;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{
    Application, Collector, Egress, Locality, LocalitySetting, Port, Proxy, ProxyId,
    ServiceAccount, ServicePort, Snapshot,
};
use ironmesh_xds_wire::pb::google::protobuf::Any;
use ironmesh_xds_wire::{Discoverable, Resource, ResourceMap, ResourceSet};

use crate::destination::{Destination, Host};
use crate::egress::EgressScope;
use crate::mesh_view::{IndexedSnapshot, MeshView};
use crate::mirrors::Mirrors;
use crate::outbound::ByHost;
use crate::reads::{Read, ReadTable, Reads};
use crate::role::ResourceRole;
use crate::{external, inbound, outbound, revoked, secret, telemetry, upstream, withdrawals};
use localities::Views;
use pieces::Pieces;

pub(crate) use clusters::ClusterKey;
pub use update::Changes;

/// The resources that proxies share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mesh: Arc<IndexedSnapshot>,
    pub(crate) encoder: Encoder,
    read_table: ReadTable,
    scopes: Pieces<ServiceAccount, Arc<Scope>>,
    /// The clusters of each account's scope for proxies with certificates from their agents.
    agent_fed_scopes: Pieces<ServiceAccount, ResourceMap>,
    clusters: Pieces<ClusterKey, Arc<Resource>>,
    endpoints: BTreeMap<ServicePort, Views>,
    /// The accounts whose scopes contain the endpoints of a service port.
    endpoint_accounts: BTreeMap<ServicePort, BTreeSet<ServiceAccount>>,
    /// The endpoints of an account's scope for callers in a locality, if they differ.
    localized: BTreeMap<ServiceAccount, BTreeMap<Locality, ResourceMap>>,
    inbound_routes: Pieces<ServicePort, Arc<Resource>>,
    tcp_authorizations: Pieces<ServicePort, Arc<Resource>>,
    by_caller: Pieces<ServicePort, [Arc<Resource>; 3]>,
    upstream_routes: Pieces<(ServiceAccount, ServicePort), Arc<Resource>>,
    /// What each proxy has read.
    proxies: Pieces<ProxyId, ()>,
    certificates: BTreeMap<ServiceAccount, Option<AccountCertificate>>,
    /// The clusters of collectors.
    collectors: BTreeMap<Collector, Arc<Resource>>,
    /// The runtime layer of proxies without a withdrawn caller.
    no_withdrawals: Arc<Resource>,
    trust_bundle: Arc<Resource>,
    /// The refusal of revoked callers in all inbound routes.
    revoked: Option<Any>,
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

    /// The same for a resource with a role.
    pub(crate) fn encode_as<M: Discoverable>(
        &mut self,
        role: ResourceRole,
        message: &M,
    ) -> Arc<Resource> {
        self.encode_with(message, |resource| resource.with_role(role))
    }

    /// The same for a resource that may withdraw access, and so waits for no reference.
    pub(crate) fn encode_urgent<M: Discoverable>(&mut self, message: &M) -> Arc<Resource> {
        self.0 += 1;
        Arc::new(Resource::new(message).urgent())
    }

    /// The same for a resource with a role.
    pub(crate) fn encode_urgent_as<M: Discoverable>(
        &mut self,
        role: ResourceRole,
        message: &M,
    ) -> Arc<Resource> {
        self.encode_with(message, |resource| resource.with_role(role).urgent())
    }

    /// The same for a resource with something else.
    pub(crate) fn encode_with<M: Discoverable>(
        &mut self,
        message: &M,
        complete: impl FnOnce(Resource) -> Resource,
    ) -> Arc<Resource> {
        self.0 += 1;
        Arc::new(complete(Resource::new(message)))
    }

    pub(crate) fn count(&self) -> u64 {
        self.0
    }
}

impl Shared {
    pub(crate) fn new(snapshot: Arc<Snapshot>) -> Self {
        let mut encoder = Encoder::default();
        Self {
            read_table: ReadTable::default(),
            scopes: Pieces::default(),
            agent_fed_scopes: Pieces::default(),
            clusters: Pieces::default(),
            endpoints: BTreeMap::new(),
            endpoint_accounts: BTreeMap::new(),
            localized: BTreeMap::new(),
            inbound_routes: Pieces::default(),
            tcp_authorizations: Pieces::default(),
            by_caller: Pieces::default(),
            upstream_routes: Pieces::default(),
            proxies: Pieces::default(),
            certificates: BTreeMap::new(),
            collectors: BTreeMap::new(),
            no_withdrawals: encoder.encode(&withdrawals::layer([])),
            trust_bundle: encoder.encode(&secret::trust_bundle(&snapshot.trust_bundle)),
            revoked: revoked::per_route(&snapshot.revoked_callers),
            encoder,
            mesh: Arc::new(IndexedSnapshot::new(snapshot)),
        }
    }

    /// Keeps what the compilation of a proxy has read.
    pub(crate) fn keep_reads(&mut self, proxy: ProxyId, reads: Reads) {
        self.proxies.insert(proxy, (), self.read_table.store(reads));
    }

    /// Forgets what the compilation of a proxy has read.
    pub(crate) fn forget_reads(&mut self, proxy: ProxyId) {
        self.proxies.remove(&proxy);
    }

    /// The scope of `account`.
    pub(crate) fn scope(&mut self, account: &ServiceAccount, by: &Reads) -> Arc<Scope> {
        by.record(Read::Scope(account.clone()));
        if let Some(scope) = self.scopes.get(account) {
            return Arc::clone(scope);
        }
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        let scope = Arc::new(self.compile_scope(account, mesh.read_by(&reads)));
        let reads = self.read_table.store(reads);
        self.scopes.insert(account.clone(), Arc::clone(&scope), reads);
        scope
    }

    /// Compiles the scope of `account`.
    fn compile_scope(&mut self, account: &ServiceAccount, mesh: MeshView<'_>) -> Scope {
        let mut resources = ResourceSet::default();
        let callable: BTreeMap<_, _> = mesh
            .callable(account)
            .into_iter()
            .map(|port| {
                let mut destination = mesh.destination(&port);
                let is_known = |port: &ServicePort| {
                    let service = mesh.service(&port.service);
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
            let Some((service, port)) = mesh.port(service_port) else { continue };
            let Some(cluster) = self.cluster_of_caller(mesh, account, service, service_port) else {
                continue;
            };
            resources.insert(cluster);
            let external = service.external.as_ref();
            if external.is_some_and(|external| external::is_checked_per_endpoint(external, port)) {
                by_machine.push(service_port.clone());
            }
            // Proxies resolve these themselves, so there are no endpoints to push.
            if !service.endpoints.is_hostname() {
                resources.insert(self.endpoints(service_port, &Locality::default()));
                let locality = mesh.settings(service).locality();
                if let Some(locality) = locality.filter(|locality| locality.depth() > 0) {
                    by_locality.insert(service_port.clone(), Arc::clone(locality));
                }
                self.endpoint_accounts
                    .entry(service_port.clone())
                    .or_default()
                    .insert(account.clone());
            }
        }
        let service = |port: &ServicePort| mesh.service(&port.service).map(|one| &**one);
        let by_host = ByHost::of(callable.keys().filter_map(service));
        let egress_scope = EgressScope::of(mesh, account);
        let passes_through = egress_scope.passes_through;
        let routes = outbound::by_host_routes(&egress_scope, &callable, by_host);
        if let Some(cluster) = egress_scope.cluster() {
            resources.insert(self.encoder.encode(&cluster));
        }
        resources.insert(self.encoder.encode(&routes));
        if let Some(AccountCertificate { own, served }) = self.certificate(account, mesh.reads()) {
            // Also without a cluster or a chain that names them: so a grant changes no secret, and
            // overlays of the bootstrap may name the second one.
            resources.insert(own);
            resources.insert(served);
        }
        resources.insert(self.trust_bundle(mesh.reads()));
        let egresses = mesh.egresses(account).to_vec();
        Scope { resources, callable, by_host, egresses, passes_through, by_locality, by_machine }
    }

    pub(crate) fn trust_bundle(&self, by: &Reads) -> Arc<Resource> {
        by.record(Read::TrustBundle);
        Arc::clone(&self.trust_bundle)
    }

    /// The runtime layer of proxies without a withdrawn caller.
    pub(crate) fn no_withdrawals(&self) -> Arc<Resource> {
        Arc::clone(&self.no_withdrawals)
    }

    /// The routes of a declared HTTP upstream of `account`, if policy defines its service.
    pub(crate) fn upstream_routes(
        &mut self,
        account: &ServiceAccount,
        port: &ServicePort,
        by: &Reads,
    ) -> Option<Arc<Resource>> {
        let key = (account.clone(), port.clone());
        by.record(Read::UpstreamRoutes(account.clone(), port.clone()));
        if let Some(resource) = self.upstream_routes.get(&key) {
            return Some(Arc::clone(resource));
        }
        by.record(Read::Service(port.service.clone()));
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        let mesh = mesh.read_by(&reads);
        let service = mesh.service(&port.service)?;
        let scope = self.scope(account, &reads);
        let hostname = mesh.domain().hostname(&port.service);
        let mirrors = Mirrors { mesh, callable: &scope.callable };
        let routes = match (scope.callable.get(port), &service.external) {
            (Some(to), None) => {
                let treatments = mesh.treatments(account, &port.service);
                let host = format!("{hostname}:{}", port.port);
                to.routes(port, Host::Other(&host), &treatments, mirrors)
            }
            (Some(_), Some(external)) => {
                external::routes(mirrors, account, service, external, port)
            }
            (None, _) => vec![upstream::forbidden(service)],
        };
        let resource = self.encoder.encode(&upstream::upstream_routes(service, port, routes));
        let reads = self.read_table.store(reads);
        self.upstream_routes.insert(key, Arc::clone(&resource), reads);
        Some(resource)
    }

    /// The cluster of a proxy's applications at a service port.
    pub(crate) fn local_cluster(
        &mut self,
        proxy: &Proxy,
        service_port: &ServicePort,
        port: &Port,
        applications: &[Application],
    ) -> Arc<Resource> {
        let cluster = inbound::local_cluster(proxy, service_port, port.protocol, applications);
        self.encoder.encode_as(ResourceRole::Local(service_port.clone()), &cluster)
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
    pub(crate) fn certificate(
        &mut self,
        account: &ServiceAccount,
        by: &Reads,
    ) -> Option<AccountCertificate> {
        let certificate = self.mesh.read_by(by).certificate(account);
        if let Some(known) = self.certificates.get(account) {
            return known.clone();
        }
        let certificate = certificate.map(|certificate| {
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
