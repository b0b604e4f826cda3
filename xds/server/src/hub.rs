//! The hub: what each client is to have, and how far it has come.
//!
//! One lock, held for moments only. What a client is to have has one writer, whoever calls
//! [`Hub::publish`]; how far it has come is written by its stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ironmesh_xds_wire::{Node, ResourceSet, ResourceType, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::counters::Counters;
use crate::overlay::Overlay;
use crate::rejections::Rejections;
use crate::report::Report;
use crate::sotw::AckedState;
use crate::stream::{Acked, Nacked};

mod live;
mod retries;
mod status;

pub use live::LiveStream;
use retries::Retries;
pub use status::{ClientChange, ClientStatus, Nack};

/// What a client is known by. One client may have several streams, as in a hot restart.
pub type ClientKey = Arc<str>;

/// All clients.
#[derive(Debug)]
pub struct Hub {
    clients: Mutex<Clients>,
    /// Counts how often something began to wait for [`Hub::take_changed`]: connects, disconnects, answers.
    changes: watch::Sender<u64>,
    /// Counts the calls of [`Hub::disconnect`].
    disconnections: watch::Sender<u64>,
    counters: Counters,
    rejections: Rejections,
}

#[derive(Debug, Default)]
struct Clients {
    /// The number of the newest stream.
    last_stream: u64,
    by_key: BTreeMap<ClientKey, Client>,
    /// Those to whom something has happened since [`Hub::take_changed`].
    changed: BTreeSet<ClientKey>,
}

impl Clients {
    /// Takes note that something has happened to a client. Says whether it is the first since
    /// [`Hub::take_changed`].
    fn mark_changed(&mut self, client: &ClientKey) -> bool {
        let is_first = self.changed.is_empty();
        if !self.changed.contains(client) {
            self.changed.insert(Arc::clone(client));
        }
        is_first
    }
}

#[derive(Debug)]
struct Client {
    set: watch::Sender<Option<ResourceSet>>,
    status: ClientStatus,
    /// What its state-of-the-world streams left in force, for the next one; by type, with the number of
    /// the stream.
    acked_states: BTreeMap<ResourceType, (u64, AckedState)>,
    /// Clusters that were pushed on its newest aggregated stream, whose number that is, and not answered.
    unanswered: (u64, BTreeSet<Arc<str>>),
    /// What the names on its streams take in memory, about.
    names: Arc<AtomicUsize>,
    /// The streams that it has, by number.
    live: BTreeMap<u64, LiveStream>,
    /// Why its streams that are there were cut last.
    disconnects: watch::Sender<Arc<str>>,
    /// The NACKed resources that its streams are to send again.
    retries: watch::Sender<Retries>,
}

impl Client {
    /// Whether it is connected and was last published this version of this resource.
    fn is_published(&self, resource_type: ResourceType, name: &str, version: Version) -> bool {
        let set = self.set.borrow();
        let resource = set.as_ref().and_then(|set| set.of(resource_type).get(name));
        self.status.streams > 0 && resource.is_some_and(|resource| resource.version() == version)
    }
}

/// What the first request of a stream says of the client behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconnect {
    /// It has nothing: a process that has just begun, even where streams of one before are still counted.
    /// That one may have been killed without a word, or be on its way out in a hot restart.
    Fresh,
    /// It has nothing of the one type that this stream is about: a process that has just begun, if it has
    /// no other stream.
    PerhapsFresh,
    /// It has something.
    Resumed,
    /// It has clusters. Which ones is known only when that is compared with what it is to have.
    ResumedWithClusters,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            clients: Mutex::default(),
            changes: watch::Sender::new(0),
            disconnections: watch::Sender::new(0),
            counters: Counters::default(),
            rejections: Rejections::default(),
        }
    }
}

impl Hub {
    /// What the engine has done.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The TLS handshakes that failed.
    pub fn rejections(&self) -> &Rejections {
        &self.rejections
    }

    /// Sets what a connected client is to have. A client that is not connected is passed over.
    pub fn publish(&self, client: &str, set: ResourceSet) {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.by_key.get_mut(client).filter(|c| c.status.streams > 0) {
            // What it is to have no more it does not refuse.
            client.status.nacks.retain(|(t, name), _| set.contains(*t, name));
            client.set.send_replace(Some(set));
            self.counters.set();
        }
    }

    /// What a client is to have, as it was last published.
    pub fn published(&self, client: &str) -> Option<ResourceSet> {
        let clients = self.clients.lock();
        clients.by_key.get(client).and_then(|client| client.set.borrow().clone())
    }

