//! The hub's side of each stream: what a stream reports of its client, and keeps for the client's next stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ironmesh_xds_wire::{Node, ResourceSet, ResourceType, Version};
use tokio::sync::watch;

use super::exchanges::Exchanges;
use super::retries::Retries;
use super::{Client, ClientKey, ClientStatus, Clients, Hub, LiveStream, Nack};
use crate::counters::Counters;
use crate::overlay::Overlay;
use crate::sotw::AckedState;
use crate::stream::{Acked, Nacked};

/// What the first request of a stream reveals about the client process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconnect {
    /// The process has just started and has nothing. Streams of an earlier process may still be
    /// counted: it may have been killed silently, or be draining in a hot restart.
    Fresh,
    /// The client has nothing of the only type of this stream. The process has just started, if it
    /// has no other stream.
    PerhapsFresh,
    /// The client has resources.
    Resumed,
    /// The client has clusters. Their names are known only after a comparison with its set.
    ResumedWithClusters,
}

impl Hub {
    /// Registers a new stream of `client`, unless the client has reached its limit.
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
        let Clients { by_key, index, changed, transferred, .. } = &mut *clients;
        let entry = by_key.entry(Arc::clone(&client)).or_insert_with(|| Client {
            is_changed: false,
            set: watch::Sender::new(None),
            status: ClientStatus::default(),
            acked_states: BTreeMap::new(),
            unanswered: Default::default(),
            names: Arc::default(),
            exchanges: Arc::default(),
            live: BTreeMap::new(),
            disconnects: watch::Sender::new(Arc::default()),
            retries: watch::Sender::default(),
        });
        let is_new_process = match reconnect {
            Reconnect::Fresh => true,
            Reconnect::PerhapsFresh => entry.status.streams == 0,
            Reconnect::Resumed | Reconnect::ResumedWithClusters => false,
        };
        let transferred = transferred.remove(&client).filter(|_| entry.status.streams == 0);
        if let Some(nacks) = transferred {
            entry.status.nacks = nacks;
        }
        if is_new_process {
            entry.status.process_starts += 1;
            entry.status.nacks.clear();
            entry.acked_states.clear();
        }
        if reconnect == Reconnect::ResumedWithClusters {
            index.change(entry, &self.counters, |entry| {
                entry.status.unreported_clusters = Some(stream);
            });
        }
        entry.status.streams += 1;
        self.open_streams.fetch_add(1, Ordering::Relaxed);
        entry.live.insert(stream, live);
        entry.update_sync(None);
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
        let exchanges = Arc::clone(&entry.exchanges);
        let is_first = entry.mark_changed(&client, changed);
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
            exchanges,
            disconnects,
            retries,
        })
    }
}

/// The hub's side of one stream. The client is connected while one of these exists.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) hub: Arc<Hub>,
    /// Newer streams have higher numbers.
    pub(super) stream: u64,
    pub(crate) client: ClientKey,
    pub(crate) sets: watch::Receiver<Option<ResourceSet>>,
    /// The versions that the client NACKed on earlier streams.
    pub(crate) nacked: BTreeMap<(ResourceType, Arc<str>), Version>,
    /// Whether the client's clusters still have to be reported to the hub.
    unreported_clusters: bool,
    /// The states that earlier streams last ACKed.
    pub(crate) acked_states: BTreeMap<ResourceType, AckedState>,
    /// This stream's share of the memory for names on all streams of the client.
    pub(crate) names: SizeShare,
    pub(super) exchanges: Arc<Exchanges>,
    /// Changes to the reason when the stream must end.
    pub(crate) disconnects: watch::Receiver<Arc<str>>,
    /// Changes to the NACKed resources that must be sent again.
    pub(crate) retries: watch::Receiver<Retries>,
}

