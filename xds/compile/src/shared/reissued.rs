//! The clusters of accounts whose shared certificate was replaced because a proxy that has it was revoked
//! (docs/decisions/0078).
//!
//! They differ from those of other accounts in nothing but the number of replacements, in their metadata. So Envoy replaces
//! them, and drains the connections with the old certificate, without losing a request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{CertificateSource, Port, Service, ServiceAccount, ServicePort};
use ironmesh_xds_wire::Resource;
use ironmesh_xds_wire::pb::google::protobuf::value::Kind;

use super::Shared;
use crate::limits::Limits;
use crate::outbound;
use crate::shape::own_metadata;

/// The key of the number of replacements in the metadata of clusters.
const REISSUES: &str = "certificate";

/// The clusters of service ports by the number of replacements, as far as compiled.
#[derive(Debug, Default)]
pub(super) struct Reissued(BTreeMap<(ServicePort, u32), Arc<Resource>>);

impl Reissued {
    pub(super) fn forget_cluster(&mut self, port: &ServicePort) {
        self.0.retain(|(known, _), _| known != port);
    }

    /// Forgets the clusters that no account has any more, given the numbers of all accounts.
    pub(super) fn retain(&mut self, reissues: &BTreeSet<u32>) {
        self.0.retain(|(_, number), _| reissues.contains(number));
    }
}

impl Shared {
    /// The cluster of a service port for calls by `account`.
    pub(super) fn cluster_of_caller(
        &mut self,
        account: &ServiceAccount,
        service: &Service,
        port: &Port,
        service_port: &ServicePort,
    ) -> Arc<Resource> {
        let certificate = self.snapshot.certificates.get(account);
        let reissues = certificate.map_or(0, |certificate| certificate.history.reissues);
        // Also where it is not used: it is compared with its successor to find what differs.
        let shared = self.cluster(service, port, service_port);
        // The clusters of external services have no certificate.
        if reissues == 0 || service.external.is_some() {
            return shared;
        }
        let key = (service_port.clone(), reissues);
        if let Some(resource) = self.reissued.0.get(&key) {
            return Arc::clone(resource);
        }
        let limits = Limits::of(self.index.upstream_settings(), service);
        let source = CertificateSource::Ads;
        let mut cluster = outbound::cluster(&self.snapshot, service, port, limits, source);
        cluster.metadata = own_metadata(REISSUES, Kind::NumberValue(reissues.into()));
        let resource = self.encoder.encode(&cluster);
        self.reissued.0.insert(key, Arc::clone(&resource));
        resource
    }
}
