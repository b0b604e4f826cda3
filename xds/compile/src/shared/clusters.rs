//! The clusters of service ports, which callers share.
//!
//! Those of one port differ by the source of the callers' certificates (docs/decisions/0076), and for accounts whose shared
//! certificate was replaced because a proxy that has it was revoked (docs/decisions/0078): these differ in nothing but the
//! number of replacements, in their metadata. So Envoy replaces them, and drains the connections with the old certificate,
//! without losing a request.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{CertificateSource, IpRange, Service, ServiceAccount, ServicePort};
use ironmesh_xds_wire::pb::google::protobuf::value::Kind;
use ironmesh_xds_wire::{Resource, ResourceMap, ResourceSet, ResourceType};

use super::visibility::{Callees, View};
use super::{Shared, ViewId};
use crate::limits::Limits;
use crate::mesh_view::MeshView;
use crate::reads::{Read, Reads};
use crate::role::ResourceRole;
use crate::shape::own_metadata;
use crate::{external, outbound, secret};

/// The key of the number of replacements in the metadata of clusters.
const REISSUES: &str = "certificate";

/// A service port, and what its cluster depends on besides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterKey {
    port: ServicePort,
    source: CertificateSource,
    /// The number of replacements of the caller's certificate.
    pub(super) reissues: u32,
}

impl ClusterKey {
    /// The cluster for calls with certificates from the control plane, which were replaced this often. The clusters of
    /// external services have no certificate.
    pub(super) fn of_callers(reissues: u32, service: &Service, port: &ServicePort) -> Self {
        let reissues = if service.external.is_none() { reissues } else { 0 };
        Self { port: port.clone(), source: CertificateSource::Ads, reissues }
    }
}

impl Shared {
    /// The cluster of a service port, if policy defines it.
    pub(super) fn cluster(&mut self, key: ClusterKey, by: &Reads) -> Option<Arc<Resource>> {
        by.record(Read::Cluster(key.clone()));
        if let Some(resource) = self.clusters.get(&key) {
            return Some(Arc::clone(resource));
        }
        // Without a piece, this is what decides whether there is one.
        by.record(Read::Service(key.port.service.clone()));
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        let mesh = mesh.read_by(&reads);
        let (service, port) = mesh.port(&key.port)?;
        let limits = Limits::of(mesh.settings(service));
        let mut cluster = match &service.external {
            None => outbound::cluster(mesh, service, port, limits, key.source),
            Some(external) => external::cluster(service, external, port, limits, &BTreeSet::new()),
        };
        if key.reissues > 0 {
            cluster.metadata = own_metadata(REISSUES, Kind::NumberValue(key.reissues.into()));
        }
        let role = ResourceRole::Called(key.port.clone());
        let resource = self.encoder.encode_as(role, &cluster);
        self.clusters.insert(key, Arc::clone(&resource), self.read_table.store(reads));
        Some(resource)
    }

    /// The cluster of an external service port, for a machine whose `own` addresses are never
    /// called.
    pub(crate) fn external_cluster(
        &mut self,
        mesh: MeshView<'_>,
        service_port: &ServicePort,
        own: &BTreeSet<IpRange>,
    ) -> Option<Arc<Resource>> {
        let (service, port) = mesh.port(service_port)?;
        let external = service.external.as_ref()?;
        let limits = Limits::of(mesh.settings(service));
        let cluster = external::cluster(service, external, port, limits, own);
        Some(self.encoder.encode_as(ResourceRole::Called(service_port.clone()), &cluster))
    }

    /// Replaces the clusters and removes the certificates in `resources`, which are those of the
    /// scope of `account`, for a proxy with certificates from the agent of its machine: it never gets the certificate of
    /// an account, which contains the key that its other proxies share.
    pub(crate) fn feed_by_agent(
        &mut self,
        account: &ServiceAccount,
        resources: &mut ResourceSet,
        by: &Reads,
    ) {
        let view = self.scope(account, by).view;
        resources.replace(ResourceType::Cluster, self.agent_fed_clusters(view, by));
        resources.remove(ResourceType::Secret, secret::OWN_CERTIFICATE);
        resources.remove(ResourceType::Secret, &secret::service_certificate_name(account));
    }

    /// The clusters of a view for proxies with certificates from their agents. The view is compiled.
    pub(super) fn agent_fed_clusters(&mut self, view: ViewId, by: &Reads) -> ResourceMap {
        by.record(Read::AgentFedView(view));
        if let Some(clusters) = self.agent_fed_views.get(&view) {
            return clusters.clone();
        }
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        reads.record(Read::View(view));
        let Some(View { resources, callees, .. }) = self.views.get(&view) else {
            return ResourceMap::new();
        };
        let clusters = resources.of(ResourceType::Cluster).clone();
        let callees = Arc::clone(callees);
        let clusters = self.agent_fed_clusters_of(mesh.read_by(&reads), clusters, &callees);
        let reads = self.read_table.store(reads);
        self.agent_fed_views.insert(view, clusters.clone(), reads);
        clusters
    }

    fn agent_fed_clusters_of(
        &mut self,
        mesh: MeshView<'_>,
        mut clusters: ResourceMap,
        callees: &Callees,
    ) -> ResourceMap {
        let called = callees.callable.values().flat_map(|destination| destination.service_ports());
        for port in called {
            if mesh.service(&port.service).is_none_or(|service| service.external.is_some()) {
                continue;
            }
            let source = CertificateSource::Agent;
            let key = ClusterKey { port: port.clone(), source, reissues: 0 };
            if let Some(cluster) = self.cluster(key, mesh.reads()) {
                clusters.insert(cluster);
            }
        }
        clusters
    }
}
