//! Mirrors: the service that gets copies of calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{Mirror, ServicePort};

use crate::destination::Destination;
use crate::mesh_view::MeshView;

/// The possible mirrors of an account's calls: services that it may call itself. It has no clusters
/// of others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mirrors<'a> {
    pub(crate) mesh: MeshView<'a>,
    pub(crate) callable: &'a BTreeMap<ServicePort, Arc<Destination>>,
}

impl Mirrors<'_> {
    /// The port that gets copies of calls to `called`. It must be an HTTP port of the mesh without
    /// a split, and not the only one of `backends`, which gets the calls.
    pub(crate) fn port(
        &self,
        called: &ServicePort,
        backends: &[(ServicePort, u32)],
        mirror: &Mirror,
    ) -> Option<ServicePort> {
        let to = ServicePort::new(mirror.service.clone(), called.port);
        let service = self.mesh.service(&to.service)?;
        let is_http = service.port(to.port).is_some_and(|port| port.protocol.is_http());
        let answers_itself = self.callable.get(&to)?.is_to(&to);
        let has_them = to == *called || backends.iter().all(|(port, _)| *port == to);
        let is_one = service.external.is_none() && is_http && answers_itself && !has_them;
        is_one.then_some(to)
    }
}
