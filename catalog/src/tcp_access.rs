//! TCP authorization: the callers of each TCP service port, and the number of withdrawals.
//!
//! TCP authorization happens in the handshake only: an accepted connection stays. A withdrawal must therefore end
//! the established connections of a port, while an addition must not affect them. That depends on the active
//! policy and on the one before. Hence this small state, an input of compilation that the store keeps. This module
//! never decides what a grant is.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
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

/// The callers of one TCP service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpAccess {
    /// The callers.
    pub callers: Callers,
    /// The mesh's count at the last withdrawal from this port, or else when the port was added. Proxies end the
    /// connections when it changes.
    pub withdrawals: u64,
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
            // A new port gets its number below, when all withdrawals are counted.
            let mut withdrawals = u64::MAX;
            if let Some(old) = before.ports.get(&service_port) {
                withdrawals = old.withdrawals;
                if !callers.include(&old.callers) {
                    accesses.withdrawals = accesses.withdrawals.wrapping_add(1);
                    withdrawals = accesses.withdrawals;
                }
            }
            accesses.ports.insert(service_port, TcpAccess { callers, withdrawals });
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
