//! The hub: the resource set of each client, and how far the client has ACKed it.
//!
//! One lock protects it, held only briefly. Callers of [`Hub::publish`] are the only writers of a
//! client's set; its streams are the only writers of its status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use foldhash::HashMap;
use ironmesh_xds_wire::{Node, ResourceSet, ResourceType, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::counters::Counters;
use crate::rejections::Rejections;
use crate::report::Report;
use crate::sotw::AckedState;

mod connection;
mod exchanges;
mod health_streams;
mod live;
mod places;
mod push_observer;
mod resource_index;
mod retries;
mod status;
mod sync;
mod transferred;

pub(crate) use connection::{Connection, Reconnect};
use exchanges::Exchanges;
pub use exchanges::{Exchange, Occurrences};
use health_streams::HealthStreams;
pub(crate) use health_streams::{HealthStream, HealthStreamEnd};
pub use live::LiveStream;
use places::Places;
pub(crate) use places::{Place, RETRY_DELAY, Refused};
pub use push_observer::{ObservedPush, PushObserver};
use resource_index::ResourceIndex;
use retries::Retries;
pub use status::{ClientChange, ClientStatus, Nack};
use transferred::Transferred;

/// The identity of a client. One client may have several streams, for example in a hot restart.
pub type ClientKey = Arc<str>;

/// All clients, with their resource sets and status.
#[derive(Debug)]
pub struct Hub {
    clients: Mutex<Clients>,
    /// Counts how often the list of [`Hub::take_changed`] became non-empty: connects, disconnects,
    /// ACKs, NACKs.
    changes: watch::Sender<u64>,
    /// Counts the calls of [`Hub::disconnect`].
    disconnections: watch::Sender<u64>,
    counters: Counters,
    rejections: Rejections,
    health_streams: HealthStreams,
    places: Places,
    push_observer: OnceLock<Arc<dyn PushObserver>>,
    /// The count of open streams.
    open_streams: AtomicUsize,
}

#[derive(Debug, Default)]
struct Clients {
    /// The number of the newest stream.
    last_stream: u64,
    /// (A client key is an id from a verified certificate: no client can choose colliding ones.)
    by_key: HashMap<ClientKey, Client>,
    /// The clients that have changed since [`Hub::take_changed`], each once.
    changed: Vec<ClientKey>,
    index: ResourceIndex,
    /// The NACKs of clients that are connected to a different server, for their next streams here.
    transferred: Transferred,
}

#[derive(Debug)]
struct Client {
    /// Whether it is among the changed clients.
    is_changed: bool,
    set: watch::Sender<Option<ResourceSet>>,
    status: ClientStatus,
    /// The state that its state-of-the-world streams last ACKed, for its next stream: by type, with
    /// the number of the stream.
    acked_states: BTreeMap<ResourceType, (u64, AckedState)>,
    /// The unanswered clusters of its newest aggregated stream, with the number of that stream.
    unanswered: (u64, BTreeSet<Arc<str>>),
    /// The approximate memory for the names on its streams.
    names: Arc<AtomicUsize>,
    exchanges: Arc<Exchanges>,
    /// Its open streams, by number.
    live: BTreeMap<u64, LiveStream>,
    /// The latest reason for which its streams were disconnected.
    disconnects: watch::Sender<Arc<str>>,
    /// The NACKed resources that its streams shall send again.
    retries: watch::Sender<Retries>,
}

impl Client {
    /// Adds the client of this key to the changed ones. Returns whether it is the first since
    /// [`Hub::take_changed`].
    fn mark_changed(&mut self, key: &ClientKey, changed: &mut Vec<ClientKey>) -> bool {
        let is_first = changed.is_empty();
        if !std::mem::replace(&mut self.is_changed, true) {
            changed.push(Arc::clone(key));
        }
        is_first
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            clients: Mutex::default(),
            changes: watch::Sender::new(0),
            disconnections: watch::Sender::new(0),
            counters: Counters::default(),
            rejections: Rejections::default(),
            health_streams: HealthStreams::default(),
            places: Places::default(),
            push_observer: OnceLock::new(),
            open_streams: AtomicUsize::new(0),
        }
    }
}

impl Hub {
    /// The counters of the engine.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The failed TLS handshakes.
    pub fn rejections(&self) -> &Rejections {
        &self.rejections
    }

    /// Publishes the resource set of a connected client. Ignores a client that is not connected.
    pub fn publish(&self, client: &str, set: ResourceSet) {
        let Clients { by_key, index, .. } = &mut *self.clients.lock();
        if let Some(client) = by_key.get_mut(client).filter(|c| c.status.streams > 0) {
            // A resource that leaves the set is not NACKed any more.
            client.status.nacks.retain(|(t, name), _| set.contains(*t, name));
            index.publish(client, set, &self.counters);
            self.counters.set();
        }
    }

    /// The set that was last published to a client.
    pub fn published(&self, client: &str) -> Option<ResourceSet> {
        let clients = self.clients.lock();
        clients.by_key.get(client).and_then(|client| client.set.borrow().clone())
    }

    /// The status of every client that has connected.
    pub fn status(&self) -> Vec<(ClientKey, ClientStatus)> {
        let clients = self.clients.lock();
        let status = clients.by_key.iter().map(|(key, c)| (Arc::clone(key), c.status.clone()));
        let mut status: Vec<_> = status.collect();
        status.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        status
    }