    /// The clients that have connected, and how far they have come.
    pub fn status(&self) -> Vec<(ClientKey, ClientStatus)> {
        let clients = self.clients.lock();
        clients.by_key.iter().map(|(key, c)| (Arc::clone(key), c.status.clone())).collect()
    }

    /// How far a client has come, if it ever connected.
    pub fn status_of(&self, client: &str) -> Option<ClientStatus> {
        self.clients.lock().by_key.get(client).map(|client| client.status.clone())
    }

    /// How many streams a client has open.
    pub fn streams(&self, client: &str) -> usize {
        self.clients.lock().by_key.get(client).map_or(0, |client| client.status.streams)
    }

    /// What a client is to have and how it stands with each resource, if it ever connected.
    pub fn report(&self, client: &str) -> Option<Report> {
        // Copies share their structure: what takes time comes when nobody waits for the lock.
        let (status, set) = {
            let clients = self.clients.lock();
            let client = clients.by_key.get(client)?;
            (client.status.clone(), client.set.borrow().clone())
        };
        Some(Report::new(&status, &set.unwrap_or_default()))
    }

    /// The clients that have connected once and are not connected now.
    pub fn disconnected_clients(&self) -> Vec<ClientKey> {
        let clients = self.clients.lock();
        let away = clients.by_key.iter().filter(|(_, client)| client.status.streams == 0);
        away.map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Forgets a client that will not come back: what it said of itself, refused and left in force.
    /// Not one that is connected, or of which [`Hub::take_changed`] has something to tell yet.
    pub fn forget(&self, client: &str) {
        let mut clients = self.clients.lock();
        let Clients { by_key, changed, .. } = &mut *clients;
        if by_key.get(client).is_some_and(|one| one.status.streams == 0)
            && !changed.contains(client)
        {
            by_key.remove(client);
        }
    }

    /// Whether any client has taken this version of this resource.
    pub fn any_client_has(
        &self,
        resource_type: ResourceType,
        name: &str,
        version: Version,
    ) -> bool {
        let clients = self.clients.lock();
        clients.by_key.values().any(|client| client.status.has(resource_type, name, version))
    }

    /// Whether any client but one has taken a resource of this name, in whatever version, and has not
    /// let it go.
    pub fn other_client_may_have(
        &self,
        resource_type: ResourceType,
        name: &str,
        except: &str,
    ) -> bool {
        let clients = self.clients.lock();
        let mut others = clients.by_key.iter().filter(|(key, _)| ***key != *except);
        others.any(|(_, client)| client.status.may_have(resource_type, name))
    }

    /// Whether a client is connected and was last published this version of this resource.
    pub fn is_published(
        &self,
        client: &str,
        resource_type: ResourceType,
        name: &str,
        version: Version,
    ) -> bool {
        let clients = self.clients.lock();
        let client = clients.by_key.get(client);
        client.is_some_and(|client| client.is_published(resource_type, name, version))
    }

    /// A connected client that was last published this version of this resource, among those that
    /// `is_candidate` selects.
    pub fn find_published(
        &self,
        resource_type: ResourceType,
        name: &str,
        version: Version,
        is_candidate: impl Fn(&ClientKey) -> bool,
    ) -> Option<ClientKey> {
        let clients = self.clients.lock();
        let mut wanted = clients.by_key.iter().filter(|(key, _)| is_candidate(key));
        let found = wanted.find(|(_, one)| one.is_published(resource_type, name, version));
        found.map(|(key, _)| Arc::clone(key))
    }

    /// Whether a client is connected, and has taken all of these.
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

    /// The clients that have connected, disconnected or answered since the last call, as they are
    /// now. For whoever keeps them supplied: there is one such, so each change is taken once.
    pub fn take_changed(&self) -> Vec<(ClientKey, ClientChange)> {
        let mut clients = self.clients.lock();
        let changed = std::mem::take(&mut clients.changed);
        let change = |key: ClientKey| {
            let client = clients.by_key.get(&key)?;
            let status = &client.status;
            let change = ClientChange {
                streams: status.streams,
                node: Arc::clone(&status.node),
                process_starts: status.process_starts,
                nacks: status.nacks.clone(),
                has_set: client.set.borrow().is_some(),
            };
            Some((key, change))
        };
        changed.into_iter().filter_map(change).collect()
    }

    /// Ends all xDS streams of a client, and their connections; the client is told the reason. To be called
    /// after the [`Admission`](crate::Admission) has come to refuse it: then none is left, and none comes.
    /// A stream of client status asks for admission again, and ends with its connection where it is refused.
    /// Health is told to whoever has a certificate of the mesh: a connection that has nothing else ends, as
    /// one of any other client does, when it has been without other streams for 30 seconds.
    pub fn disconnect(&self, client: &str, reason: &str) {
        let clients = self.clients.lock();
        // (While the lock is held: who connects after this sees it.)
        self.disconnections.send_modify(|count| *count += 1);
        if let Some(client) = clients.by_key.get(client) {
            client.disconnects.send_replace(reason.into());
        }
    }

    /// Lets nobody else look, for as long as what is returned is there.
    #[cfg(test)]
    pub(crate) fn lock(&self) -> impl Sized + '_ {
        self.clients.lock()
    }

