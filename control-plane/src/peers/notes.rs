//! The notes of control planes about proxies: what each of them publishes, and what is known of a proxy from all of them.
//!
//! A note is soft state: it ends with its control plane. The notes of one control plane are in [`BUCKETS`] chunks, so a
//! change rewrites a small part of them. This module does no IO.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{PortHealth, ProxyId, ServiceAccount, ServicePort};
use ironmesh_store_etcd::PeerStates;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The number of chunks with notes.
const BUCKETS: u8 = 64;

/// What the name of each chunk with notes begins with.
const PREFIX: &str = "proxies/";

/// The chunk about the control plane itself.
pub(super) const SELF: &str = "control-plane";

/// The content of a chunk.
type Chunk = Arc<[u8]>;

/// What a control plane knows of a proxy that others do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProxyNote {
    /// Since when the proxy is connected to the control plane; none if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connected_since: Option<Timestamp>,
    /// The health of its applications, as it was reported to the control plane.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) health: Vec<(ServicePort, Arc<PortHealth>)>,
    /// When a report changed that health.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health_at: Option<Timestamp>,
    /// The newest report of its agent about the ports that accept callers, if the proxy is connected to another control
    /// plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serving: Option<ServingNote>,
    /// Since when it leaves the mesh, by a request to the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leaving_since: Option<Timestamp>,
    /// The leave that the control plane has ended last, by its begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) returned: Option<Timestamp>,
    /// The leave that all callers at the control plane have ACKed, by its begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acked_leave: Option<Timestamp>,
}

/// The inbound ports of a proxy that accept callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServingNote {
    /// When its agent reported.
    pub(crate) at: Timestamp,
    /// The server names, each with the account of the certificate that it presents.
    pub(crate) names: BTreeMap<String, ServiceAccount>,
}

/// What all peers note about a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PeerView {
    /// Whether the proxy is connected to a peer.
    pub(crate) is_connected: bool,
    pub(crate) health: Vec<(ServicePort, Arc<PortHealth>)>,
    /// When a report changed that health.
    pub(crate) health_at: Option<Timestamp>,
    /// The newest report about the ports that accept callers.
    pub(crate) serving: Option<ServingNote>,
    pub(crate) leaving_since: Option<Timestamp>,
    /// The leaves that peers have ended.
    pub(crate) returned: BTreeSet<Timestamp>,
}

/// What a control plane publishes of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControlPlaneNote {
    /// Its host name.
    pub(crate) host: String,
    /// Its version.
    pub(crate) version: String,
    /// How far its proxies have ACKed policy; none before the first policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<PolicyNote>,
}

/// How far the proxies of a control plane have ACKed policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyNote {
    /// The revision that the control plane publishes.
    pub(crate) revision: String,
    /// How many of its proxies have not ACKed it.
    pub(crate) pending: usize,
    /// The service ports that policy has dropped, and that its proxies may still call.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) called: BTreeSet<String>,
}

/// The notes of this control plane.
#[derive(Debug, Default)]
pub(super) struct OwnNotes {
    notes: BTreeMap<ProxyId, ProxyNote>,
    changed: BTreeSet<u8>,
}

impl OwnNotes {
    /// Changes the note about a proxy.
    pub(super) fn update(&mut self, id: ProxyId, change: impl FnOnce(&mut ProxyNote)) {
        let before = self.notes.get(&id).cloned().unwrap_or_default();
        let mut note = before.clone();
        change(&mut note);
        if note == before {
            return;
        }
        if note == ProxyNote::default() {
            self.notes.remove(&id);
        } else {
            self.notes.insert(id, note);
        }
        self.changed.insert(bucket(id));
    }

    /// Removes the notes about proxies that are not in use any more.
    pub(super) fn retain(&mut self, is_in_use: impl Fn(ProxyId) -> bool) {
        let changed = &mut self.changed;
        self.notes.retain(|id, _| {
            let stays = is_in_use(*id);
            if !stays {
                changed.insert(bucket(*id));
            }
            stays
        });
    }

    /// The chunks that have changed since the last call, each with its content; none if it is empty now.
    pub(super) fn take_changed(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        let changed = std::mem::take(&mut self.changed);
        let chunk = |number: u8| {
            let notes: BTreeMap<_, _> =
                self.notes.iter().filter(|(id, _)| bucket(**id) == number).collect();
            // Ids and timestamps become JSON.
            let content = serde_json::to_vec(&notes).ok().filter(|_| !notes.is_empty());
            (format!("{PREFIX}{number:02}"), content)
        };
        changed.into_iter().map(chunk).collect()
    }
}

fn bucket(id: ProxyId) -> u8 {
    id.0.as_bytes().first().copied().unwrap_or_default() % BUCKETS
}

