//! What differs for proxies with certificates from the agent of their machine (docs/decisions/0076).
//!
//! Their clusters name the agent's socket in place of the control plane, and they never get the
//! certificate of an account, which contains the key that its other proxies share.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{CertificateSource, ServiceAccount, ServicePort};
use ironmesh_xds_wire::{Resource, ResourceMap, ResourceSet, ResourceType};

use super::{Scope, Shared};
use crate::limits::Limits;
use crate::{outbound, secret};

/// Shared resources of agent-fed proxies, as far as compiled. Each is forgotten with the one for
/// other proxies from which it differs in nothing but the source of the certificate.
#[derive(Debug, Default)]
pub(super) struct AgentFed {
    /// The clusters of service ports, which all callers share.
    clusters: BTreeMap<ServicePort, Arc<Resource>>,
    /// The clusters of each account's scope.
    by_account: BTreeMap<ServiceAccount, ResourceMap>,
}

impl AgentFed {
    pub(super) fn forget_cluster(&mut self, port: &ServicePort) {
        self.clusters.remove(port);
    }

    pub(super) fn forget_scope(&mut self, account: &ServiceAccount) {
        self.by_account.remove(account);
    }
}

impl Shared {
    /// Replaces the clusters and removes the certificates in `resources`, which are those of
    /// `scope`, the scope of `account`.
    pub(crate) fn feed_by_agent(
        &mut self,
        account: &ServiceAccount,
        scope: &Scope,
        resources: &mut ResourceSet,
    ) {
        let known = self.agent_fed.by_account.get(account).cloned();
        let clusters = known.unwrap_or_else(|| {
            let clusters = self.agent_fed_clusters(scope);
            self.agent_fed.by_account.insert(account.clone(), clusters.clone());
            clusters
        });
        resources.replace(ResourceType::Cluster, clusters);
        resources.remove(ResourceType::Secret, secret::OWN_CERTIFICATE);
        resources.remove(ResourceType::Secret, &secret::service_certificate_name(account));
    }

    /// The clusters of a scope.
    fn agent_fed_clusters(&mut self, scope: &Scope) -> ResourceMap {
        let mut clusters = scope.resources.of(ResourceType::Cluster).clone();
        let called = scope.callable.values().flat_map(|destination| destination.service_ports());
        for port in called {
            if let Some(cluster) = self.agent_fed_cluster(port) {
                clusters.insert(Arc::clone(cluster.name()), cluster);
            }
        }
        clusters
    }

    /// The cluster of a service port in the mesh.
    fn agent_fed_cluster(&mut self, service_port: &ServicePort) -> Option<Arc<Resource>> {
        if let Some(resource) = self.agent_fed.clusters.get(service_port) {
            return Some(Arc::clone(resource));
        }
        let service = self.snapshot.service(&service_port.service)?;
        let port = service.port(service_port.port)?;
        if service.external.is_some() {
            return None;
        }
        let limits = Limits::of(self.index.upstream_settings(), service);
        let source = CertificateSource::Agent;
        let cluster = outbound::cluster(&self.snapshot, service, port, limits, source);
        let resource = self.encoder.encode(&cluster);
        self.agent_fed.clusters.insert(service_port.clone(), Arc::clone(&resource));
        Some(resource)
    }
}