    /// Tells when [`Hub::disconnect`] is called.
    pub(crate) fn disconnections(&self) -> watch::Receiver<u64> {
        self.disconnections.subscribe()
    }

    /// Tells when [`Hub::take_changed`] has something to take, and not again before it is taken.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A stream of `client` begins, unless it has as many as it may have.
    pub(crate) fn connect(
        self: &Arc<Self>,
        client: ClientKey,
        node: Node,
        reconnect: Reconnect,
        max_streams: usize,
        live: LiveStream,
    ) -> Result<Connection, ClientKey> {
        let mut clients = self.clients.lock();
        if clients.by_key.get(&client).is_some_and(|known| known.status.streams >= max_streams) {
            return Err(client);
        }
        clients.last_stream += 1;
        let stream = clients.last_stream;
        let is_first = clients.mark_changed(&client);
        let entry = clients.by_key.entry(Arc::clone(&client)).or_insert_with(|| Client {
            set: watch::Sender::new(None),
            status: ClientStatus::default(),
            acked_states: BTreeMap::new(),
            unanswered: Default::default(),
            names: Arc::default(),
            live: BTreeMap::new(),
            disconnects: watch::Sender::new(Arc::default()),
            retries: watch::Sender::default(),
        });
        let is_new_process = match reconnect {
            Reconnect::Fresh => true,
            Reconnect::PerhapsFresh => entry.status.streams == 0,
            Reconnect::Resumed | Reconnect::ResumedWithClusters => false,
        };
        if is_new_process {
            entry.status.process_starts += 1;
            entry.status.nacks.clear();
            entry.acked_states.clear();
        }
        if reconnect == Reconnect::ResumedWithClusters {
            entry.status.unreported_clusters = Some(stream);
        }
        entry.status.streams += 1;
        entry.live.insert(stream, live);
        if *entry.status.node != node {
            entry.status.node = Arc::new(node);
        }
        let sets = entry.set.subscribe();
        let nacks = &entry.status.nacks;
        let nacked = nacks.iter().map(|(key, nack)| (key.clone(), nack.version)).collect();
        let acked_states = entry.acked_states.iter();
        let acked_states =
            acked_states.map(|(of, (_, acked_states))| (*of, acked_states.clone())).collect();
        if is_new_process {
            entry.unanswered.1.clear();
        }
        let (disconnects, retries) = (entry.disconnects.subscribe(), entry.retries.subscribe());
        let names = SizeShare { all: Arc::clone(&entry.names), own: 0 };
        drop(clients);
        self.notify(is_first);
        let hub = Arc::clone(self);
        Ok(Connection {
            hub,
            stream,
            client,
            sets,
            nacked,
            unreported_clusters: reconnect == Reconnect::ResumedWithClusters,
            acked_states,
            names,
            disconnects,
            retries,
        })
    }

