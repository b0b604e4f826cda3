//! TCP authorization: the callers of each TCP service port, and the number of withdrawals.
//!
//! TCP authorization happens in the handshake only: an accepted connection stays. A withdrawal must therefore end
//! the established connections of a port, while an addition must not affect them. That depends on the active
//! policy and on the one before. Hence this small state, an input of compilation that the store keeps. This module
//! never decides what a grant is.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use serde::{Deserialize, Serialize};

use crate::grants::{Grant, Grants};
use crate::name::{Name, ServiceAccount, ServicePort};
use crate::service::{Mode, OpenCallers, Port, Service};
use crate::specification::MeshSpecification;

/// The callers of each TCP service port, and the number of withdrawals in the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpAccesses {
    /// By port.
    pub ports: OrdMap<ServicePort, TcpAccess>,
    /// The number of withdrawals in the mesh. It never falls, not even when a port is removed, so a port that returns
    /// differs from what it was before.
    pub withdrawals: u64,
}

impl TcpAccesses {
    /// These accesses, which follow from those `before`, as other control planes have stored them: an access with the same
    /// callers counts as many withdrawals as theirs. So one withdrawal is the same on all of them. A withdrawal that was not
    /// there before still changes the count.
    #[must_use]
    pub fn agreeing_with(&self, before: &Self, stored: &Self) -> Self {
        let mut agreed = self.clone();
        agreed.withdrawals = agreed.withdrawals.max(stored.withdrawals);
        for difference in self.ports.diff(&stored.ports) {
            let DiffItem::Update { old: (port, own), new: (_, stored) } = difference else {
                continue;
            };
            let least = match before.ports.get(port).map(|before| before.withdrawals) {
                // The port is new here.
                None => 0,
                Some(same) if same == own.withdrawals => same,
                Some(before) => before + 1,
            };
            if own.callers == stored.callers && stored.withdrawals >= least {
                agreed.ports.insert(port.clone(), stored.clone());
            }
        }
        agreed
    }
}

/// The callers of one TCP service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpAccess {
    /// The callers.
    pub callers: Callers,
    /// The mesh's count at the last withdrawal from this port, or else when the port was added. Proxies end the
    /// connections when it changes.
    pub withdrawals: u64,
    /// The accounts that were withdrawn and not granted again, the last ones, oldest first. Proxies end their connections,
    /// and those of no other caller, if their bootstrap allows that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withdrawn: Vec<ServiceAccount>,
    /// The accounts that policy named last, while all or a whole namespace are callers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub named_before: BTreeSet<ServiceAccount>,
}

impl TcpAccess {
    /// The maximum number of withdrawn accounts. Their connections end within the drain time, so more are of no use.
    pub const MAX_WITHDRAWN: usize = 64;

    /// The callers whose connections a withdrawal can end apart from those of others: policy names them, or did so before
    /// it allowed all.
    pub fn named(&self) -> &BTreeSet<ServiceAccount> {
        match &self.callers {
            Callers::These(accounts) => accounts,
            Callers::Anyone | Callers::AnyoneIn(_) => &self.named_before,
        }
    }

    /// Notes the accounts that have lost their access since `before`, and those that have it again.
    fn note_withdrawn(&mut self, before: &Self) {
        let is_out = |account: &&ServiceAccount| !self.callers.contain(account);
        let lost: Vec<_> = before.named().iter().filter(is_out).cloned().collect();
        let earlier = before.withdrawn.iter().filter(is_out).filter(|one| !lost.contains(one));
        let mut withdrawn: Vec<_> = earlier.cloned().collect();
        withdrawn.extend(lost);
        withdrawn.drain(..withdrawn.len().saturating_sub(Self::MAX_WITHDRAWN));
        self.withdrawn = withdrawn;
        if !matches!(self.callers, Callers::These(_)) {
            let named = before.named().iter().filter(|account| self.callers.contain(account));
            self.named_before = named.cloned().collect();
        }
    }
}

