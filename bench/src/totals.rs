//! Counters over all clients of a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Sums over a fleet.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) connects: AtomicU64,
    /// Bytes of gRPC frames, after HTTP/2.
    pub(crate) bytes: AtomicU64,
    pub(crate) responses: AtomicU64,
    pub(crate) resources: AtomicU64,
    pub(crate) acks: AtomicU64,
    pub(crate) nacks: AtomicU64,
    /// The watched resource, if any.
    pub(crate) watch: RwLock<Option<Arc<Watch>>>,
    progress: Mutex<Progress>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Progress {
    /// The time at which each client was configured on its current stream.
    configured: Vec<Option<Instant>>,
    /// The server of the last stream of each client.
    servers: Vec<Option<SocketAddr>>,
    count: usize,
    lost: u64,
    last_loss: Option<String>,
}

/// The counters at one time. The difference of two values counts the events in between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Opened streams.
    pub connects: u64,
    /// Received bytes of gRPC frames.
    pub bytes: u64,
    /// Received responses.
    pub responses: u64,
    /// Resources and removed names in responses.
    pub resources: u64,
    /// ACKs.
    pub acks: u64,
    /// NACKs.
    pub nacks: u64,
    /// Connections that ended unexpectedly.
    pub lost: u64,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            connects: self.connects + other.connects,
            bytes: self.bytes + other.bytes,
            responses: self.responses + other.responses,
            resources: self.resources + other.resources,
            acks: self.acks + other.acks,
            nacks: self.nacks + other.nacks,
            lost: self.lost + other.lost,
        }
    }
}

impl std::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            connects: self.connects - before.connects,
            bytes: self.bytes - before.bytes,
            responses: self.responses - before.responses,
            resources: self.resources - before.resources,
            acks: self.acks - before.acks,
            nacks: self.nacks - before.nacks,
            lost: self.lost - before.lost,
        }
    }
}

