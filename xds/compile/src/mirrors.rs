//! Who gets a copy of calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{Mirror, ServicePort, Snapshot};

use crate::destination::Destination;

/// To whom calls of an account may be mirrored: whom it may call itself. Clusters of others it has not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mirrors<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) callable: &'a BTreeMap<ServicePort, Arc<Destination>>,
}

impl Mirrors<'_> {
    /// Where copies of calls of `asked` go, if they go where the mirror says: it is an HTTP port of the mesh that
    /// answers itself, and not the only one of `backends`, which gets the calls.
    pub(crate) fn port(
        &self,
        asked: &ServicePort,
        backends: &[(ServicePort, u32)],
        mirror: &Mirror,
    ) -> Option<ServicePort> {
        let to = ServicePort::new(mirror.service.clone(), asked.port);
        let service = self.snapshot.service(&to.service)?;
        let is_http = service.port(to.port).is_some_and(|port| port.protocol.is_http());
        let answers_itself = self.callable.get(&to)?.is_to(&to);
        let has_them = to == *asked || backends.iter().all(|(port, _)| *port == to);
        let is_one = service.external.is_none() && is_http && answers_itself && !has_them;
        is_one.then_some(to)
    }
}