/// A set of callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Callers {
    /// Every service account of the mesh: permissive and audit mode.
    Anyone,
    /// Every service account of a namespace: permissive and audit mode of a private service.
    AnyoneIn(Name),
    /// These service accounts. An empty set excludes every caller.
    These(BTreeSet<ServiceAccount>),
}

impl Callers {
    /// Whether `account` is one of them.
    pub fn contain(&self, account: &ServiceAccount) -> bool {
        match self {
            Self::Anyone => true,
            Self::AnyoneIn(namespace) => account.namespace == *namespace,
            Self::These(accounts) => accounts.contains(account),
        }
    }

    /// Whether no account is a caller.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::These(accounts) if accounts.is_empty())
    }

    /// Whether all of `others` are among them.
    fn include(&self, others: &Self) -> bool {
        match (self, others) {
            (Self::Anyone, _) => true,
            (Self::AnyoneIn(ours), Self::AnyoneIn(theirs)) => ours == theirs,
            (Self::These(_) | Self::AnyoneIn(_), Self::Anyone)
            | (Self::These(_), Self::AnyoneIn(_)) => false,
            (_, Self::These(theirs)) => theirs.iter().all(|account| self.contain(account)),
        }
    }
}

/// The callers of each TCP service port, given those `before`.
pub(crate) fn tcp_accesses(
    specification: &MeshSpecification,
    grants: &Grants,
    mesh_mode: Mode,
    before: &TcpAccesses,
) -> TcpAccesses {
    let mut accesses = TcpAccesses { ports: OrdMap::new(), withdrawals: before.withdrawals };
    // Connections to a subset are connections to its service.
    for service in specification.services.values().filter(|service| !service.is_subset()) {
        let grants = grants.on(&service.account);
        for (service_port, port) in service.service_ports() {
            if port.protocol.is_http() {
                continue;
            }
            let callers = match service.open_callers(specification.mode_of(service, mesh_mode)) {
                Some(OpenCallers::All) => Callers::Anyone,
                Some(OpenCallers::Namespace(namespace)) => Callers::AnyoneIn(namespace.clone()),
                None => strict_callers(specification, grants, service, port),
            };
            let mut access = TcpAccess {
                callers,
                // A new port gets its number below, when all withdrawals are counted.
                withdrawals: u64::MAX,
                withdrawn: Vec::new(),
                named_before: BTreeSet::new(),
            };
            if let Some(old) = before.ports.get(&service_port) {
                access.withdrawals = old.withdrawals;
                access.note_withdrawn(old);
                if !access.callers.include(&old.callers) {
                    accesses.withdrawals = accesses.withdrawals.wrapping_add(1);
                    access.withdrawals = accesses.withdrawals;
                }
            }
            accesses.ports.insert(service_port, access);
        }
    }
    let gone = before
        .ports
        .iter()
        .filter(|(port, old)| !accesses.ports.contains_key(*port) && !old.callers.is_empty());
    accesses.withdrawals = accesses.withdrawals.wrapping_add(u64::from(gone.count() > 0));
    let new: Vec<_> =
        accesses.ports.keys().filter(|port| !before.ports.contains_key(*port)).cloned().collect();
    for port in new {
        if let Some(access) = accesses.ports.get_mut(&port) {
            access.withdrawals = accesses.withdrawals;
        }
    }
    accesses
}

/// The callers that `grants`, those on the account of `service`, allow on its TCP port.
fn strict_callers(
    specification: &MeshSpecification,
    grants: &[Arc<Grant>],
    service: &Service,
    port: &Port,
) -> Callers {
    let grants = grants.iter().filter(|grant| specification.has_rule_about(&grant.target, port));
    let sources = grants.flat_map(|grant| &grant.sources);
    let sources = sources.filter(|one| service.is_visible_in(&one.namespace));
    Callers::These(sources.cloned().collect())
}

#[cfg(test)]
mod tests;
