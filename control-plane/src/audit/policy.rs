//! The policy by which audit classifies calls. It never depends on where proxies are or on what they ACKed.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{
    AllowedTraffic, Grants, MeshSpecification, Mode, Port, Service, ServiceAccount, ServicePort,
    Snapshot,
};

use super::CallPair;

/// The policy of one snapshot.
#[derive(Debug)]
pub(super) struct AuditPolicy {
    mode: Mode,
    specification: Arc<MeshSpecification>,
    grants: Grants,
    /// The accounts of services: only they have a certificate to call with.
    accounts: BTreeSet<ServiceAccount>,
}

impl AuditPolicy {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let services = snapshot.specification.services.values();
        Self {
            mode: snapshot.mode,
            specification: Arc::clone(&snapshot.specification),
            grants: snapshot.grants.clone(),
            accounts: services.map(|service| service.account.clone()).collect(),
        }
    }

    /// Whether it equals the policy of `snapshot`. The cost follows the differences.
    pub(super) fn is_same_as(&self, snapshot: &Snapshot) -> bool {
        let (ours, theirs) = (&self.specification, &snapshot.specification);
        self.mode == snapshot.mode
            && self.grants.are_same_as(&snapshot.grants)
            && (Arc::ptr_eq(ours, theirs) || ours.has_same_access(theirs))
    }

    pub(super) fn port(&self, port: &ServicePort) -> Option<(&Service, &Port)> {
        let service = self.specification.services.get(&port.service)?;
        Some((service, service.port(port.port)?))
    }

    /// Whether both the account and the port exist.
    pub(super) fn contains(&self, (caller, port): &CallPair) -> bool {
        self.port(port).is_some() && self.accounts.contains(caller)
    }

    /// The called port, if calls of it pass and shadow rules apply.
    pub(super) fn audited(&self, pair: &CallPair) -> Option<(&Service, &Port)> {
        let (caller, port) = pair;
        let (service, port) = self.port(port)?;
        let is_audited = self.specification.mode_of(service, self.mode) == Mode::Audit;
        // A private service denies other namespaces in audit mode too.
        let passes = is_audited && service.is_visible_in(&caller.namespace);
        (passes && self.contains(pair)).then_some((service, port))
    }

    /// The traffic that strict mode would allow; `None` where the port is not in audit mode.
    pub(super) fn allowed_traffic(&self, pair: &CallPair) -> Option<BTreeSet<AllowedTraffic>> {
        let (service, port) = self.audited(pair)?;
        Some(self.grants.allowed_traffic(&self.specification, &pair.0, service, port))
    }

    /// Whether a proxy that still enforces this policy may report a different set of denials than under `next`: they
    /// allow different traffic. (A port outside of audit mode reports nothing.)
    pub(super) fn may_deny_differently(&self, pair: &CallPair, next: &Self) -> bool {
        self.allowed_traffic(pair)
            .is_some_and(|traffic| next.allowed_traffic(pair).as_ref() != Some(&traffic))
    }
}