    /// Tells that there is something to take; if it `is_first`: otherwise it was told before, and nothing
    /// has been taken since.
    fn notify(&self, is_first: bool) {
        if is_first {
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn with(&self, client: &ClientKey, change: impl FnOnce(&mut Client)) {
        let mut clients = self.clients.lock();
        let Some(entry) = clients.by_key.get_mut(client) else { return };
        change(entry);
        let is_first = clients.mark_changed(client);
        drop(clients);
        self.notify(is_first);
    }
}

/// The hub's side of one stream. The client is connected for as long as one of these is there.
#[derive(Debug)]
pub(crate) struct Connection {
    hub: Arc<Hub>,
    /// Newer streams have higher numbers.
    stream: u64,
    pub(crate) client: ClientKey,
    pub(crate) sets: watch::Receiver<Option<ResourceSet>>,
    /// What the client refused on earlier streams.
    pub(crate) nacked: BTreeMap<(ResourceType, Arc<str>), Version>,
    /// Whether it is still to be told which clusters it has.
    unreported_clusters: bool,
    /// What they left in force.
    pub(crate) acked_states: BTreeMap<ResourceType, AckedState>,
    /// What the names on this stream take, of what those on all streams of the client do.
    pub(crate) names: SizeShare,
    /// Changes when the stream is to be cut, to the reason.
    pub(crate) disconnects: watch::Receiver<Arc<str>>,
    /// Changes when NACKed resources are to be sent again, to these.
    pub(crate) retries: watch::Receiver<Retries>,
}

/// A share of a sum, for as long as it is there.
#[derive(Debug)]
pub(crate) struct SizeShare {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl SizeShare {
    /// Sets it, and returns the sum.
    pub(crate) fn set(&mut self, own: usize) -> usize {
        let old = std::mem::replace(&mut self.own, own);
        if own >= old {
            self.all.fetch_add(own - old, Ordering::Relaxed) + (own - old)
        } else {
            self.all.fetch_sub(old - own, Ordering::Relaxed) - (old - own)
        }
    }
}

impl Drop for SizeShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Connection {
    pub(crate) fn counters(&self) -> &Counters {
        &self.hub.counters
    }

    pub(crate) fn acked(&self, ack: &Acked, acked: Overlay<Version>) {
        self.hub.with(&self.client, |client| {
            // What is taken now is refused no longer. (An older version that the client has kept
            // says nothing about the one that it refuses. Nor does the news that it has none: to one
            // who asks for what it refuses nothing else can be told.)
            client.status.nacks.retain(|(resource_type, name), nack| {
                let is_acked = acked
                    .get(name)
                    .is_some_and(|version| ack.names.contains(name) || version == nack.version);
                *resource_type != ack.resource_type || !is_acked
            });
            client.status.acked.insert((self.stream, ack.resource_type), acked);
        });
    }

    /// What the client brought along was compared with what it is to have: what is known of its clusters
    /// is told by now.
    pub(crate) fn initial_versions_compared(&mut self) {
        if std::mem::take(&mut self.unreported_clusters) {
            self.hub.with(&self.client, |client| client.status.clusters_reported(self.stream));
        }
    }

    /// Keeps what the client has in force, for its next stream. What a newer stream has kept stays: the
    /// next one is of the process behind that.
    pub(crate) fn keep_acked_state(&self, resource_type: ResourceType, state: AckedState) {
        let mut clients = self.hub.clients.lock();
        let Some(client) = clients.by_key.get_mut(&self.client) else { return };
        if client.acked_states.get(&resource_type).is_none_or(|(by, _)| *by <= self.stream) {
            client.acked_states.insert(resource_type, (self.stream, state));
        }
    }

    /// Clusters that were pushed on the client's aggregated stream before this one, and not answered. It may
    /// say now that it has them and their endpoints, and still wait for these.
    pub(crate) fn take_unanswered(&self) -> BTreeSet<Arc<str>> {
        let mut clients = self.hub.clients.lock();
        let client = clients.by_key.get_mut(&self.client);
        let unanswered = client.map(|client| {
            std::mem::replace(&mut client.unanswered, (self.stream, BTreeSet::new())).1
        });
        unanswered.unwrap_or_default()
    }

    /// Keeps which clusters are not answered, for the client's next stream: this one may end without a
    /// word, and be missed only when that is there.
    pub(crate) fn keep_unanswered(&self, unanswered: BTreeSet<Arc<str>>) {
        let mut clients = self.hub.clients.lock();
        let client = clients.by_key.get_mut(&self.client);
        if let Some(client) = client.filter(|client| client.unanswered.0 == self.stream) {
            client.unanswered.1 = unanswered;
        }
    }

    /// The client refused a push. Says whether that is final and new: something is refused that the client
    /// was not known to refuse in the same version.
    pub(crate) fn nacked(&self, nacked: &Nacked) -> bool {
        let mut is_new = false;
        if nacked.is_final {
            self.hub.with(&self.client, |client| {
                for (name, version) in &nacked.resources {
                    let key = (nacked.resource_type, Arc::clone(name));
                    let message = nacked.error.message.clone();
                    let is_certain = nacked.resources.len() == 1;
                    let keeps_earlier = nacked.keeps_earlier;
                    let nack = Nack { version: *version, message, is_certain, keeps_earlier };
                    let before = client.status.nacks.insert(key, nack);
                    is_new |= before.is_none_or(|before| before.version != *version);
                }
            });
        }
        is_new
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Before anybody can see that the stream has gone.
        self.names.set(0);
        self.hub.with(&self.client, |client| {
            client.status.streams = client.status.streams.saturating_sub(1);
            client.live.remove(&self.stream);
            client.status.acked.retain(|(stream, _), _| *stream != self.stream);
            client.status.clusters_reported(self.stream);
            if client.status.streams == 0 {
                // Nobody is there to send it to; when the client is back it is compiled anew.
                client.set.send_replace(None);
            }
        });
    }
}

#[cfg(test)]
mod tests;
