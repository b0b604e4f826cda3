//! What proxies share that serve TCP ports by chains of single callers (docs/decisions/0079).

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{Service, ServicePort, TcpAccess};
use ironmesh_xds_wire::Resource;

use super::Shared;
use crate::{callers, names, withdrawals};

/// The resources of a port: its cluster, its listener, and the configuration of its filter.
type OfPort = [Arc<Resource>; 3];

/// The shared resources by port, and by whether a rate limit service counts its connections.
#[derive(Debug, Default)]
pub(super) struct ByCaller(BTreeMap<ServicePort, (bool, OfPort)>);

impl ByCaller {
    pub(super) fn forget(&mut self, port: &ServicePort) {
        self.0.remove(port);
    }
}

impl Shared {
    /// The resources by which a proxy serves a TCP port of `service` by chains of single callers.
    pub(crate) fn by_caller(
        &mut self,
        service: &Service,
        port: &ServicePort,
        access: &TcpAccess,
    ) -> OfPort {
        let is_counted = self.index.upstream_settings().global_tcp(service).is_some();
        if let Some((known, resources)) = self.by_caller.0.get(port)
            && *known == is_counted
        {
            return resources.clone();
        }
        let cluster =
            if is_counted { names::counted_cluster(port) } else { names::local_cluster(port) };
        let trust_domain = &self.snapshot.mesh.trust_domain;
        let last_listed = &self.snapshot.revoked_callers.last_listed;
        let listener = callers::listener(trust_domain, port, access, last_listed, &cluster);
        let config = withdrawals::filter_config(trust_domain, port, access);
        let resources = [
            self.encoder.encode(&callers::cluster(port)),
            // It may withdraw access.
            self.encoder.encode_urgent(&listener),
            self.encoder.encode(&config),
        ];
        self.by_caller.0.insert(port.clone(), (is_counted, resources.clone()));
        resources
    }
}
