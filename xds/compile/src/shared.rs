//! Shared resources of proxies, compiled at their first use and kept while they stay the same.
//!
//! From one snapshot to the next, only what has read something else is compiled again ([`crate::reads`]). An equal result
//! keeps the earlier value: so the sets of all proxies continue to share it.

mod callees;
mod clusters;
mod localities;
mod pieces;
mod update;
mod visibility;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{
    Application, Collector, Port, Proxy, ProxyId, ServiceAccount, ServicePort, Snapshot,
};
use ironmesh_xds_wire::pb::google::protobuf::Any;
use ironmesh_xds_wire::{Discoverable, Resource, ResourceMap, ResourceSet, ResourceType};

use crate::destination::Host;
use crate::mesh_view::{IndexedSnapshot, MeshView};
use crate::mirrors::Mirrors;
use crate::reads::{Read, ReadTable, Reads};
use crate::role::ResourceRole;
use crate::{external, inbound, revoked, secret, telemetry, upstream, withdrawals};
use localities::LocalizedEndpoints;
use pieces::Pieces;
use visibility::{Callees, View, ViewTable};

pub(crate) use clusters::ClusterKey;
pub use update::Changes;
pub(crate) use visibility::{ViewId, Visibility};

/// The resources that proxies share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mesh: Arc<IndexedSnapshot>,
    pub(crate) encoder: Encoder,
    read_table: ReadTable,
    scopes: Pieces<ServiceAccount, Arc<Scope>>,
    view_table: ViewTable,
    views: Pieces<ViewId, View>,
    /// The clusters of each view for proxies with certificates from their agents.
    agent_fed_views: Pieces<ViewId, ResourceMap>,
    clusters: Pieces<ClusterKey, Arc<Resource>>,
    endpoints: BTreeMap<ServicePort, LocalizedEndpoints>,
    /// The views that contain the endpoints of a service port.
    endpoint_views: BTreeMap<ServicePort, BTreeSet<ViewId>>,
    inbound_routes: Pieces<ServicePort, Arc<Resource>>,
    tcp_authorizations: Pieces<ServicePort, Arc<Resource>>,
    by_caller: Pieces<ServicePort, [Arc<Resource>; 3]>,
    upstream_routes: Pieces<(ViewId, ServicePort), Arc<Resource>>,
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
    view: ViewId,
    /// The outbound resources of its view, its certificate, and the trust bundle.
    pub(crate) resources: ResourceSet,
    pub(crate) callees: Arc<Callees>,
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
            view_table: ViewTable::default(),
            views: Pieces::default(),
            agent_fed_views: Pieces::default(),
            clusters: Pieces::default(),
            endpoints: BTreeMap::new(),
            endpoint_views: BTreeMap::new(),
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
        self.new_scope(account, None)
    }

    /// Compiles the scope of `account`, and keeps it. It shares with `earlier` what is equal.
    fn new_scope(&mut self, account: &ServiceAccount, earlier: Option<&ResourceSet>) -> Arc<Scope> {
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        let scope = Arc::new(self.compile_scope(account, earlier, mesh.read_by(&reads)));
        let reads = self.read_table.store(reads);
        self.scopes.insert(account.clone(), Arc::clone(&scope), reads);
        scope
    }

    /// Compiles the scope of `account`. It shares with `earlier` what is equal.
    fn compile_scope(
        &mut self,
        account: &ServiceAccount,
        earlier: Option<&ResourceSet>,
        mesh: MeshView<'_>,
    ) -> Scope {
        let view = self.view_table.id_of(mesh.visibility(account));
        let (mut resources, callees) = self.outbound_of(view, account, earlier, mesh.reads());
        if let Some(AccountCertificate { own, served }) = self.certificate(account, mesh.reads()) {
            // Also without a cluster or a chain that names them: so a grant changes no secret, and
            // overlays of the bootstrap may name the second one.
            resources.insert(own);
            resources.insert(served);
        }
        resources.insert(self.trust_bundle(mesh.reads()));
        if let Some(earlier) = earlier {
            resources.keep_type_of(earlier, ResourceType::Secret);
        }
        Scope { view, resources, callees }
    }

    pub(crate) fn trust_bundle(&self, by: &Reads) -> Arc<Resource> {
        by.record(Read::TrustBundle);
        Arc::clone(&self.trust_bundle)
    }

    /// The runtime layer of proxies without a withdrawn caller.
    pub(crate) fn no_withdrawals(&self) -> Arc<Resource> {
        Arc::clone(&self.no_withdrawals)
    }

    /// The routes of a declared HTTP upstream of `account`, if policy defines its service. They are the same for all
    /// accounts of its view.
    pub(crate) fn upstream_routes(
        &mut self,
        account: &ServiceAccount,
        port: &ServicePort,
        by: &Reads,
    ) -> Option<Arc<Resource>> {
        let Scope { view, callees, .. } = &*self.scope(account, by);
        let key = (*view, port.clone());
        by.record(Read::UpstreamRoutes(*view, port.clone()));
        if let Some(resource) = self.upstream_routes.get(&key) {
            return Some(Arc::clone(resource));
        }
        by.record(Read::Service(port.service.clone()));
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        reads.record(Read::View(*view));
        let mesh = mesh.read_by(&reads);
        let service = mesh.service(&port.service)?;
        let hostname = mesh.domain().hostname(&port.service);
        let mirrors = Mirrors { mesh, callable: &callees.callable };
        let routes = match (callees.callable.get(port), &service.external) {
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
