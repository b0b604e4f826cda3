//! The authorization of callers, which all proxies that serve a port share.

use std::sync::Arc;

use ironmesh_catalog::ServicePort;
use ironmesh_xds_wire::{Resource, ResourceType};

use super::Shared;
use crate::reads::{Read, Reads};
use crate::role::ResourceRole;
use crate::{callers, inbound, names, revoked, secret, withdrawals};

impl Shared {
    /// The inbound routes of an HTTP port, with their authorization, if policy defines the port.
    pub(crate) fn inbound_routes(
        &mut self,
        port: &ServicePort,
        by: &Reads,
    ) -> Option<Arc<Resource>> {
        by.record(Read::InboundRoutes(port.clone()));
        if let Some(resource) = self.inbound_routes.get(port) {
            return Some(Arc::clone(resource));
        }
        by.record(Read::Service(port.service.clone()));
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        let mesh = mesh.read_by(&reads);
        let (service, _) = mesh.port(port).filter(|(_, port)| port.protocol.is_http())?;
        reads.record(Read::RevokedNames);
        let routes = inbound::route_configuration(mesh, service, port, self.revoked.as_ref());
        let role = ResourceRole::Authorization(port.clone());
        let resource = self.encoder.encode_urgent_as(role, &routes);
        let reads = self.read_table.store(reads);
        self.inbound_routes.insert(port.clone(), Arc::clone(&resource), reads);
        Some(resource)
    }

    /// Encodes the refusal of revoked callers again.
    pub(super) fn update_revoked(&mut self) {
        self.revoked = revoked::per_route(&self.mesh.snapshot.revoked_callers);
    }

    /// The list of callers of a TCP port, if it has one.
    pub(crate) fn tcp_authorization(
        &mut self,
        port: &ServicePort,
        by: &Reads,
    ) -> Option<Arc<Resource>> {
        by.record(Read::TcpAuthorization(port.clone()));
        if let Some(resource) = self.tcp_authorizations.get(port) {
            return Some(Arc::clone(resource));
        }
        by.record(Read::TcpAccess(port.clone()));
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        let mesh = mesh.read_by(&reads);
        let secret = secret::tcp_authorization(
            mesh.trust_domain(),
            mesh.trust_bundle(),
            mesh.revocation_lists(),
            port,
            &mesh.tcp_access(port)?.callers,
        );
        let role = ResourceRole::Authorization(port.clone());
        let resource = self.encoder.encode_as(role, &secret);
        let reads = self.read_table.store(reads);
        self.tcp_authorizations.insert(port.clone(), Arc::clone(&resource), reads);
        Some(resource)
    }

    /// The resources by which proxies serve a TCP port by chains of single callers (docs/decisions/0079): its cluster, its
    /// listener, and the configuration of its filter.
    pub(crate) fn by_caller(
        &mut self,
        port: &ServicePort,
        by: &Reads,
    ) -> Option<[Arc<Resource>; 3]> {
        by.record(Read::ByCaller(port.clone()));
        if let Some(resources) = self.by_caller.get(port) {
            return Some(resources.clone());
        }
        by.record(Read::Service(port.service.clone()));
        by.record(Read::TcpAccess(port.clone()));
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        let mesh = mesh.read_by(&reads);
        let (service, access) = (mesh.service(&port.service)?, mesh.tcp_access(port)?);
        let is_counted = mesh.settings(service).global_tcp().is_some();
        let cluster =
            if is_counted { names::counted_cluster(port) } else { names::local_cluster(port) };
        let trust_domain = mesh.trust_domain();
        let last_listed = |account: &_| mesh.last_listed(account);
        let listener = callers::listener(trust_domain, port, access, last_listed, &cluster);
        let config = withdrawals::filter_config(trust_domain, port, access);
        let resources = [
            self.encoder.encode_as(ResourceRole::ByCaller(port.clone()), &callers::cluster(port)),
            // It may withdraw access. Envoy gets the list of callers first: one that it refuses must not connect again to a
            // chain that has just begun.
            self.encoder.encode_with(&listener, |listener| {
                let callers = secret::authorization_name(port);
                listener.urgent().referring_to(ResourceType::Secret, callers)
            }),
            self.encoder.encode(&config),
        ];
        let reads = self.read_table.store(reads);
        self.by_caller.insert(port.clone(), resources.clone(), reads);
        Some(resources)
    }
}
