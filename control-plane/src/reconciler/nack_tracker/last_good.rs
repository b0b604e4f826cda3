//! The versions that clients had ACKed before policy compiled to the present ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::ServiceAccount;
use ironmesh_xds_compile::ResourceRole;
use ironmesh_xds_wire::{Resource, ResourceType};

use super::ResourceKey;
use crate::reconciler::clients::{ClientConfig, Clients};

/// The last good versions of resources that clients share.
#[derive(Debug, Default)]
pub(super) struct LastGood {
    by_name: BTreeMap<LastGoodKey, Arc<Resource>>,
}

/// The account and the resource's name. A resource that has one name for all accounts differs between them: it has
/// the account's own upstreams and certificate.
type LastGoodKey = (Option<ServiceAccount>, ResourceKey);

impl LastGood {
    /// Stores the version that a client of `account` had ACKed, when a new one replaces it.
    pub(super) fn remember(&mut self, account: Option<&ServiceAccount>, resource: &Arc<Resource>) {
        self.by_name.insert(key(account, resource), Arc::clone(resource));
    }

    /// The last good version of `resource` for a client of `account`.
    pub(super) fn of(
        &self,
        account: Option<&ServiceAccount>,
        resource: &Resource,
    ) -> Option<&Arc<Resource>> {
        self.by_name.get(&key(account, resource))
    }

    /// The last good cluster, or the last good endpoints, with this name for a client of `account`.
    pub(super) fn named(
        &self,
        account: Option<&ServiceAccount>,
        of: ResourceType,
        name: &str,
    ) -> Option<&Arc<Resource>> {
        self.by_name.get(&(account.cloned(), (of, name.into())))
    }

    /// Forgets resources that no client should have in any version, unless a client NACKs them.
    pub(super) fn prune(&mut self, clients: &Clients, is_nacked: impl Fn(&ResourceKey) -> bool) {
        self.by_name.retain(|(account, name), resource| {
            let is_to_have =
                |config: &ClientConfig| config.compiled.resources.contains(name.0, &name.1);
            is_nacked(name)
                || match (account, ResourceRole::authorized_port(resource)) {
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

fn key(account: Option<&ServiceAccount>, resource: &Resource) -> LastGoodKey {
    // Authorization of a port is the same on every proxy that serves it, whatever the proxy's own account.
    let account = account.filter(|_| ResourceRole::authorized_port(resource).is_none());
    (account.cloned(), (resource.resource_type(), Arc::clone(resource.name())))
}
