//! What audit goes by: policy, and nothing of where proxies are or what they hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{
    AllowedTraffic, Grants, MeshSpecification, Mode, Port, Service, ServiceAccount, ServicePort,
    Snapshot,
};

use super::Pair;

/// The policy of one moment of the mesh.
#[derive(Debug)]
pub(super) struct Policy {
    mode: Mode,
    specification: Arc<MeshSpecification>,
    grants: Grants,
    /// As whom services run: nobody else has a certificate to call with.
    accounts: BTreeSet<ServiceAccount>,
}

impl Policy {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let services = snapshot.specification.services.values();
        Self {
            mode: snapshot.mode,
            specification: Arc::clone(&snapshot.specification),
            grants: snapshot.grants.clone(),
            accounts: services.map(|service| service.account.clone()).collect(),
        }
    }

    /// Whether it is that of `snapshot`, too. It costs as much as differs.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        let (ours, theirs) = (&self.specification, &snapshot.specification);
        self.mode == snapshot.mode
            && self.grants.are_same_as(&snapshot.grants)
            && (Arc::ptr_eq(ours, theirs) || ours.differs_in_endpoints_only(theirs))
    }

    pub(super) fn port(&self, port: &ServicePort) -> Option<(&Service, &Port)> {
        let service = self.specification.services.get(&port.service)?;
        Some((service, service.port(port.port)?))
    }

    /// Whether there are both.
    pub(super) fn knows(&self, (caller, port): &Pair) -> bool {
        self.port(port).is_some() && self.accounts.contains(caller)
    }

    /// The port that is called, where calls of it are let through and judged.
    pub(super) fn audited(&self, pair: &Pair) -> Option<(&Service, &Port)> {
        let (caller, port) = pair;
        let (service, port) = self.port(port)?;
        let is_audited = self.specification.mode_of(service, self.mode) == Mode::Audit;
        // Another namespace calls no private service, in audit either.
        let passes = is_audited && service.is_visible_in(&caller.namespace);
        (passes && self.knows(pair)).then_some((service, port))
    }

    /// The ways in which strict would let the call through; `None` where it is not in audit.
    pub(super) fn ways(&self, pair: &Pair) -> Option<BTreeSet<AllowedTraffic>> {
        let (service, port) = self.audited(pair)?;
        Some(self.grants.allowed_traffic(&self.specification, &pair.0, service, port))
    }

    /// Whether a proxy that still goes by this may deny what it would not by `next`, or the other way round:
    /// they let the caller in by other ways. (What is not in audit tells nothing.)
    pub(super) fn may_have_denied(&self, pair: &Pair, next: &Self) -> bool {
        self.ways(pair).is_some_and(|ways| next.ways(pair).as_ref() != Some(&ways))
    }
}