/// The notes of all other control planes.
#[derive(Debug, Default)]
pub(super) struct PeerNotes {
    received: Arc<PeerStates>,
    control_planes: BTreeMap<Uuid, ControlPlaneNote>,
    /// By the control planes that have them.
    notes: BTreeMap<ProxyId, BTreeMap<Uuid, ProxyNote>>,
    changed: BTreeSet<ProxyId>,
}

impl PeerNotes {
    /// Replaces everything that was received. The cost follows the chunks that differ.
    pub(super) fn receive(&mut self, received: &Arc<PeerStates>) {
        let before = std::mem::replace(&mut self.received, Arc::clone(received));
        let none = BTreeMap::new();
        let peers: BTreeSet<_> = before.keys().chain(received.keys()).copied().collect();
        for peer in peers {
            let (old, new) = (before.get(&peer), received.get(&peer));
            let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
            let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
            for name in names {
                let (old, new) = (old.get(name), new.get(name));
                if old.is_some() && old == new {
                    continue;
                }
                self.replace(peer, name, (old, new));
            }
        }
    }

    fn replace(&mut self, peer: Uuid, name: &str, (old, new): (Option<&Chunk>, Option<&Chunk>)) {
        if name == SELF {
            match new.and_then(|content| serde_json::from_slice(content).ok()) {
                Some(note) => self.control_planes.insert(peer, note),
                None => self.control_planes.remove(&peer),
            };
            return;
        }
        if !name.starts_with(PREFIX) {
            return;
        }
        // A newer version may write what this one cannot read: then it knows nothing.
        let parse = |content: Option<&Chunk>| -> BTreeMap<ProxyId, ProxyNote> {
            content.and_then(|content| serde_json::from_slice(content).ok()).unwrap_or_default()
        };
        let (old, new) = (parse(old), parse(new));
        for id in old.keys().filter(|id| !new.contains_key(id)) {
            if let Some(notes) = self.notes.get_mut(id) {
                notes.remove(&peer);
                if notes.is_empty() {
                    self.notes.remove(id);
                }
            }
            self.changed.insert(*id);
        }
        for (id, note) in new {
            if old.get(&id) != Some(&note) {
                self.notes.entry(id).or_default().insert(peer, note);
                self.changed.insert(id);
            }
        }
    }

    /// The proxies whose notes have changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<ProxyId> {
        std::mem::take(&mut self.changed)
    }

    /// The control plane to which a proxy has connected last, and since when.
    pub(super) fn connection(&self, id: ProxyId) -> Option<(Timestamp, &str)> {
        let notes = self.notes.get(&id)?.iter();
        let connected = notes.filter_map(|(peer, note)| Some((note.connected_since?, peer)));
        let (since, peer) = connected.max()?;
        Some((since, self.control_planes.get(peer).map_or("another", |note| note.host.as_str())))
    }
}

impl PeerNotes {
    /// What all peers note about a proxy.
    pub(super) fn view(&self, id: ProxyId) -> PeerView {
        let none = BTreeMap::new();
        let notes = self.notes.get(&id).unwrap_or(&none);
        // The newest report, so that all control planes choose the same.
        let with_health = notes.values().filter(|note| !note.health.is_empty());
        let newest = with_health.max_by_key(|note| note.health_at);
        PeerView {
            is_connected: notes.values().any(|note| note.connected_since.is_some()),
            health: newest.map(|note| note.health.clone()).unwrap_or_default(),
            health_at: newest.and_then(|note| note.health_at),
            serving: notes
                .values()
                .filter_map(|note| note.serving.as_ref())
                .max_by_key(|serving| serving.at)
                .cloned(),
            leaving_since: notes.values().filter_map(|note| note.leaving_since).min(),
            returned: notes.values().filter_map(|note| note.returned).collect(),
        }
    }

    /// The host names of the peers that publish a different revision of policy, or whose proxies have not ACKed it.
    pub(super) fn behind(&self, revision: &str) -> Vec<String> {
        let is_done = |note: &&ControlPlaneNote| {
            let done = |one: &PolicyNote| one.revision == revision && one.pending == 0;
            note.policy.as_ref().is_some_and(done)
        };
        let behind = self.control_planes.values().filter(|note| !is_done(note));
        behind.map(|note| note.host.clone()).collect()
    }

    /// Whether proxies of a peer may call a service port that this revision of policy has dropped.
    pub(super) fn may_call(&self, port: &str, revision: &str) -> bool {
        let has_dropped = |note: &ControlPlaneNote| {
            let policy = note.policy.as_ref();
            policy.is_some_and(|one| one.revision == revision && !one.called.contains(port))
        };
        !self.control_planes.values().all(has_dropped)
    }

    /// Whether there is any peer.
    pub(super) fn is_any(&self) -> bool {
        !self.control_planes.is_empty()
    }