    /// The status of a client, if it ever connected.
    pub fn status_of(&self, client: &str) -> Option<ClientStatus> {
        self.clients.lock().by_key.get(client).map(|client| client.status.clone())
    }

    /// The number of open streams of all clients.
    pub fn open_streams(&self) -> usize {
        self.open_streams.load(Ordering::Relaxed)
    }

    /// The number of open streams of a client.
    pub fn streams(&self, client: &str) -> usize {
        self.clients.lock().by_key.get(client).map_or(0, |client| client.status.streams)
    }

    /// The number of fresh connects of a client ([`ClientStatus::process_starts`]).
    pub fn process_starts(&self, client: &str) -> u64 {
        self.clients.lock().by_key.get(client).map_or(0, |client| client.status.process_starts)
    }

    /// The node of the latest stream of a client, if it ever connected.
    pub fn node(&self, client: &str) -> Option<Arc<Node>> {
        self.clients.lock().by_key.get(client).map(|client| Arc::clone(&client.status.node))
    }

    /// The published set of a client with the sync status of each resource, if the client ever
    /// connected.
    pub fn report(&self, client: &str) -> Option<Report> {
        // Copies share their structure. The expensive part comes after the lock is released.
        let (status, set) = {
            let clients = self.clients.lock();
            let client = clients.by_key.get(client)?;
            (client.status.clone(), client.set.borrow().clone())
        };
        Some(Report::new(&status, &set.unwrap_or_default()))
    }

    /// The clients that have connected before and are not connected now.
    pub fn disconnected_clients(&self) -> Vec<ClientKey> {
        let clients = self.clients.lock();
        let away = clients.by_key.iter().filter(|(_, client)| client.status.streams == 0);
        away.map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Forgets a client that will not return: its node, NACKs and last ACKed state.
    ///
    /// Keeps a client that is connected, or that [`Hub::take_changed`] has yet to return.
    pub fn forget(&self, client: &str) {
        let mut clients = self.clients.lock();
        let known = clients.by_key.get(client);
        if known.is_some_and(|one| one.status.streams == 0 && !one.is_changed) {
            clients.by_key.remove(client);
        }
        clients.transferred.remove(client);
    }

    /// Whether a client is connected and has ACKed all of these.
    pub fn has_all<'a>(
        &self,
        client: &str,
        resources: impl IntoIterator<Item = (ResourceType, &'a str, Version)>,
    ) -> bool {
        let clients = self.clients.lock();
        clients.by_key.get(client).is_some_and(|client| {
            let mut resources = resources.into_iter();
            client.status.streams > 0 && resources.all(|(t, name, v)| client.status.has(t, name, v))
        })
    }

    /// The clients that have connected, disconnected, ACKed or NACKed since the last call, in their
    /// current state. There is one caller, the publisher, so each change is returned once.
    pub fn take_changed(&self) -> Vec<(ClientKey, ClientChange)> {
        let mut clients = self.clients.lock();
        clients.index.drop_unqueried();
        let changed = std::mem::take(&mut clients.changed);
        let change = |key: ClientKey| {
            let client = clients.by_key.get_mut(&key)?;
            client.is_changed = false;
            let status = &client.status;
            let change = ClientChange {
                streams: status.streams,
                node: Arc::clone(&status.node),
                process_starts: status.process_starts,
                nacks: status.nacks.clone(),
                has_set: client.set.borrow().is_some(),
                was_synced: status.was_synced,
            };
            Some((key, change))
        };
        changed.into_iter().filter_map(change).collect()
    }

    /// Ends all xDS streams of a client and their connections, and sends the client the reason.
    ///
    /// Call it after the [`Admission`](crate::Admission) has started to reject the client: then no
    /// stream is left, and none is opened. A stream of client status requests admission again, and
    /// ends with its connection if that is rejected. Health is available to any certificate of the
    /// mesh: a connection with nothing else ends after 30 seconds, as that of any client does.
    pub fn disconnect(&self, client: &str, reason: &str) {
        let clients = self.clients.lock();
        // Under the lock: a stream that connects later sees the new count.
        self.disconnections.send_modify(|count| *count += 1);
        self.end_health_streams(client, reason);
        if let Some(client) = clients.by_key.get(client) {
            client.disconnects.send_replace(reason.into());
        }
    }

    /// Blocks all access to the hub until the result is dropped.
    #[cfg(test)]
    pub(crate) fn lock(&self) -> impl Sized + '_ {
        self.clients.lock()
    }

    /// Changes when [`Hub::disconnect`] is called.
    pub(crate) fn disconnections(&self) -> watch::Receiver<u64> {
        self.disconnections.subscribe()
    }

    /// Changes when [`Hub::take_changed`] has something to return, and not again until it is
    /// called.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notifies the publisher of changes, unless earlier ones are still waiting.
    fn notify(&self, is_first: bool) {
        if is_first {
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn with(&self, client: &ClientKey, change: impl FnOnce(&mut Client, &mut ResourceIndex)) {
        let mut clients = self.clients.lock();
        let Clients { by_key, index, changed, .. } = &mut *clients;
        let Some(entry) = by_key.get_mut(client) else { return };
        change(entry, index);
        let is_first = entry.mark_changed(client, changed);
        drop(clients);
        self.notify(is_first);
    }
}

#[cfg(test)]
mod tests;
