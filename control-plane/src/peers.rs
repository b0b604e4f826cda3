//! The other control planes of the mesh, its peers: what this one publishes of its proxies, and what they report.
//!
//! It owns the notes of this control plane, and publishes them at most once a second. It decides nothing: the reconciler
//! reads what peers note. A mesh with an embedded store has no peers.
//!
//! ```text
//! reconciler ──► OwnNotes ──► PeerExchange (etcd, under a lease) ──► PeerNotes of the others ──► their reconcilers
//! ```

mod nack_notes;
mod notes;
mod readable;
mod received;
mod versions;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ironmesh_api::AuditView;
use ironmesh_catalog::{PolicyRevision, ProxyId, ServicePort};
use ironmesh_store_etcd::{MAX_CHUNK, PeerExchange};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use notes::{ControlPlaneNote, OwnNotes, PolicyNote, ProxyNote, SELF};
use received::PeerNotes;

use crate::audit::{Audit, AuditChunks};
use crate::reconciler::convergence::Convergence;
use nack_notes::MAX_NACKS;
pub(crate) use nack_notes::{MAX_VERSIONS, NackNote, NackedVersionNote, ProxyNacks};
pub(crate) use notes::{MAX_STREAMS, PeerView, ServingNote};
pub(crate) use versions::{PeerVersion, finding as version_finding};

/// How often changed notes are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);

/// How often denied calls by new callers are published. Changed counts are published less often.
const AUDIT_INTERVAL: Duration = Duration::from_secs(5);

/// The name of the peers while nothing is known of them.
const UNKNOWN_PEERS: &str = "unknown, since etcd cannot be used";

/// The longest wait for etcd at the shutdown.
const LONGEST_WITHDRAWAL: Duration = Duration::from_secs(2);

/// The notes of this control plane, and those of its peers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    own: Mutex<OwnNotes>,
    received: Mutex<PeerNotes>,
    changes: watch::Sender<()>,
    /// What this control plane notes of all its proxies.
    of_all: Mutex<NotesOfAll>,
    /// Whether the notes of peers are current; none without an exchange.
    exchange: OnceLock<Arc<PeerExchange>>,
}

/// What the control plane notes of all its proxies, as in [`ControlPlaneNote`] and [`PolicyNote`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NotesOfAll {
    called: BTreeSet<String>,
    replaced: BTreeSet<String>,
    nacked_versions: Vec<NackedVersionNote>,
}

impl Peers {
    /// Changes the note of this control plane about a proxy.
    pub(crate) fn note(&self, id: ProxyId, change: impl FnOnce(&mut ProxyNote)) {
        self.own.lock().update(id, change);
    }

    /// Whether the note of this control plane about a proxy has the NACKs that were `moved` with it.
    pub(crate) fn has_noted_nacks(&self, id: ProxyId, moved: &[NackNote]) -> bool {
        let own = self.own.lock();
        let nacks = own.get(id).and_then(|note| note.nacks.as_ref());
        nacks.is_some_and(|nacks| nacks.moved.iter().eq(moved.iter().take(MAX_NACKS)))
    }

    /// Removes the notes of this control plane about proxies that are not in use any more.
    pub(crate) fn retain(&self, is_in_use: impl Fn(ProxyId) -> bool) {
        self.own.lock().retain(is_in_use);
    }

    /// Whether the notes of peers are current, or there are no peers. Otherwise they may lack anything.
    pub(crate) fn is_current(&self) -> bool {
        self.exchange.get().is_none_or(|exchange| exchange.failure().is_none())
    }

    /// What all peers note about a proxy.
    pub(crate) fn view(&self, id: ProxyId) -> PeerView {
        self.received.lock().view(id)
    }

    /// Whether the callers at all peers have ACKed the leave of a proxy that began then.
    pub(crate) fn have_acked_leave(&self, id: ProxyId, since: Timestamp) -> bool {
        self.is_current() && self.received.lock().have_acked_leave(id, since)
    }

    /// Whether the note of this control plane has that all its callers have ACKed the cordon of a proxy that began then.
    pub(crate) fn has_noted_cordon(&self, id: ProxyId, since: Timestamp) -> bool {
        self.own.lock().get(id).is_some_and(|note| note.acked_cordon == Some(since))
    }

    /// The host names of the peers of which some caller has not ACKed the cordon of a proxy that began then.
    pub(crate) fn pending_cordon(&self, id: ProxyId, since: Timestamp) -> Vec<String> {
        if !self.is_current() {
            return vec![UNKNOWN_PEERS.to_owned()];
        }
        self.received.lock().pending_cordon(id, since)
    }

    /// Notifies of changed notes of peers.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The proxies whose notes at peers have changed since the last call.
    pub(crate) fn take_changed(&self) -> BTreeSet<ProxyId> {
        self.received.lock().take_changed()
    }

