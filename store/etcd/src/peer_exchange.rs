//! Publishes what this control plane tells the others of itself, and follows what they publish.
//!
//! It is soft state: it ends with the lease of its control plane, is written at most once a second, and nothing waits for
//! it. The task owns its lease and its session; it never reads or writes a record of the mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_etcd::{Cluster, EtcdOptions, EventWatch, Session, SessionError, WatchNews, Write};
use ironmesh_store::RecordVersion;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use uuid::Uuid;

use crate::batch::{MAX_BYTES, MAX_CHANGES};
use crate::layout::Layout;
use crate::peer_chunks::{PeerChunks, PeerStates, SIGN_OF_LIFE};
use crate::shared::Shared;
use crate::store::EtcdStore;
use crate::worker::PAGE;

/// The time of the lease in seconds: so long after its end, a control plane is gone for the others.
const LEASE_TTL_SECONDS: i64 = 15;

/// The interval of writes.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);

/// The interval of signs of life, with which the lease is renewed.
const RENEW_INTERVAL: Duration = Duration::from_secs(4);

/// How long the watch may not report the control plane's own signs of life.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// The pause after a failed session.
const PAUSE: Duration = Duration::from_secs(1);

/// The most bytes of a chunk.
pub const MAX_CHUNK: usize = MAX_BYTES / 2;

/// The exchange of soft state among the control planes of a mesh.
pub struct PeerExchange {
    id: Uuid,
    shared: Arc<Shared>,
    layout: Layout,
    options: EtcdOptions,
    own: Mutex<OwnChunks>,
    peers: watch::Sender<Arc<PeerStates>>,
    /// Since when and why nothing is exchanged.
    failure: Mutex<Option<(Timestamp, String)>>,
}

#[derive(Debug, Default)]
struct OwnChunks {
    chunks: BTreeMap<String, Arc<[u8]>>,
    /// The chunks that were changed or removed since they were published.
    unpublished: BTreeSet<String>,
}

/// The lease of a session, and the versions under it.
struct Publication {
    lease: i64,
    version: u64,
    renewed_at: Instant,
}

impl EtcdStore {
    /// The exchange of this control plane, which is a new one for the others. `options` are those of the store.
    pub fn peer_exchange(&self, options: EtcdOptions) -> Arc<PeerExchange> {
        let layout = self.shared.view.lock().mirror.layout().clone();
        let (own, peers) = Default::default();
        let (id, shared) = (Uuid::new_v4(), Arc::clone(&self.shared));
        let failure = Mutex::new(Some((Timestamp::now(), "it has just begun".to_owned())));
        Arc::new(PeerExchange { id, shared, layout, options, own, peers, failure })
    }
}

impl PeerExchange {
    /// Replaces a chunk of this control plane, or removes it. It is published within about a second. Returns
    /// false for a chunk of more than [`MAX_CHUNK`] bytes, which is not published.
    pub fn set(&self, chunk: &str, content: Option<Vec<u8>>) -> bool {
        let mut own = self.own.lock();
        let fits = content.as_ref().is_none_or(|content| content.len() <= MAX_CHUNK);
        match content {
            Some(content) => own.chunks.insert(chunk.to_owned(), content.into()),
            None => own.chunks.remove(chunk),
        };
        own.unpublished.insert(chunk.to_owned());
        fits
    }

    /// Since when and why nothing is exchanged; none if what peers publish is current.
    pub fn failure(&self) -> Option<(Timestamp, String)> {
        self.failure.lock().clone()
    }

    /// What the other control planes publish. While etcd cannot be used, it is what they published last.
    pub fn peers(&self) -> watch::Receiver<Arc<PeerStates>> {
        self.peers.subscribe()
    }

    /// Publishes and follows. It never ends by itself; dropping the future leaves the chunks to their lease.
    pub async fn run(&self) {
        let mut publication = None;
        let mut received = PeerChunks::new(self.id);
        let (mut endpoint, mut ended) = (0, Instant::now());
        loop {
            // Its files are read again for each session.
            let problem = match Cluster::open(self.options.clone()) {
                Ok(mut cluster) => {
                    (0..endpoint).for_each(|_| cluster.rotate());
                    match cluster.session().await {
                        Ok(mut session) => {
                            received.resume(ended, Instant::now());
                            let end =
                                self.exchange(&mut session, &mut publication, &mut received).await;
                            ended = Instant::now();
                            cluster.error(end).to_string()
                        }
                        Err(error) => error.to_string(),
                    }
                }
                Err(error) => error.to_string(),
            };
            self.note_failure(&problem);
            endpoint = (endpoint + 1) % self.options.endpoints.len().max(1);
            sleep(PAUSE).await;
        }
    }

    fn note_failure(&self, problem: &str) {
        let mut failure = self.failure.lock();
        let (_, last) = failure.get_or_insert_with(|| (Timestamp::now(), String::new()));
        problem.clone_into(last);
    }

    /// Ends the lease, so that the others need not wait for its end.
    pub async fn withdraw(&self) {
        let Ok(cluster) = Cluster::open(self.options.clone()) else { return };
        let Ok(mut session) = cluster.session().await else { return };
        let prefix = self.layout.peer_key(self.id, "");
        // Otherwise the lease ends by itself.
        let _ = session.remove(&prefix, &prefix).await;
    }

