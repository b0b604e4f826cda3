//! The connected clients, the compiled resources of each, and indexes by account and by service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::HashMap;
use ironmesh_catalog::{Proxy, ServiceAccount, ServiceName, ServicePort, Snapshot};
use ironmesh_xds_compile::{Changes, Compiled, Compiler};
use ironmesh_xds_server::ClientKey;
use ironmesh_xds_wire::{Node, ResourceType};

use super::local_ports::LocalPorts;
use super::without_listener::WithoutListener;

/// The connected clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// The node that each client reported last.
    nodes: HashMap<ClientKey, Arc<Node>>,
    configs: HashMap<ClientKey, ClientConfig>,
    by_account: BTreeMap<ServiceAccount, BTreeSet<ClientKey>>,
    by_service: BTreeMap<ServiceName, BTreeSet<ClientKey>>,
    pub(super) without_listener: WithoutListener,
    pub(super) local_ports: LocalPorts,
}

/// The compiled resources of a client, and what they were compiled from.
#[derive(Debug)]
pub(super) struct ClientConfig {
    pub(super) proxy: Proxy,
    node: Arc<Node>,
    pub(super) compiled: Compiled,
    /// The service account as which the proxy calls.
    pub(super) account: Option<ServiceAccount>,
}

impl Clients {
    /// Records that a client is connected and reports this node. Returns whether its resources were compiled from
    /// that node: false also where it has none.
    pub(super) fn connected(&mut self, client: &ClientKey, node: &Arc<Node>) -> bool {
        // Each answer of a client passes here, and its node hardly ever changes.
        if !self.nodes.get(client).is_some_and(|known| Arc::ptr_eq(known, node)) {
            self.nodes.insert(Arc::clone(client), Arc::clone(node));
        }
        self.configs.get(client).is_some_and(|config| Arc::ptr_eq(&config.node, node))
    }

    /// Records that a client has disconnected. Returns whether it was known to be connected.
    pub(super) fn disconnected(&mut self, client: &ClientKey) -> bool {
        let was_connected = self.nodes.remove(client).is_some();
        self.without_listener.set(client, None);
        self.local_ports.remove(client);
        self.remove_config(client);
        was_connected
    }

    /// Records why a client has no inbound listener, in its own words; none if it has one.
    pub(super) fn set_without_listener(&mut self, client: &ClientKey, nacked: Option<String>) {
        let config = self.configs.get(client);
        let without_listener =
            nacked.zip(config).map(|(message, config)| (message, &config.proxy.record));
        self.without_listener.set(client, without_listener);
    }

    pub(super) fn node(&self, client: &str) -> Option<&Arc<Node>> {
        self.nodes.get(client)
    }

    /// The count of connected clients.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// All connected clients.
    pub(super) fn all(&self) -> BTreeSet<ClientKey> {
        self.nodes.keys().cloned().collect()
    }

    pub(super) fn config(&self, client: &str) -> Option<&ClientConfig> {
        self.configs.get(client)
    }

    /// The compiled resources of the clients that call as `account`.
    pub(super) fn of_account(
        &self,
        account: &ServiceAccount,
    ) -> impl Iterator<Item = &ClientConfig> {
        let clients = self.by_account.get(account).into_iter().flatten();
        clients.filter_map(|client| self.configs.get(client))
    }

    /// The compiled resources of the clients that serve a service or have it as an upstream.
    pub(super) fn of_service(&self, service: &ServiceName) -> impl Iterator<Item = &ClientConfig> {
        let clients = self.by_service.get(service).into_iter().flatten();
        clients.filter_map(|client| self.configs.get(client))
    }

    /// Whether a connected client is about to serve a port: it has not ACKed the port yet, or not yet the cluster of
    /// the application there.
    pub(super) fn has_pending_server(&self, port: &ServicePort, snapshot: &Snapshot) -> bool {
        let served = snapshot.served_port(port);
        let key = (served.service.clone(), served.port);
        let clients = self.by_service.get(&served.service).into_iter().flatten();
        let about_to = clients.filter(|client| !self.without_listener.contains(client));
        about_to.filter_map(|client| self.configs.get(client)).any(|config| {
            let record = snapshot.record(config.proxy.record.id);
            let behind = (config.proxy.record.id, served.clone());
            config.compiled.serves.0.contains(&key)
                && record.is_some_and(|record| {
                    !record.participation.0.contains(&key)
                        || record.ports_without_backend.0.contains(&key)
                            && snapshot.local_endpoints.contains_key(&behind)
                })
        })
    }

