//! From one moment of the mesh to the next: what is compiled again, and whom that affects.
//!
//! Endpoints take a short path, also those of lists in policy: a new assignment of one service port is encoded once, and put into the
//! scopes that have it. A change of policy compiles again what proxies share, which is as much as there
//! is policy and not as there are proxies, and compares: who shares nothing that differs is not affected.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use ironmesh_catalog::{ProxyId, ServiceAccount, ServiceName, Snapshot};
use ironmesh_xds_wire::Resource;

use super::{Scope, Shared};
use crate::index::PolicyIndex;
use crate::secret;

/// Whom the way from one moment of the mesh to the next affects. Proxies that are none of these would be
/// compiled to what they have.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Everybody.
    pub everybody: bool,
    /// Those whose calls go out as one of these accounts.
    pub accounts: BTreeSet<ServiceAccount>,
    /// Those who serve one of these services, or have declared it as an upstream.
    pub services: BTreeSet<ServiceName>,
    /// Those by themselves: where their applications listen.
    pub proxies: BTreeSet<ProxyId>,
    /// New endpoints, and the accounts whose proxies have them ([`Compiler::endpoints_of`]). Unless they are
    /// affected otherwise, this resource is all that differs for them.
    ///
    /// [`Compiler::endpoints_of`]: crate::Compiler::endpoints_of
    pub endpoints: Vec<(Arc<Resource>, BTreeSet<ServiceAccount>)>,
}

impl Shared {
    /// Moves on to `snapshot`.
    pub(crate) fn update(&mut self, snapshot: Arc<Snapshot>) -> Changes {
        let old = std::mem::replace(&mut self.snapshot, snapshot);
        let new = Arc::clone(&self.snapshot);
        let mut changes = Changes::default();
        let local = old.local_endpoints.diff(&new.local_endpoints);
        changes.proxies.extend(local.map(|item| key(&item).0));

        let same_trust = old.trust_bundle == new.trust_bundle;
        let same_policy = old.mode == new.mode
            && (Arc::ptr_eq(&old.specification, &new.specification)
                || old.specification.differs_in_endpoints_only(&new.specification))
            && old.grants.are_same_as(&new.grants);
        if same_policy {
            self.index.follow(&new.specification);
        } else {
            self.index = PolicyIndex::new(&new);
            let (old, new) = (&old.specification.services, &new.specification.services);
            changes.services.extend(old.diff(new).map(|item| key(&item)));
        }
        if !same_trust {
            self.trust_bundle = self.encoder.encode(&secret::trust_bundle(&new.trust_bundle));
            changes.everybody = true;
        }
        if !same_trust || !same_policy {
            self.update_tcp_authorizations(&old, same_trust, &mut changes);
        }
        let certificates: Vec<_> =
            old.certificates.diff(&new.certificates).map(|item| key(&item)).collect();
        for account in &certificates {
            self.certificates.remove(account);
            changes.services.extend(self.index.services_of(account).cloned());
        }
        self.update_endpoints(&old, &mut changes);
        if !same_policy {
            self.update_inbound_routes(&mut changes);
        }
        let stale: Vec<_> = if same_policy && same_trust {
            certificates.into_iter().filter(|account| self.scopes.contains_key(account)).collect()
        } else {
            self.scopes.keys().cloned().collect()
        };
        self.update_scopes(stale, &mut changes);
        if !same_policy {
            self.update_upstream_routes(&mut changes);
        }
        changes
    }

    fn update_tcp_authorizations(
        &mut self,
        old: &Snapshot,
        same_trust: bool,
        changes: &mut Changes,
    ) {
        let new = &self.snapshot.tcp_accesses.ports;
        for item in old.tcp_accesses.ports.diff(new) {
            let port = key(&item);
            self.tcp_authorizations.remove(&port);
            changes.services.insert(port.service);
        }
        if !same_trust {
            self.tcp_authorizations.clear();
        }
    }

    /// Encodes the endpoints again that are of other content, and puts them where they are told.
    fn update_endpoints(&mut self, old: &Snapshot, changes: &mut Changes) {
        let new = Arc::clone(&self.snapshot);
        for item in old.endpoints.diff(&new.endpoints) {
            let port = key(&item);
            let Some(known) = self.endpoints.remove(&port) else { continue };
            if !new.endpoints.contains_key(&port) {
                continue;
            }
            let resource = self.endpoints(&port);
            if resource.version() == known.version() {
                self.endpoints.insert(port, known);
                continue;
            }
            let told = self.told.get(&port).cloned().unwrap_or_default();
            for account in &told {
                if let Some(scope) = self.scopes.get_mut(account) {
                    Arc::make_mut(scope).resources.insert(Arc::clone(&resource));
                }
            }
            changes.endpoints.push((resource, told));
        }
    }

    fn update_inbound_routes(&mut self, changes: &mut Changes) {
        for (port, known) in std::mem::take(&mut self.inbound_routes) {
            let Some(service) = self.snapshot.service(&port.service).cloned() else { continue };
            if !service.port(port.port).is_some_and(|port| port.protocol.is_http()) {
                continue;
            }
            let resource = self.inbound_routes(&service, &port);
            if resource.version() == known.version() {
                self.inbound_routes.insert(port, known);
            } else {
                changes.services.insert(port.service);
            }
        }
    }

    /// Compiles these scopes again. What has not changed in them stays the same value.
    fn update_scopes(&mut self, accounts: Vec<ServiceAccount>, changes: &mut Changes) {
        for account in accounts {
            let Some(known) = self.scopes.remove(&account) else { continue };
            for told in self.told.values_mut() {
                told.remove(&account);
            }
            if self.index.services_of(&account).next().is_none() {
                // Nobody runs as this account any more: who did is affected by the service's going.
                continue;
            }
            let compiled = self.compile_scope(&account);
            let is_same = compiled.resources.is_same_as(&known.resources)
                && compiled.callable == known.callable
                && compiled.by_host == known.by_host;
            let scope = if is_same {
                known
            } else {
                let resources = compiled.resources.sharing_with(&known.resources);
                changes.accounts.insert(account.clone());
                Arc::new(Scope { resources, ..compiled })
            };
            self.scopes.insert(account, scope);
        }
        self.told.retain(|_, accounts| !accounts.is_empty());
    }

    /// The routes of declared upstreams follow from scopes and services.
    fn update_upstream_routes(&mut self, changes: &mut Changes) {
        for ((account, port), known) in std::mem::take(&mut self.upstream_routes) {
            let service = self.snapshot.service(&port.service).cloned();
            let (Some(service), Some(scope)) = (service, self.scopes.get(&account).cloned()) else {
                continue;
            };
            let resource = self.upstream_routes(&account, &scope, &service, &port);
            if resource.version() == known.version() {
                self.upstream_routes.insert((account, port), known);
            } else {
                changes.accounts.insert(account);
            }
        }
    }
}

/// The key of what differs between two maps.
fn key<K: Clone, V>(item: &DiffItem<'_, '_, K, V>) -> K {
    match item {
        DiffItem::Add(key, _)
        | DiffItem::Remove(key, _)
        | DiffItem::Update { new: (key, _), .. } => (*key).clone(),
    }
}