    /// Whether the callers at all peers have ACKed the leave of a proxy that began then.
    pub(super) fn have_acked_leave(&self, id: ProxyId, since: Timestamp) -> bool {
        let notes = self.notes.get(&id);
        let has_acked = |peer: &Uuid| {
            notes
                .and_then(|notes| notes.get(peer))
                .is_some_and(|one| one.acked_leave == Some(since))
        };
        self.control_planes.keys().all(has_acked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> ProxyId {
        ProxyId(Uuid::from_u128(number << 120 | number))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A control plane that publishes to a map.
    #[derive(Default)]
    struct Peer(OwnNotes, BTreeMap<String, Arc<[u8]>>);

    impl Peer {
        fn connect(&mut self, proxy: u128, since: Option<i64>) {
            self.0.update(id(proxy), |note| note.connected_since = since.map(at));
        }

        fn publish(&mut self) -> BTreeMap<String, Arc<[u8]>> {
            for (name, content) in self.0.take_changed() {
                match content {
                    Some(content) => self.1.insert(name, content.into()),
                    None => self.1.remove(&name),
                };
            }
            self.1.clone()
        }
    }

    #[test]
    fn connection_is_that_of_the_newest_control_plane() {
        let (mut one, mut other, mut notes) =
            (Peer::default(), Peer::default(), PeerNotes::default());
        let ids = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let host =
            ControlPlaneNote { host: "cp-2".to_owned(), version: "1".to_owned(), policy: None };
        other.1.insert(SELF.to_owned(), serde_json::to_vec(&host).unwrap().into());
        one.connect(1, Some(10));
        one.connect(2, Some(10));
        other.connect(1, Some(20));
        notes.receive(&Arc::new([(ids[0], one.publish()), (ids[1], other.publish())].into()));
        assert_eq!(notes.take_changed(), [id(1), id(2)].into());
        assert_eq!(notes.connection(id(1)), Some((at(20), "cp-2")));
        assert_eq!(notes.connection(id(2)), Some((at(10), "another")));
        one.connect(1, None);
        notes.receive(&Arc::new([(ids[0], one.publish()), (ids[1], other.publish())].into()));
        assert_eq!(notes.take_changed(), [id(1)].into());
        assert_eq!(notes.connection(id(1)), Some((at(20), "cp-2")));
        // A control plane that ends takes its notes along.
        notes.receive(&Arc::new([(ids[0], one.publish())].into()));
        assert_eq!((notes.take_changed(), notes.connection(id(1))), ([id(1)].into(), None));
        notes.receive(&Arc::default());
        assert!(notes.notes.is_empty() && notes.control_planes.is_empty());
    }

    #[test]
    fn peer_is_behind_until_its_proxies_have_acked_the_revision() {
        let mut notes = PeerNotes::default();
        let behind = |notes: &mut PeerNotes, policy: Option<(&str, usize)>| {
            let policy = policy.map(|(revision, pending)| PolicyNote {
                revision: revision.to_owned(),
                pending,
                called: BTreeSet::new(),
            });
            let (host, version) = ("cp-2".to_owned(), "1".to_owned());
            let note = serde_json::to_vec(&ControlPlaneNote { host, version, policy }).unwrap();
            let chunks = [(SELF.to_owned(), note.into())].into();
            notes.receive(&Arc::new([(Uuid::from_u128(1), chunks)].into()));
            notes.behind("b")
        };
        assert!(notes.behind("b").is_empty(), "without peers");
        for policy in [None, Some(("a", 0)), Some(("b", 2))] {
            assert_eq!(behind(&mut notes, policy), ["cp-2"], "{policy:?}");
        }
        assert!(behind(&mut notes, Some(("b", 0))).is_empty());
    }

    #[test]
    fn change_of_one_proxy_rewrites_one_chunk() {
        let mut peer = Peer::default();
        for proxy in 0..128 {
            peer.connect(proxy, Some(1));
        }
        assert_eq!(peer.publish().len(), 64);
        peer.connect(7, Some(1));
        assert_eq!(peer.0.take_changed(), [], "nothing has changed");
        peer.connect(7, Some(2));
        assert_eq!(peer.0.take_changed().len(), 1);
    }

    #[test]
    fn unreadable_chunk_of_a_newer_version_tells_nothing() {
        let mut notes = PeerNotes::default();
        let chunk = |text: &str| {
            let chunks = [("proxies/00".to_owned(), Arc::from(text.as_bytes()))].into();
            Arc::new(PeerStates::from([(Uuid::from_u128(1), chunks)]))
        };
        for text in ["", "[]", r#"{"x":1}"#] {
            notes.receive(&chunk(text));
            assert!(notes.take_changed().is_empty(), "{text}");
        }
        let with_more =
            format!(r#"{{"{}":{{"connected_since":"1970-01-01T00:00:05Z","later":1}}}}"#, id(0));
        notes.receive(&chunk(&with_more));
        assert_eq!(notes.connection(id(0)), Some((at(5), "another")));
    }
}