    /// Stores the compiled resources of a client.
    pub(super) fn set_config(
        &mut self,
        client: &ClientKey,
        proxy: Proxy,
        compiled: Compiled,
        snapshot: &Snapshot,
    ) {
        self.remove_config(client);
        let Some(node) = self.nodes.get(client).cloned() else { return };
        let first = proxy.record.services.first();
        let account = first.and_then(|name| snapshot.service(name));
        let account = account.map(|service| service.account.clone());
        if let Some(account) = &account {
            self.by_account.entry(account.clone()).or_default().insert(Arc::clone(client));
        }
        self.local_ports.set(client, &proxy, &compiled.upstreams);
        for service in referenced_services(&proxy, &compiled) {
            self.by_service.entry(service.clone()).or_default().insert(Arc::clone(client));
        }
        self.configs.insert(Arc::clone(client), ClientConfig { proxy, node, compiled, account });
    }

    /// Removes the compiled resources of a client.
    fn remove_config(&mut self, client: &str) {
        let Some(config) = self.configs.remove(client) else { return };
        if let Some(account) = &config.account {
            remove(&mut self.by_account, account, client);
        }
        for service in referenced_services(&config.proxy, &config.compiled) {
            remove(&mut self.by_service, service, client);
        }
    }

    /// The clients that must be compiled again.
    pub(super) fn affected(&self, changes: &Changes) -> BTreeSet<ClientKey> {
        if changes.all_proxies {
            return self.all();
        }
        let affected = changes.proxies.iter().map(|id| ClientKey::from(id.to_string()));
        affected.filter(|client| self.nodes.contains_key(client)).collect()
    }

    /// Replaces the endpoints in the resources of clients that are not compiled again; returns those clients. All
    /// proxies of one account and locality share one value.
    pub(super) fn replace_endpoints(
        &mut self,
        changes: &Changes,
        compiled_again: &BTreeSet<ClientKey>,
        compiler: &Compiler,
    ) -> BTreeSet<ClientKey> {
        let mut reached = Vec::new();
        let accounts: BTreeSet<_> =
            changes.endpoints.iter().flat_map(|(_, accounts)| accounts).collect();
        for account in accounts {
            for client in self.by_account.get(account).into_iter().flatten() {
                if let Some(config) = self.configs.get_mut(client)
                    && !compiled_again.contains(client)
                    && let Some(endpoints) =
                        compiler.endpoints_of(account, &config.proxy.record.locality)
                {
                    let resources = &mut config.compiled.resources;
                    resources.replace(ResourceType::Endpoint, endpoints.clone());
                    reached.push(Arc::clone(client));
                }
            }
        }
        reached.into_iter().collect()
    }

    /// Renews the applications of clients that are not compiled again; returns those whose resources differ.
    pub(super) fn renew_applications(
        &mut self,
        changes: &Changes,
        compiled_again: &BTreeSet<ClientKey>,
        compiler: &mut Compiler,
    ) -> BTreeSet<ClientKey> {
        let mut renewed = BTreeSet::new();
        for (id, ports) in &changes.applications {
            let client = ClientKey::from(id.to_string());
            let config =
                self.configs.get_mut(&client).filter(|_| !compiled_again.contains(&client));
            let Some(config) = config else { continue };
            for port in ports {
                compiler.renew_applications(&config.proxy, port, &mut config.compiled);
            }
            renewed.insert(client);
        }
        renewed
    }
}

/// The services that a proxy's resources depend on: those that it serves, and its upstreams.
///
/// A flag that policy overrides counts too: a change of its service may end that.
fn referenced_services<'a>(
    proxy: &'a Proxy,
    compiled: &'a Compiled,
) -> impl Iterator<Item = &'a ServiceName> {
    let flags = proxy.metadata.upstreams.iter();
    let upstreams = flags.chain(compiled.upstreams.iter().map(|one| &one.upstream));
    proxy.record.services.iter().chain(upstreams.map(|upstream| &upstream.service))
}

fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ClientKey>>, key: &K, client: &str) {
    if let Some(clients) = index.get_mut(key) {
        clients.remove(client);
        if clients.is_empty() {
            index.remove(key);
        }
    }
}
