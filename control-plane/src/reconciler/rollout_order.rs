//! Rollout order: make before break across proxies (invariant 6). Servers come before callers for additions, and
//! callers before servers for removals.
//!
//! A part of a client's resource set is held back for a short time:
//!
//! - A caller gets no service port without an endpoint while a proxy is about to serve it: its calls would fail.
//! - A proxy goes on serving a port that policy dropped, and nothing else of its old set, until its callers have
//!   dropped the port.
//! - A proxy whose last application is gone keeps its local cluster for a moment: its callers learn of that at the
//!   same time, and requests on their way would find no listener.
//!
//! Proxies that are connected to peers are callers and servers as well. Peers note which dropped ports theirs may still
//! call; a proxy of theirs that has joined for a port and does not serve it yet is about to.
//!
//! No wait is longer than [`MAX_WAIT`]. A grant that is withdrawn from a port that stays is withdrawn at once. (A
//! dropped port is served meanwhile with the grants that it had.)

mod dropped_ports;
mod keep;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use ironmesh_catalog::{ProxyId, ServicePort, Snapshot};
use ironmesh_xds_compile::ResourceRole;
use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::{ResourceMap, ResourceSet, ResourceType, Version};
use tokio::time::Instant;

use super::clients::Clients;
use crate::peers::Peers;
use dropped_ports::DroppedPorts;
use keep::{KeptListener, keep_caller_resources, keep_local_clusters, keep_serving_ports};

/// The longest time that one proxy waits for others.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(15);

/// How long a server goes on serving a dropped port after all callers have ACKed its removal: their worker threads
/// apply that a moment after the ACK, and requests are on their way.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(2);

/// What each client waits for, and until when.
#[derive(Debug, Default)]
pub(super) struct RolloutOrder {
    waits: BTreeMap<ClientKey, BTreeMap<Wait, WaitTime>>,
    /// The inbound listeners of servers that still serve a dropped port.
    kept_listeners: BTreeMap<ClientKey, KeptListener>,
    /// The local clusters of servers that keep one whose application is gone: the compiled version, and the published
    /// one.
    kept_clusters: BTreeMap<ClientKey, BTreeMap<Arc<str>, (Version, Version)>>,
    dropped_ports: DroppedPorts,
}

/// A reason to wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// An endpoint must serve the port.
    Served(ServicePort),
    /// All callers must drop the port.
    Unused(ServicePort),
    /// The last requests for the port must arrive.
    InFlight(ServicePort),
    /// Callers must learn that the port has no application. (Their answers are not examined, since there may be
    /// thousands: the wait ends with its time.)
    BackendGone(ServicePort),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitTime {
    Until(Instant),
    Expired,
}

impl WaitTime {
    /// Whether the time ends now.
    fn ends(&self, now: Instant) -> bool {
        matches!(self, Self::Until(deadline) if *deadline <= now)
    }

    /// Whether the time ends now, or has ended.
    fn is_over(&self, now: Instant) -> bool {
        *self == Self::Expired || self.ends(now)
    }
}

/// The inputs by which a wait is decided.
#[derive(Clone, Copy)]
pub(super) struct RolloutContext<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) clients: &'a Clients,
    pub(super) hub: &'a Hub,
    pub(super) peers: &'a Peers,
    pub(super) examined: &'a ExaminedClusters,
    pub(super) now: Instant,
}

/// The clusters of callers that a pass has examined, by name, each with its port if a proxy is about to serve that. The
/// endpoints of one port may change for thousands of callers.
#[derive(Debug, Default)]
pub(super) struct ExaminedClusters(RefCell<HashMap<Arc<str>, Option<ServicePort>>>);

