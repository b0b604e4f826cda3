//! The service ports that policy has dropped and that proxies of this control plane may still call. Servers that are
//! connected to a peer go on serving them as long.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{MeshSpecification, ServicePort};
use ironmesh_xds_server::Hub;
use ironmesh_xds_wire::ResourceType;

/// The dropped ports.
#[derive(Debug, Default)]
pub(in crate::reconciler) struct DroppedPorts {
    /// The policy of the last call.
    policy: Option<Arc<MeshSpecification>>,
    called: BTreeSet<ServicePort>,
}

impl DroppedPorts {
    /// Follows policy and ACKs. Returns the ports that proxies may still call. The cost follows the dropped ports, and
    /// after a change of policy its services.
    pub(in crate::reconciler) fn update(
        &mut self,
        policy: &Arc<MeshSpecification>,
        hub: &Hub,
    ) -> &BTreeSet<ServicePort> {
        let before = self.policy.replace(Arc::clone(policy));
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, policy)) {
            self.called.extend(ports(&before).filter(|port| !has_port(policy, port)));
            self.called.retain(|port| !has_port(policy, port));
        }
        self.called
            .retain(|port| hub.clients_that_may_have(ResourceType::Cluster, &port.to_string()) > 0);
        &self.called
    }
}

fn ports(policy: &MeshSpecification) -> impl Iterator<Item = ServicePort> + '_ {
    policy.services.iter().flat_map(|(name, service)| {
        service.ports.iter().map(|port| ServicePort::new(name.clone(), port.number))
    })
}

fn has_port(policy: &MeshSpecification, port: &ServicePort) -> bool {
    policy.services.get(&port.service).is_some_and(|service| service.port(port.port).is_some())
}
