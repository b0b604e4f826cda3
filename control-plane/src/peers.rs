//! The other control planes of the mesh, its peers: what this one tells them of its proxies, and what they tell.
//!
//! It owns the notes of this control plane, and publishes them at most once a second. It decides nothing: the reconciler
//! reads what peers note. A mesh with an embedded store has no peers.
//!
//! ```text
//! reconciler ──► OwnNotes ──► PeerExchange (etcd, under a lease) ──► PeerNotes of the others ──► their reconcilers
//! ```

mod notes;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ironmesh_catalog::{PolicyRevision, ProxyId, ServicePort};
use ironmesh_store_etcd::PeerExchange;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use notes::{ControlPlaneNote, OwnNotes, PeerNotes, PolicyNote, ProxyNote, SELF};

use crate::reconciler::convergence::Convergence;
pub(crate) use notes::{PeerView, ServingNote};

/// How often changed notes are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);

/// The longest wait for etcd at the shutdown.
const LONGEST_WITHDRAWAL: Duration = Duration::from_secs(2);

/// The notes of this control plane, and those of its peers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    own: Mutex<OwnNotes>,
    received: Mutex<PeerNotes>,
    changes: watch::Sender<()>,
    /// The service ports that policy has dropped, and that proxies of this control plane may still call.
    called: Mutex<BTreeSet<String>>,
    /// Whether the notes of peers are current; none without an exchange.
    exchange: OnceLock<Arc<PeerExchange>>,
}

impl Peers {
    /// Changes the note of this control plane about a proxy.
    pub(crate) fn note(&self, id: ProxyId, change: impl FnOnce(&mut ProxyNote)) {
        self.own.lock().update(id, change);
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
            return vec!["unknown, since etcd cannot be used".to_owned()];
        }
        self.received.lock().behind(revision)
    }

    /// Whether a proxy is connected to a peer.
    pub(crate) fn is_connected(&self, id: ProxyId) -> bool {
        self.received.lock().connection(id).is_some()
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
        *self.called.lock() = ports.iter().map(ToString::to_string).collect();
    }

    /// Uses this exchange. Before its first success, nothing is known of peers.
    pub(crate) fn exchange_by(&self, exchange: &Arc<PeerExchange>) {
        // It is set once, before anything is read.
        let _ = self.exchange.set(Arc::clone(exchange));
    }

    /// Publishes and follows until `shutdown`. `convergence` is that of this control plane.
    pub(crate) async fn run(
        self: Arc<Self>,
        exchange: Arc<PeerExchange>,
        host: String,
        mut convergence: watch::Receiver<Convergence>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let mut own = ControlPlaneNote { host, version, policy: None };
        exchange.set(SELF, Some(serde_json::to_vec(&own)?));
        let follow = async {
            let mut peers = exchange.peers();
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
                        let called = || self.called.lock().clone();
                        let policy = revision.map(|one| PolicyNote { called: called(), ..one });
                        if policy != own.policy {
                            own.policy = policy;
                            exchange.set(SELF, serde_json::to_vec(&own).ok());
                        }
                        for (chunk, content) in self.own.lock().take_changed() {
                            exchange.set(&chunk, content);
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

fn policy_note(convergence: &Convergence) -> Option<PolicyNote> {
    let revision = convergence.revision()?.to_string();
    let pending = convergence.pending_policy().count();
    Some(PolicyNote { revision, pending, called: BTreeSet::new() })
}

#[cfg(test)]
impl Peers {
    /// Learns this of the only peer: the revision that it publishes, the dropped ports that its proxies may call, and
    /// the proxies that are connected to it.
    pub(crate) fn learn(&self, revision: &str, called: &[&str], connected: &[ProxyId]) {
        let called = called.iter().map(ToString::to_string).collect();
        let policy = Some(PolicyNote { revision: revision.to_owned(), pending: 0, called });
        let (host, version) = ("cp-2".to_owned(), "1".to_owned());
        let note = serde_json::to_vec(&ControlPlaneNote { host, version, policy });
        let mut notes = OwnNotes::default();
        for id in connected {
            notes.update(*id, |note| note.connected_since = Some(Timestamp::UNIX_EPOCH));
        }
        let chunks = notes.take_changed().into_iter();
        let chunks = chunks.filter_map(|(name, content)| Some((name, content?.into())));
        let chunks = chunks.chain([(SELF.to_owned(), note.unwrap_or_default().into())]).collect();
        self.received.lock().receive(&Arc::new([(uuid::Uuid::nil(), chunks)].into()));
    }

    /// The dropped ports that proxies of this control plane may still call, as peers learn of them.
    pub(crate) fn called(&self) -> BTreeSet<String> {
        self.called.lock().clone()
    }
}