impl ExaminedClusters {
    /// The port of the cluster with this name in `clusters`, if a proxy is about to serve it.
    fn port_to_be_served(
        &self,
        name: Arc<str>,
        clusters: &ResourceMap,
        context: RolloutContext<'_>,
    ) -> Option<ServicePort> {
        if let Some(None) = self.0.borrow().get(&name) {
            return None;
        }
        let port = ResourceRole::called_port(clusters.get(&name)?)?;
        let is_pending = || is_about_to_be_served(port, context).then(|| port.clone());
        self.0.borrow_mut().entry(name).or_insert_with(is_pending).clone()
    }
}

impl RolloutOrder {
    /// The clients with a wait that may be over.
    pub(super) fn due(&self, context: RolloutContext<'_>) -> BTreeSet<ClientKey> {
        // Many clients wait for one port, which is examined once.
        let mut about_to_be_served: BTreeMap<&ServicePort, bool> = BTreeMap::new();
        let mut callers: BTreeMap<&ServicePort, (usize, bool)> = BTreeMap::new();
        let mut due = BTreeSet::new();
        for (client, waits) in &self.waits {
            for (wait, wait_time) in waits {
                let is_due = match wait {
                    Wait::Served(port) => {
                        wait_time.ends(context.now)
                            || !*about_to_be_served
                                .entry(port)
                                .or_insert_with(|| is_about_to_be_served(port, context))
                    }
                    Wait::Unused(port) => {
                        let callers_of = || {
                            let (hub, name) = (context.hub, port.to_string());
                            let here = hub.clients_that_may_have(ResourceType::Cluster, &name);
                            (here, may_be_called_by_peers(port, context))
                        };
                        wait_time.is_over(context.now)
                            || match *callers.entry(port).or_insert_with(callers_of) {
                                (0, false) => true,
                                // It may be the server itself.
                                (1, false) => !may_be_called_here(client, port, context),
                                _ => false,
                            }
                    }
                    Wait::InFlight(_) | Wait::BackendGone(_) => wait_time.ends(context.now),
                };
                if is_due {
                    due.insert(Arc::clone(client));
                    break;
                }
            }
        }
        due
    }

    /// The ports that policy has dropped and that proxies of this control plane may still call.
    pub(super) fn called_dropped_ports(
        &mut self,
        snapshot: &Snapshot,
        hub: &Hub,
    ) -> &BTreeSet<ServicePort> {
        self.dropped_ports.update(&snapshot.specification, hub)
    }