/// A share of a sum, removed on drop.
#[derive(Debug)]
pub(crate) struct SizeShare {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl SizeShare {
    /// Sets the share, and returns the sum.
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
        self.hub.with(&self.client, |client, index| {
            // An ACKed version clears its NACK. An older version that the client has kept says
            // nothing about the one that it NACKed. Nor does the ACK of its absence: a client that
            // requests a NACKed resource can be sent nothing else.
            client.status.nacks.retain(|(resource_type, name), nack| {
                let is_acked = acked
                    .get(name)
                    .is_some_and(|version| ack.names.contains(name) || version == nack.version);
                *resource_type != ack.resource_type || !is_acked
            });
            index.ack(client, (self.stream, ack.resource_type), acked, self.counters());
            client.update_sync(Some(ack.resource_type));
        });
    }

    /// Records that the client's initial versions were compared with its set: the hub now knows its
    /// clusters.
    pub(crate) fn initial_versions_compared(&mut self) {
        if std::mem::take(&mut self.unreported_clusters) {
            self.hub.with(&self.client, |client, index| {
                index.change(client, self.counters(), |client| {
                    client.status.clusters_reported(self.stream);
                });
            });
        }
    }

    /// Keeps the last ACKed state for the client's next stream. The state of a newer stream has
    /// priority: the next stream belongs to the same process as that one.
    pub(crate) fn keep_acked_state(&self, resource_type: ResourceType, state: AckedState) {
        let mut clients = self.hub.clients.lock();
        let Some(client) = clients.by_key.get_mut(&self.client) else { return };
        if client.acked_states.get(&resource_type).is_none_or(|(by, _)| *by <= self.stream) {
            client.acked_states.insert(resource_type, (self.stream, state));
        }
    }

    /// Takes the unanswered clusters of the client's previous aggregated stream. The client may
    /// report that it has them and their endpoints, and still wait for the endpoints.
    pub(crate) fn take_unanswered(&self) -> BTreeSet<Arc<str>> {
        let mut clients = self.hub.clients.lock();
        let client = clients.by_key.get_mut(&self.client);
        let unanswered = client.map(|client| {
            std::mem::replace(&mut client.unanswered, (self.stream, BTreeSet::new())).1
        });
        unanswered.unwrap_or_default()
    }

    /// Keeps the unanswered clusters for the client's next stream: this stream may end silently,
    /// and be noticed only after that one has opened.
    pub(crate) fn keep_unanswered(&self, unanswered: BTreeSet<Arc<str>>) {
        let mut clients = self.hub.clients.lock();
        let client = clients.by_key.get_mut(&self.client);
        if let Some(client) = client.filter(|client| client.unanswered.0 == self.stream) {
            client.unanswered.1 = unanswered;
        }
    }

    /// Records a NACK. Returns whether it is final and new: the client was not known to NACK this
    /// version.
    pub(crate) fn nacked(&self, nacked: &Nacked) -> bool {
        let mut is_new = false;
        if nacked.is_final {
            self.hub.with(&self.client, |client, _| {
                // In a hot restart the newest process decides (docs/decisions/0013).
                let is_aggregated =
                    client.live.get(&self.stream).is_some_and(|stream| stream.is_aggregated);
                if is_aggregated && client.newest_aggregated() > Some(self.stream) {
                    return;
                }
                let set = client.set.borrow();
                for (name, version) in &nacked.resources {
                    // As in `Hub::publish`: a resource that has left the set is not NACKed any more.
                    if set.as_ref().is_some_and(|set| !set.contains(nacked.resource_type, name)) {
                        continue;
                    }
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
        // Before anyone can see that the stream is gone.
        self.names.set(0);
        self.observe_end();
        self.hub.with(&self.client, |client, index| {
            client.status.was_synced = client.status.is_synced();
            client.status.streams = client.status.streams.saturating_sub(1);
            self.hub.open_streams.fetch_sub(1, Ordering::Relaxed);
            client.live.remove(&self.stream);
            index.change(client, self.counters(), |client| {
                client.status.acked.retain(|(stream, _), _| *stream != self.stream);
                client.status.clusters_reported(self.stream);
                if client.status.streams == 0 {
                    // No stream is left to send it to; a returning client gets a newly compiled set.
                    client.set.send_replace(None);
                }
            });
            client.update_sync(None);
        });
    }
}