impl Totals {
    pub(crate) fn new(clients: usize) -> Self {
        let (configured, servers) = (vec![None; clients], vec![None; clients]);
        let progress = Progress { configured, servers, ..Progress::default() };
        let zero = || AtomicU64::new(0);
        Self {
            connects: zero(),
            bytes: zero(),
            responses: zero(),
            resources: zero(),
            acks: zero(),
            nacks: zero(),
            watch: RwLock::default(),
            progress: Mutex::new(progress),
            changed: Notify::new(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
        Counts {
            connects: read(&self.connects),
            bytes: read(&self.bytes),
            responses: read(&self.responses),
            resources: read(&self.resources),
            acks: read(&self.acks),
            nacks: read(&self.nacks),
            lost: self.progress.lock().lost,
        }
    }

    /// Resets all clients to not configured.
    pub(crate) fn begin(&self) {
        let mut progress = self.progress.lock();
        progress.configured.fill(None);
        progress.count = 0;
    }

    /// A client has opened a stream to this server.
    pub(crate) fn connected(&self, client: usize, server: SocketAddr) {
        self.connects.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if let Some(slot) = self.progress.lock().servers.get_mut(client) {
            *slot = Some(server);
        }
    }

    /// The number of clients whose last stream is to this server.
    pub(crate) fn clients_of(&self, server: SocketAddr) -> usize {
        self.progress.lock().servers.iter().filter(|one| **one == Some(server)).count()
    }

    pub(crate) fn configured(&self, client: usize) {
        self.set(client, Some(Instant::now()));
    }

    pub(crate) fn left(&self, client: usize) {
        self.set(client, None);
    }

    pub(crate) fn is_configured(&self, client: usize) -> bool {
        self.progress.lock().configured.get(client).is_some_and(Option::is_some)
    }

    fn set(&self, client: usize, at: Option<Instant>) {
        let mut progress = self.progress.lock();
        let progress = &mut *progress;
        if let Some(slot) = progress.configured.get_mut(client) {
            progress.count -= usize::from(slot.is_some());
            progress.count += usize::from(at.is_some());
            *slot = at;
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn lost(&self, reason: &anyhow::Error) {
        let mut progress = self.progress.lock();
        progress.lost += 1;
        progress.last_loss = Some(format!("{reason:#}"));
    }

    /// Waits until all clients except `except` many are configured. Returns the time of the last.
    pub(crate) async fn all_configured(
        &self,
        except: usize,
        patience: Duration,
    ) -> anyhow::Result<Instant> {
        let all = async {
            loop {
                let changed = self.changed.notified();
                {
                    let progress = self.progress.lock();
                    if progress.count + except >= progress.configured.len() {
                        return progress.configured.iter().flatten().max().copied();
                    }
                }
                changed.await;
            }
        };
        let last = timeout(patience, all).await.map_err(|_| {
            let progress = self.progress.lock();
            anyhow::anyhow!(
                "{} of {} clients are configured after {patience:?}; {} connections were lost, the last: {}",
                progress.count,
                progress.configured.len(),
                progress.lost,
                progress.last_loss.as_deref().unwrap_or("none")
            )
        })?;
        Ok(last.unwrap_or_else(Instant::now))
    }
}

/// The ACKs of one resource, with client, content and time.
#[derive(Debug)]
pub struct Watch {
    pub(crate) name: String,
    acked: Mutex<Vec<AckedContent>>,
    changed: Notify,
}

/// The ACK of one content by one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckedContent {
    pub(crate) client: usize,
    pub(crate) content: u128,
    pub(crate) received: Instant,
    pub(crate) acked: Instant,
}

/// The arrival of a change at the clients.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// The time at which the first client received it.
    pub first_received: Instant,
    /// The time of the last ACK.
    pub last_acked: Instant,
}

impl Watch {
    /// Creates a watch of the endpoints of this cluster.
    pub(crate) fn new(name: &str) -> Arc<Self> {
        let (acked, changed) = (Mutex::default(), Notify::new());
        Arc::new(Self { name: name.to_owned(), acked, changed })
    }

    /// Records an ACK.
    pub(crate) fn record(&self, client: usize, content: u128, received: Instant, acked: Instant) {
        self.acked.lock().push(AckedContent { client, content, received, acked });
        self.changed.notify_waiters();
    }

    /// All ACKs so far, in order.
    pub(crate) fn acks(&self) -> Vec<AckedContent> {
        self.acked.lock().clone()
    }

    /// Waits until `clients` of the first `among` clients have ACKed the same content. Some may ACK an earlier content
    /// before it, which was already on its way.
    pub(crate) async fn all(
        &self,
        clients: usize,
        among: usize,
        patience: Duration,
    ) -> anyhow::Result<Arrival> {
        let mut seen = 0;
        let mut by_content: BTreeMap<u128, BTreeSet<usize>> = BTreeMap::new();
        let all = async {
            loop {
                let changed = self.changed.notified();
                {
                    let acked = self.acked.lock();
                    for one in acked.iter().skip(seen).filter(|one| one.client < among) {
                        by_content.entry(one.content).or_default().insert(one.client);
                    }
                    seen = acked.len();
                    let complete = by_content.iter().find(|(_, acking)| acking.len() >= clients);
                    if let Some((content, _)) = complete {
                        let of = || {
                            acked.iter().filter(|one| one.client < among && one.content == *content)
                        };
                        let begin = of().map(|one| one.received).min();
                        let end = of().map(|one| one.acked).max();
                        if let (Some(first_received), Some(last_acked)) = (begin, end) {
                            return Arrival { first_received, last_acked };
                        }
                    }
                }
                changed.await;
            }
        };
        let result = timeout(patience, all).await;
        result.map_err(|_| {
            let count = self.acked.lock().len();
            anyhow::anyhow!(
                "{count} ACKs of {clients} clients for `{}` within {patience:?}",
                self.name
            )
        })
    }
}
