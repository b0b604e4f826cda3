//! The clients that are connected, what each was given, and who is found by what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{Proxy, ServiceAccount, ServiceName, ServicePort, Snapshot};
use ironmesh_xds_compile::{Changes, Compiled, Compiler};
use ironmesh_xds_server::ClientKey;
use ironmesh_xds_wire::{Node, ResourceType};

use super::without_listener::WithoutListener;

/// The clients that are connected.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// What each last said of itself.
    nodes: BTreeMap<ClientKey, Arc<Node>>,
    given: BTreeMap<ClientKey, Given>,
    by_account: BTreeMap<ServiceAccount, BTreeSet<ClientKey>>,
    by_service: BTreeMap<ServiceName, BTreeSet<ClientKey>>,
    pub(super) without_listener: WithoutListener,
}

/// What a client was given, and what that follows from.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) proxy: Proxy,
    node: Arc<Node>,
    pub(super) compiled: Compiled,
    /// As whom its calls go out.
    pub(super) account: Option<ServiceAccount>,
}

impl Clients {
    /// A client is connected, and says this of itself. Says whether what it was given follows from
    /// that: not so where it was given nothing.
    pub(super) fn connected(&mut self, client: &ClientKey, node: &Arc<Node>) -> bool {
        // Each answer of a client comes by here, and hardly ever does it say something else of itself.
        if !self.nodes.get(client).is_some_and(|known| Arc::ptr_eq(known, node)) {
            self.nodes.insert(Arc::clone(client), Arc::clone(node));
        }
        self.given.get(client).is_some_and(|given| Arc::ptr_eq(&given.node, node))
    }

    /// A client is connected no more.
    pub(super) fn left(&mut self, client: &ClientKey) {
        self.nodes.remove(client);
        self.without_listener.set(client, None);
        self.take(client);
    }

    /// Whether a client has no inbound listener, and why, in its own words.
    pub(super) fn set_without_listener(&mut self, client: &ClientKey, nacked: Option<String>) {
        let given = self.given.get(client);
        let without_listener =
            nacked.zip(given).map(|(message, given)| (message, &given.proxy.record));
        self.without_listener.set(client, without_listener);
    }

    pub(super) fn node(&self, client: &str) -> Option<&Arc<Node>> {
        self.nodes.get(client)
    }

    /// All that are connected.
    pub(super) fn all(&self) -> BTreeSet<ClientKey> {
        self.nodes.keys().cloned().collect()
    }

    pub(super) fn given(&self, client: &str) -> Option<&Given> {
        self.given.get(client)
    }

    /// What the clients were given whose calls go out as `account`.
    pub(super) fn of_account(&self, account: &ServiceAccount) -> impl Iterator<Item = &Given> {
        let clients = self.by_account.get(account).into_iter().flatten();
        clients.filter_map(|client| self.given.get(client))
    }

    /// What the clients were given that have to do with a service.
    pub(super) fn of_service(&self, service: &ServiceName) -> impl Iterator<Item = &Given> {
        let clients = self.by_service.get(service).into_iter().flatten();
        clients.filter_map(|client| self.given.get(client))
    }

    /// Whether a client is to serve a port that has not got so far yet, or has not heard of its application
    /// there.
    pub(super) fn are_to_serve(&self, port: &ServicePort, snapshot: &Snapshot) -> bool {
        let served = snapshot.served_port(port);
        let key = (served.service.clone(), served.port);
        let clients = self.by_service.get(&served.service).into_iter().flatten();
        let about_to = clients.filter(|client| !self.without_listener.contains(client));
        about_to.filter_map(|client| self.given.get(client)).any(|given| {
            let record = snapshot.record(given.proxy.record.id);
            let behind = (given.proxy.record.id, served.clone());
            given.compiled.serves.0.contains(&key)
                && record.is_some_and(|record| {
                    !record.participation.0.contains(&key)
                        || record.vacant.0.contains(&key)
                            && snapshot.local_endpoints.contains_key(&behind)
                })
        })
    }

    /// Remembers what a client is given.
    pub(super) fn give(
        &mut self,
        client: &ClientKey,
        proxy: Proxy,
        compiled: Compiled,
        snapshot: &Snapshot,
    ) {
        self.take(client);
        let Some(node) = self.nodes.get(client).cloned() else { return };
        let first = proxy.record.services.first();
        let account = first.and_then(|name| snapshot.service(name));
        let account = account.map(|service| service.account.clone());
        if let Some(account) = &account {
            self.by_account.entry(account.clone()).or_default().insert(Arc::clone(client));
        }
        for service in mentioned(&proxy) {
            self.by_service.entry(service.clone()).or_default().insert(Arc::clone(client));
        }
        self.given.insert(Arc::clone(client), Given { proxy, node, compiled, account });
    }

    /// Forgets what a client was given.
    fn take(&mut self, client: &str) {
        let Some(given) = self.given.remove(client) else { return };
        if let Some(account) = &given.account {
            remove(&mut self.by_account, account, client);
        }
        for service in mentioned(&given.proxy) {
            remove(&mut self.by_service, service, client);
        }
    }

    /// The clients that are to be compiled again.
    pub(super) fn affected(&self, changes: &Changes) -> BTreeSet<ClientKey> {
        if changes.all_proxies {
            return self.all();
        }
        let of_accounts = changes.accounts.iter().filter_map(|one| self.by_account.get(one));
        let of_services = changes.services.iter().filter_map(|one| self.by_service.get(one));
        let mut affected: BTreeSet<_> = of_accounts.chain(of_services).flatten().cloned().collect();
        let themselves = changes.proxies.iter().map(|id| ClientKey::from(id.to_string()));
        affected.extend(themselves.filter(|client| self.nodes.contains_key(client)));
        affected
    }

    /// Puts new endpoints into what clients were given that are not compiled again; returns which. What all
    /// proxies of an account in one place have in common stays one value.
    pub(super) fn put_endpoints(
        &mut self,
        changes: &Changes,
        compiled_again: &BTreeSet<ClientKey>,
        compiler: &Compiler,
    ) -> BTreeSet<ClientKey> {
        let mut reached = BTreeSet::new();
        let accounts: BTreeSet<_> = changes.endpoints.iter().flat_map(|(_, told)| told).collect();
        for account in accounts {
            for client in self.by_account.get(account).into_iter().flatten() {
                if let Some(given) = self.given.get_mut(client)
                    && !compiled_again.contains(client)
                    && let Some(endpoints) =
                        compiler.endpoints_of(account, &given.proxy.record.locality)
                {
                    let resources = &mut given.compiled.resources;
                    resources.replace(ResourceType::Endpoint, endpoints.clone());
                    reached.insert(Arc::clone(client));
                }
            }
        }
        reached
    }
}

/// The services that what a proxy has follows from: those that it serves, and its upstreams.
fn mentioned(proxy: &Proxy) -> impl Iterator<Item = &ServiceName> {
    let upstreams = proxy.statement.upstreams.iter().map(|upstream| &upstream.service);
    proxy.record.services.iter().chain(upstreams)
}

fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ClientKey>>, key: &K, client: &str) {
    if let Some(clients) = index.get_mut(key) {
        clients.remove(client);
        if clients.is_empty() {
            index.remove(key);
        }
    }
}