    /// Since when a proxy is connected to a peer, and the host name of that peer; none if it is connected to none.
    pub(crate) fn connection(&self, id: ProxyId) -> Option<(Timestamp, String)> {
        let received = self.received.lock();
        received.connection(id).map(|(since, host)| (since, host.to_owned()))
    }

    /// The host names of the peers that publish a different revision of policy, or whose proxies have not ACKed it.
    pub(crate) fn behind(&self, revision: &str) -> Vec<String> {
        if !self.is_current() {
            return vec![UNKNOWN_PEERS.to_owned()];
        }
        self.received.lock().behind(revision)
    }

    /// Whether a proxy is connected to a peer.
    pub(crate) fn is_connected(&self, id: ProxyId) -> bool {
        self.received.lock().connection(id).is_some()
    }

    /// Whether a proxy that is connected here has connected to a peer later: its stream here is half-open, or that of an
    /// earlier process.
    pub(crate) fn has_newer_connection(&self, id: ProxyId) -> bool {
        let own = self.own.lock().get(id).and_then(|note| note.connected_since);
        let received = self.received.lock();
        own.is_some_and(|own| received.connection(id).is_some_and(|(since, _)| since > own))
    }

    /// Whether there is any peer.
    pub(crate) fn is_any(&self) -> bool {
        self.received.lock().is_any()
    }

    /// Whether proxies of a peer may call a service port that this revision of policy has dropped.
    pub(crate) fn may_call(&self, port: &ServicePort, revision: &PolicyRevision) -> bool {
        let may_call = || self.received.lock().may_call(&port.to_string(), &revision.to_string());
        !self.is_current() || may_call()
    }

    /// Notes which of the service ports that policy has dropped proxies of this control plane may still call.
    pub(crate) fn note_called(&self, ports: &BTreeSet<ServicePort>) {
        self.of_all.lock().called = ports.iter().map(ToString::to_string).collect();
    }

    /// Notes the shared certificates whose successors all proxies of this control plane have ACKed, by serial number.
    pub(crate) fn note_replaced(&self, serials: BTreeSet<String>) {
        self.of_all.lock().replaced = serials;
    }

    /// Whether the proxies of all peers have ACKed the successor of the shared certificate with this serial number.
    pub(crate) fn have_replaced(&self, serial: &str) -> bool {
        self.is_current() && self.received.lock().have_replaced(serial)
    }

    /// Notes the versions that proxies NACK, in bounds.
    pub(crate) fn note_nacked_versions(&self, mut versions: Vec<NackedVersionNote>) {
        versions.truncate(MAX_VERSIONS);
        self.of_all.lock().nacked_versions = versions;
    }

    /// What peers note about NACKed versions.
    pub(crate) fn nacked_versions(&self) -> Vec<NackedVersionNote> {
        self.received.lock().nacked_versions().cloned().collect()
    }

    /// The resources that are not active in a proxy that is connected to a peer; none if the peer does not know.
    pub(crate) fn nacks(&self, id: ProxyId) -> Option<ProxyNacks> {
        self.received.lock().nacks(id).cloned()
    }

    /// The proxies with resources that are not active in them, each with the time since when, at peers that publish a
    /// different revision of policy, or whose proxies have not ACKed it.
    pub(crate) fn nacking(&self, revision: &str) -> Vec<(ProxyId, Timestamp)> {
        self.received.lock().nacking(revision).collect()
    }

    /// The aggregated streams of a proxy at all peers: their addresses, each with the host name of the peer.
    pub(crate) fn streams(&self, id: ProxyId) -> Vec<(SocketAddr, String)> {
        self.received.lock().streams(id)
    }

    /// The denied calls of services in audit mode that peers publish.
    pub(crate) fn audit(&self) -> Vec<AuditView> {
        self.received.lock().audit().cloned().collect()
    }

    /// Uses this exchange. Before its first success, nothing is known of peers.
    pub(crate) fn exchange_by(&self, exchange: &Arc<PeerExchange>) {
        // It is set once, before anything is read.
        let _ = self.exchange.set(Arc::clone(exchange));
    }