    /// When the next wait ends; none without a wait.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let until = |wait_time: &WaitTime| match wait_time {
            WaitTime::Until(deadline) => Some(*deadline),
            WaitTime::Expired => None,
        };
        self.waits.values().flat_map(BTreeMap::values).filter_map(until).min()
    }

    /// Whether a part of a client's set waits for other proxies.
    pub(super) fn is_held(&self, client: &str) -> bool {
        let mut times = self.waits.get(client).into_iter().flat_map(BTreeMap::values);
        times.any(|time| matches!(time, WaitTime::Until(_)))
    }

    /// Forgets a client that has disconnected.
    pub(super) fn forget(&mut self, client: &str) {
        self.waits.remove(client);
        self.kept_listeners.remove(client);
        self.kept_clusters.remove(client);
    }

    /// The published version of a resource that was compiled in this version. They differ for the inbound listener of
    /// a proxy that still serves a dropped port, and for a local cluster whose application is gone.
    pub(super) fn published_version(
        &self,
        client: &str,
        resource_type: ResourceType,
        name: &str,
        version: Version,
    ) -> Version {
        if resource_type == ResourceType::Cluster {
            let left = self.kept_clusters.get(client).and_then(|left| left.get(name));
            return left.filter(|(wanted, _)| *wanted == version).map_or(version, |(_, has)| *has);
        }
        let kept = self
            .kept_listeners
            .get(client)
            .filter(|kept| kept.is_for(resource_type, name, version));
        kept.map_or(version, KeptListener::version)
    }

    /// The resource set to publish to `client`: `wanted`, with parts of `before` while it waits.
    pub(super) fn hold_back(
        &mut self,
        client: &ClientKey,
        wanted: ResourceSet,
        before: &ResourceSet,
        context: RolloutContext<'_>,
    ) -> ResourceSet {
        let clusters = wanted.changed_since(before, ResourceType::Cluster);
        let served = ports_to_be_served(&wanted, before, &clusters, context);
        let served = served.into_iter().map(Wait::Served);
        let dropped = dropped_ports(&wanted, before, &clusters, context);
        let unused = dropped.into_iter().filter_map(|port| self.drop_wait(client, &port, context));
        let unused: Vec<_> = unused.collect();
        let left = ports_without_backend(client, &wanted, before, &clusters, context)
            .into_iter()
            .map(Wait::BackendGone);
        let waits: BTreeSet<_> = served.chain(unused).chain(left).collect();
        if let Some(waiting) = self.waits.get_mut(client) {
            waiting.retain(|wait, _| waits.contains(wait));
            if waiting.is_empty() {
                self.waits.remove(client);
            }
        }
        let (mut unserved, mut unused, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut set = wanted;
        for wait in waits {
            if !self.is_waiting(client, &wait, context.now) {
                continue;
            }
            match wait {
                Wait::Served(port) => unserved.push(port.to_string()),
                Wait::Unused(port) | Wait::InFlight(port) => unused.push(port),
                Wait::BackendGone(port) => left.push(port),
            }
        }
        self.kept_clusters.remove(client);
        if !left.is_empty() {
            self.kept_clusters
                .insert(Arc::clone(client), keep_local_clusters(&left, &mut set, before));
        }
        let kept = self.kept_listeners.remove(client);
        if !unused.is_empty()
            && let Some(kept) = keep_serving_ports(unused, &mut set, before, kept)
        {
            self.kept_listeners.insert(Arc::clone(client), kept);
        }
        if !unserved.is_empty() {
            keep_caller_resources(&unserved, &mut set, before);
        }
        set
    }

    /// What a server waits for before it drops a port: its callers, and then their last requests. A port without a
    /// caller is dropped at once; so is one whose callers did not drop it in time. The last requests are waited for once:
    /// what is known of peers changes with each revision of policy.
    fn drop_wait(
        &self,
        client: &ClientKey,
        port: &ServicePort,
        context: RolloutContext<'_>,
    ) -> Option<Wait> {
        let waits = self.waits.get(client);
        let in_flight = Wait::InFlight(port.clone());
        if waits.is_some_and(|waits| waits.contains_key(&in_flight)) {
            return Some(in_flight);
        }
        let unused = Wait::Unused(port.clone());
        if has_other_caller(client, port, context) {
            return Some(unused);
        }
        matches!(waits?.get(&unused), Some(WaitTime::Until(_))).then_some(in_flight)
    }

    fn is_waiting(&mut self, client: &ClientKey, wait: &Wait, now: Instant) -> bool {
        let waits = self.waits.entry(Arc::clone(client)).or_default();
        let time = if matches!(wait, Wait::InFlight(_)) { IN_FLIGHT } else { MAX_WAIT };
        let wait_time = waits.entry(wait.clone()).or_insert(WaitTime::Until(now + time));
        match *wait_time {
            WaitTime::Until(deadline) if now < deadline => true,
            WaitTime::Until(_) => {
                *wait_time = WaitTime::Expired;
                match wait {
                    Wait::Served(port) => {
                        tracing::warn!(%client, %port, "no proxy serves the port after 15 s; publishing it anyway");
                    }
                    Wait::Unused(port) => {
                        tracing::warn!(%client, %port, "a caller has not ACKed the removal of the port after 15 s; closing it anyway");
                    }
                    // The time itself was waited for: most callers have dropped it long ago.
                    Wait::InFlight(_) | Wait::BackendGone(_) => {}
                }
                false
            }
            WaitTime::Expired => false,
        }
    }
}

