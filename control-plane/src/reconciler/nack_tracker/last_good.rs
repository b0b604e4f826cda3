//! What clients had taken before the version that policy asks for now.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::ServiceAccount;
use ironmesh_xds_compile::names::authorized_port;
use ironmesh_xds_compile::fallback::carries_authorization;
use ironmesh_xds_wire::{Resource, ResourceType};

use super::Name;
use crate::reconciler::clients::{Clients, Given};

/// The last good versions of what clients share.
#[derive(Debug, Default)]
pub(super) struct LastGood {
    by_name: BTreeMap<Key, Arc<Resource>>,
}

/// Whose it is, and what it is called: what goes by one name for all accounts says for each whom *it*
/// may call, and shows *its* certificate.
type Key = (Option<ServiceAccount>, Name);

impl LastGood {
    /// A client of `account` had taken this, and is to have another version now.
    pub(super) fn taken(&mut self, account: Option<&ServiceAccount>, resource: &Arc<Resource>) {
        self.by_name.insert(key(account, resource), Arc::clone(resource));
    }

    /// What may take the place of `resource` for a client of `account`.
    pub(super) fn of(
        &self,
        account: Option<&ServiceAccount>,
        resource: &Resource,
    ) -> Option<&Arc<Resource>> {
        self.by_name.get(&key(account, resource))
    }

    /// Clusters and endpoints that clients of `account` had taken.
    pub(super) fn clusters(
        &self,
        account: Option<&ServiceAccount>,
    ) -> impl Iterator<Item = &Arc<Resource>> {
        let is_one = move |((of_account, (of, _)), _): &(&Key, &Arc<Resource>)| {
            of_account.as_ref() == account
                && matches!(of, ResourceType::Cluster | ResourceType::Endpoint)
        };
        self.by_name.iter().filter(is_one).map(|(_, resource)| resource)
    }

    /// Forgets what no client is to have any more, in whatever version, unless it `is_refused`.
    pub(super) fn prune(&mut self, clients: &Clients, is_refused: impl Fn(&Name) -> bool) {
        self.by_name.retain(|(account, name), _| {
            let is_to_have = |given: &Given| given.compiled.resources.contains(name.0, &name.1);
            is_refused(name)
                || match (account, authorized_port(&name.1)) {
                    (Some(account), _) => clients.of_account(account).any(is_to_have),
                    (None, Some(port)) => clients.of_service(&port.service).any(is_to_have),
                    (None, None) => false,
                }
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }
}

fn key(account: Option<&ServiceAccount>, resource: &Resource) -> Key {
    // Who may call a port is the same in front of every proxy that serves it, whoever that is itself.
    let account = account.filter(|_| !carries_authorization(resource));
    (account.cloned(), (resource.resource_type(), Arc::clone(resource.name())))
}
