//! What clients had taken before the version that policy asks for now.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::ServiceAccount;
use ironmesh_xds_compile::stand_in::carries_authorization;
use ironmesh_xds_wire::Resource;

use super::Name;

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
}

fn key(account: Option<&ServiceAccount>, resource: &Resource) -> Key {
    // Who may call a port is the same in front of every proxy that serves it, whoever that is itself.
    let account = account.filter(|_| !carries_authorization(resource));
    (account.cloned(), (resource.resource_type(), Arc::clone(resource.name())))
}