/// The ports that are new for a caller, or that lose all endpoints for it, while a proxy is about to serve them.
/// `changed` are the names of the changed clusters, also below.
fn ports_to_be_served(
    wanted: &ResourceSet,
    before: &ResourceSet,
    changed: &[Arc<str>],
    context: RolloutContext<'_>,
) -> BTreeSet<ServicePort> {
    let clusters = changed.iter().filter(|name| !before.contains(ResourceType::Cluster, name));
    let endpoints = wanted.changed_since(before, ResourceType::Endpoint).into_iter();
    let names = clusters.cloned().chain(endpoints);
    let clusters = wanted.of(ResourceType::Cluster);
    names.filter_map(|name| context.examined.port_to_be_served(name, clusters, context)).collect()
}

/// Whether a port has no endpoint yet, and a proxy is about to serve it.
fn is_about_to_be_served(port: &ServicePort, context: RolloutContext<'_>) -> bool {
    let endpoints = context.snapshot.endpoints.get(port);
    endpoints.is_none_or(|endpoints| endpoints.is_empty())
        && (context.clients.has_pending_server(port, context.snapshot)
            || is_about_to_be_served_at_peers(port, context))
}

/// Whether a proxy that is connected to a peer is about to serve a port. The join record shows when it does.
fn is_about_to_be_served_at_peers(port: &ServicePort, context: RolloutContext<'_>) -> bool {
    if !context.peers.is_any() {
        return false;
    }
    let served = context.snapshot.served_port(port);
    let key = (served.service, served.port);
    context.snapshot.proxies_of(&key.0).any(|record| {
        let is_pending = record.revoked.is_none() && !record.participation.0.contains(&key);
        is_pending && context.peers.is_connected(record.id)
    })
}

/// Whether a client other than a server may call a port, here or at a peer.
fn has_other_caller(server: &str, port: &ServicePort, context: RolloutContext<'_>) -> bool {
    may_be_called_here(server, port, context) || may_be_called_by_peers(port, context)
}

/// Whether a client of this control plane other than a server may call a port.
fn may_be_called_here(server: &str, port: &ServicePort, context: RolloutContext<'_>) -> bool {
    context.hub.other_client_may_have(ResourceType::Cluster, &port.to_string(), server)
}

/// Whether a proxy that is connected to a peer may call a port that policy has dropped.
fn may_be_called_by_peers(port: &ServicePort, context: RolloutContext<'_>) -> bool {
    context.peers.may_call(port, &context.snapshot.specification.revision)
}

/// The ports that a server stops serving because policy dropped them. (A port that only lost its callers is closed at
/// once.)
fn dropped_ports(
    wanted: &ResourceSet,
    before: &ResourceSet,
    changed: &[Arc<str>],
    context: RolloutContext<'_>,
) -> BTreeSet<ServicePort> {
    let is_gone = |name: &&Arc<str>| !wanted.contains(ResourceType::Cluster, name);
    let clusters = before.of(ResourceType::Cluster);
    let ports = changed
        .iter()
        .filter(is_gone)
        .filter_map(|name| ResourceRole::local_port(clusters.get(name)?).cloned());
    let is_dropped = |port: &ServicePort| {
        let service = context.snapshot.service(&port.service);
        service.is_none_or(|service| service.port(port.port).is_none())
    };
    ports.filter(is_dropped).collect()
}

/// The ports whose last application behind a server is gone, so that its local cluster changes.
fn ports_without_backend(
    client: &ClientKey,
    wanted: &ResourceSet,
    before: &ResourceSet,
    changed: &[Arc<str>],
    context: RolloutContext<'_>,
) -> BTreeSet<ServicePort> {
    let Ok(id) = client.parse::<ProxyId>() else { return BTreeSet::new() };
    let was_there = |name: &&Arc<str>| before.contains(ResourceType::Cluster, name);
    let clusters = wanted.of(ResourceType::Cluster);
    let ports = changed
        .iter()
        .filter(was_there)
        .filter_map(|name| ResourceRole::local_port(clusters.get(name)?).cloned());
    let local = &context.snapshot.local_endpoints;
    ports.filter(|port| !local.contains_key(&(id, port.clone()))).collect()
}