    /// Publishes and follows until `shutdown`. `convergence` and `audit` are those of this control plane.
    pub(crate) async fn run(
        self: Arc<Self>,
        exchange: Arc<PeerExchange>,
        host: String,
        audit: Arc<Audit>,
        mut convergence: watch::Receiver<Convergence>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let mut own = ControlPlaneNote { host, version, ..ControlPlaneNote::default() };
        let mut too_large = BTreeSet::new();
        set(&exchange, &mut too_large, SELF, Some(serde_json::to_vec(&own)?));
        let follow = async {
            let mut peers = exchange.peers();
            let (mut audit_chunks, mut published) = (AuditChunks::default(), (0, Instant::now()));
            let mut ticks = interval(PUBLISH_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    changed = peers.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        let received = Arc::clone(&peers.borrow_and_update());
                        self.received.lock().receive(&received);
                        self.changes.send_replace(());
                    }
                    _ = ticks.tick() => {
                        // The ports of this revision or a later one: they are noted before the revision is published.
                        let revision = policy_note(&convergence.borrow_and_update());
                        let NotesOfAll { called, replaced, nacked_versions } =
                            self.of_all.lock().clone();
                        let policy = revision.map(|one| PolicyNote { called, ..one });
                        let (host, version) = (own.host.clone(), own.version.clone());
                        let new =
                            ControlPlaneNote { host, version, policy, replaced, nacked_versions };
                        if new != own {
                            own = new;
                            let content = serde_json::to_vec(&own).ok();
                            set(&exchange, &mut too_large, SELF, content);
                        }
                        let mut chunks = self.own.lock().take_changed();
                        // Calls are counted all the time.
                        if published.1.elapsed() >= AUDIT_INTERVAL {
                            let changes = audit.changes();
                            let now = Instant::now();
                            if changes != published.0 || audit_chunks.is_behind() {
                                chunks.extend(audit_chunks.replace(audit.view(), now));
                            }
                            published = (changes, now);
                        }
                        for (chunk, content) in chunks {
                            set(&exchange, &mut too_large, &chunk, content);
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = follow => {}
            () = exchange.run() => {}
            () = shutdown.cancelled() => {
                // The peers need not wait for the end of the lease.
                let _ = tokio::time::timeout(LONGEST_WITHDRAWAL, exchange.withdraw()).await;
            }
        }
        Ok(())
    }
}

/// Publishes a chunk, or logs that it is too large, once for as long as it is.
fn set(
    exchange: &PeerExchange,
    too_large: &mut BTreeSet<String>,
    chunk: &str,
    content: Option<Vec<u8>>,
) {
    let bytes = content.as_ref().map_or(0, Vec::len);
    if exchange.set(chunk, content) {
        too_large.remove(chunk);
    } else if too_large.insert(chunk.to_owned()) {
        tracing::error!(
            chunk,
            bytes,
            most = MAX_CHUNK,
            action = "other control planes do not get it",
            "notes for other control planes are too large"
        );
    }
}

fn policy_note(convergence: &Convergence) -> Option<PolicyNote> {
    let revision = convergence.revision()?.to_string();
    let pending = convergence.pending_policy().count();
    Some(PolicyNote { revision, pending, called: BTreeSet::new() })
}

/// What a test lets a control plane publish.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct TestPeer {
    notes: OwnNotes,
    of_all: ControlPlaneNote,
}

#[cfg(test)]
impl TestPeer {
    /// Changes the note about a proxy.
    pub(crate) fn note(&mut self, id: ProxyId, change: impl FnOnce(&mut ProxyNote)) {
        self.notes.update(id, change);
    }
}

#[cfg(test)]
impl Peers {
    /// Learns this of the only peer: the revision that it publishes, the dropped ports that its proxies may call, and
    /// the proxies that are connected to it.
    pub(crate) fn learn(&self, revision: &str, called: &[&str], connected: &[ProxyId]) {
        let called = called.iter().map(ToString::to_string).collect();
        let policy = Some(PolicyNote { revision: revision.to_owned(), pending: 0, called });
        let mut peer = TestPeer::default();
        peer.of_all.policy = policy;
        for id in connected {
            peer.note(*id, |note| note.connected_since = Some(Timestamp::UNIX_EPOCH));
        }
        self.receive(vec![peer]);
    }

    /// Learns all that another control plane of the test notes.
    pub(crate) fn learn_from(&self, peer: &Self) {
        let mut copy = TestPeer::default();
        for (id, note) in peer.own.lock().all() {
            copy.note(*id, |own| own.clone_from(note));
        }
        let NotesOfAll { called: _, replaced, nacked_versions } = peer.of_all.lock().clone();
        copy.of_all = ControlPlaneNote { replaced, nacked_versions, ..copy.of_all };
        self.receive(vec![copy]);
    }

    /// Learns what these peers note, and nothing else.
    pub(crate) fn receive(&self, peers: Vec<TestPeer>) {
        let chunks = |(number, peer): (u128, TestPeer)| {
            let TestPeer { mut notes, of_all } = peer;
            let of_all = ControlPlaneNote { host: format!("cp-{number}"), ..of_all };
            let of_all = serde_json::to_vec(&of_all).unwrap_or_default();
            let chunks = notes.take_changed().into_iter();
            let chunks = chunks.filter_map(|(name, content)| Some((name, content?.into())));
            (
                uuid::Uuid::from_u128(number),
                chunks.chain([(SELF.to_owned(), of_all.into())]).collect(),
            )
        };
        let received = (2..).zip(peers).map(chunks).collect();
        self.received.lock().receive(&Arc::new(received));
    }

    /// The dropped ports that proxies of this control plane may still call, as peers learn of them.
    pub(crate) fn called(&self) -> BTreeSet<String> {
        self.of_all.lock().called.clone()
    }
}