    /// Exchanges until the session fails, and returns why.
    async fn exchange(
        &self,
        session: &mut Session,
        publication: &mut Option<Publication>,
        received: &mut PeerChunks,
    ) -> SessionError {
        match self.try_exchange(session, publication, received).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn try_exchange(
        &self,
        session: &mut Session,
        publication: &mut Option<Publication>,
        received: &mut PeerChunks,
    ) -> Result<Infallible, SessionError> {
        let prefix = self.layout.peers().to_owned();
        let (stored, revision) = session.list_in_pages(&prefix, PAGE).await?;
        received.retain(&self.layout, &stored.iter().map(|one| one.key.as_str()).collect());
        for one in &stored {
            let value = (one.key.as_str(), Some(one.value.as_slice()));
            received.receive(&self.shared.cipher, &self.layout, value, Instant::now());
        }
        let mut watch = session.watch_prefix(&prefix, revision + 1).await?;
        let own_sign = self.layout.peer_key(self.id, SIGN_OF_LIFE);
        let mut seen_at = Instant::now();
        let mut ticks = interval(PUBLISH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.show(received);
            tokio::select! {
                news = next(&mut watch) => {
                    for event in news? {
                        if event.key == own_sign {
                            // The watch reports what is written, and all that was written before.
                            seen_at = Instant::now();
                            *self.failure.lock() = None;
                        }
                        let value = (event.key.as_str(), event.value.as_deref());
                        received.receive(&self.shared.cipher, &self.layout, value, Instant::now());
                    }
                }
                _ = ticks.tick() => {
                    self.publish(session, publication).await?;
                    received.forget(Instant::now());
                    if seen_at.elapsed() > LONGEST_SILENCE {
                        let problem = "the watch reports nothing any more";
                        return Err(SessionError::Unavailable(problem.to_owned()));
                    }
                }
            }
        }
    }

    fn show(&self, received: &PeerChunks) {
        let current = received.current(Instant::now());
        self.peers.send_if_modified(|shown| {
            let is_new = **shown != current;
            if is_new {
                *shown = Arc::new(current);
            }
            is_new
        });
    }

    /// Renews the lease, and writes what has changed.
    async fn publish(
        &self,
        session: &mut Session,
        publication: &mut Option<Publication>,
    ) -> Result<(), SessionError> {
        let now = Instant::now();
        let mut is_due = true;
        if let Some(current) = publication {
            is_due = now >= current.renewed_at + RENEW_INTERVAL;
            if is_due && session.keep_alive(current.lease).await.is_err() {
                // It has ended, with all chunks; or etcd cannot be used, and the new one fails, too.
                let lease = session.grant(LEASE_TTL_SECONDS).await?;
                current.lease = lease;
                let mut own = self.own.lock();
                own.unpublished = own.chunks.keys().cloned().collect();
            }
        } else {
            let lease = session.grant(LEASE_TTL_SECONDS).await?;
            *publication = Some(Publication { lease, version: 0, renewed_at: now });
            let mut own = self.own.lock();
            own.unpublished = own.chunks.keys().cloned().collect();
        }
        let Some(current) = publication else { return Ok(()) };
        let mut unpublished: Vec<_> = {
            let own = self.own.lock();
            let content = |name: &String| (name.clone(), own.chunks.get(name).cloned());
            own.unpublished.iter().map(content).collect()
        };
        if is_due {
            unpublished.push((SIGN_OF_LIFE.to_owned(), Some(Arc::from(&b"1"[..]))));
        }
        current.version += 1;
        let mut writes = Vec::new();
        let mut bytes = 0;
        for (name, content) in &unpublished {
            let key = self.layout.peer_key(self.id, name);
            let version = RecordVersion(current.version);
            let fits = |content: &&Arc<[u8]>| content.len() <= MAX_CHUNK;
            let sealed = content
                .as_ref()
                .filter(fits)
                .and_then(|content| self.shared.cipher.seal(&key, version, content).ok());
            let size = sealed.as_ref().map_or(0, Vec::len);
            if writes.len() >= MAX_CHANGES || bytes + size > MAX_BYTES {
                session.transact(Vec::new(), std::mem::take(&mut writes)).await?;
                bytes = 0;
            }
            bytes += size;
            writes.push(match sealed {
                Some(value) => Write::Put { key, value, lease: Some(current.lease) },
                None => Write::Delete { key },
            });
        }
        if !writes.is_empty() {
            session.transact(Vec::new(), writes).await?;
        }
        let mut own = self.own.lock();
        for (name, content) in unpublished {
            let now = own.chunks.get(&name);
            let is_same = match (now, &content) {
                (Some(now), Some(written)) => Arc::ptr_eq(now, written),
                (None, None) => true,
                _ => false,
            };
            if is_same {
                own.unpublished.remove(&name);
            }
        }
        if is_due {
            current.renewed_at = now;
        }
        Ok(())
    }
}

async fn next(watch: &mut EventWatch) -> Result<Vec<ironmesh_etcd::KeyEvent>, SessionError> {
    match watch.next().await {
        WatchNews::Events(events) => Ok(events),
        WatchNews::Progress(_) => Ok(Vec::new()),
        WatchNews::Compacted => Err(SessionError::Compacted),
        WatchNews::Ended(reason) => Err(SessionError::Unavailable(reason)),
    }
}

impl std::fmt::Debug for PeerExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerExchange").field("id", &self.id).finish_non_exhaustive()
    }
}
