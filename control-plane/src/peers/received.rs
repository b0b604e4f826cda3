//! The notes of all other control planes, as they were received: what is known of a proxy from all of them.
//!
//! It decides nothing, and does no IO.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_api::AuditView;
use ironmesh_catalog::ProxyId;
use ironmesh_store_etcd::PeerStates;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::nack_notes::{NackedVersionNote, ProxyNacks};
use super::notes::{ControlPlaneNote, PREFIX, PeerView, PolicyNote, ProxyNote, SELF};
use crate::audit;

/// The content of a chunk.
type Chunk = Arc<[u8]>;

/// The notes of all other control planes.
#[derive(Debug, Default)]
pub(super) struct PeerNotes {
    received: Arc<PeerStates>,
    control_planes: BTreeMap<Uuid, ControlPlaneNote>,
    /// By the control planes that have them.
    notes: BTreeMap<ProxyId, BTreeMap<Uuid, ReceivedNote>>,
    /// The proxies with resources that are not active in them.
    nacking: BTreeSet<ProxyId>,
    changed: BTreeSet<ProxyId>,
    /// The denied calls of services in audit mode, by chunk.
    audit: BTreeMap<(Uuid, String), AuditView>,
}

/// A note, and the chunk in which it came: a note may move to a different one.
#[derive(Debug)]
struct ReceivedNote {
    chunk: String,
    note: ProxyNote,
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
        if name.starts_with(audit::PREFIX) {
            let key = (peer, name.to_owned());
            match new.and_then(|content| serde_json::from_slice(content).ok()) {
                Some(part) => self.audit.insert(key, part),
                None => self.audit.remove(&key),
            };
            return;
        }
        if !name.starts_with(PREFIX) {
            return;
        }
        let proxies = |content: Option<&Chunk>| content.map(|content| parse(content));
        let (old, new) = (proxies(old).unwrap_or_default(), proxies(new).unwrap_or_default());
        for id in old.keys().filter(|id| !new.contains_key(id)) {
            let Some(notes) = self.notes.get_mut(id) else { continue };
            if notes.get(&peer).is_none_or(|received| received.chunk != name) {
                continue;
            }
            notes.remove(&peer);
            if notes.is_empty() {
                self.notes.remove(id);
            }
            self.note_change(*id);
        }
        for (id, note) in new {
            let notes = self.notes.entry(id).or_default();
            let is_same = notes.get(&peer).is_some_and(|received| received.note == note);
            notes.insert(peer, ReceivedNote { chunk: name.to_owned(), note });
            if !is_same {
                self.note_change(id);
            }
        }
    }

    fn note_change(&mut self, id: ProxyId) {
        let since = |note: &ProxyNote| note.nacks.as_ref()?.since;
        let is_nacking = self.of(id).any(|(_, note)| since(note).is_some());
        if is_nacking {
            self.nacking.insert(id)
        } else {
            self.nacking.remove(&id)
        };
        self.changed.insert(id);
    }

    /// The notes about a proxy, each with its control plane.
    fn of(&self, id: ProxyId) -> impl Iterator<Item = (&Uuid, &ProxyNote)> {
        let notes = self.notes.get(&id).into_iter().flatten();
        notes.map(|(peer, received)| (peer, &received.note))
    }

    /// The denied calls of services in audit mode, in parts.
    pub(super) fn audit(&self) -> impl Iterator<Item = &AuditView> {
        self.audit.values()
    }

    /// The proxies whose notes have changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<ProxyId> {
        std::mem::take(&mut self.changed)
    }

    /// The control plane to which a proxy has connected last, and since when.
    pub(super) fn connection(&self, id: ProxyId) -> Option<(Timestamp, &str)> {
        let (since, peer, _) = self.newest(id)?;
        Some((since, self.host(peer)))
    }

    /// The note of the control plane to which a proxy has connected last.
    fn newest(&self, id: ProxyId) -> Option<(Timestamp, &Uuid, &ProxyNote)> {
        let connected =
            self.of(id).filter_map(|(peer, note)| Some((note.connected_since?, peer, note)));
        connected.max_by_key(|(since, peer, _)| (*since, **peer))
    }

    fn host(&self, peer: &Uuid) -> &str {
        self.control_planes.get(peer).map_or("another", |note| note.host.as_str())
    }

    /// The resources that are not active in a proxy, by the note of the control plane to which it has connected last; none
    /// if that does not know.
    pub(super) fn nacks(&self, id: ProxyId) -> Option<&ProxyNacks> {
        self.newest(id)?.2.nacks.as_ref()
    }

    /// The proxies with resources that are not active in them, each with the time since when, at peers that publish a
    /// different revision of policy, or whose proxies have not ACKed it.
    pub(super) fn nacking(&self, revision: &str) -> impl Iterator<Item = (ProxyId, Timestamp)> {
        self.nacking.iter().filter_map(move |id| {
            let (_, peer, note) = self.newest(*id)?;
            let is_done = self.control_planes.get(peer).is_some_and(|of| is_done(of, revision));
            Some((*id, note.nacks.as_ref().filter(|_| !is_done)?.since?))
        })
    }

    /// The aggregated streams of a proxy at all peers: their addresses, each with the host name of the peer.
    pub(super) fn streams(&self, id: ProxyId) -> Vec<(SocketAddr, String)> {
        let connected = self.of(id).filter(|(_, note)| note.connected_since.is_some());
        let streams = connected.flat_map(|(peer, note)| {
            note.streams.iter().map(|address| (*address, self.host(peer).to_owned()))
        });
        streams.collect()
    }
}

impl PeerNotes {
    /// What all peers note about a proxy.
    pub(super) fn view(&self, id: ProxyId) -> PeerView {
        let notes = || self.of(id).map(|(_, note)| note);
        // The newest report, so that all control planes choose the same.
        let with_health = notes().filter(|note| !note.health.is_empty());
        let newest = with_health.max_by_key(|note| note.health_at);
        PeerView {
            is_reachable: notes().any(|note| note.connected_since.is_some() || note.refused),
            health: newest.map(|note| note.health.clone()).unwrap_or_default(),
            health_at: newest.and_then(|note| note.health_at),
            serving: notes()
                .filter_map(|note| note.serving.as_ref())
                .max_by_key(|serving| serving.at)
                .cloned(),
            leaving_since: notes().filter_map(|note| note.leaving_since).min(),
            returned: notes().filter_map(|note| note.returned).collect(),
        }
    }

    /// The host names of the peers that publish a different revision of policy, or whose proxies have not ACKed it.
    pub(super) fn behind(&self, revision: &str) -> Vec<String> {
        let behind = self.control_planes.values().filter(|note| !is_done(note, revision));
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

    /// Whether the proxies of all peers have ACKed the successor of this shared certificate.
    pub(super) fn have_replaced(&self, serial: &str) -> bool {
        self.control_planes.values().all(|note| note.replaced.contains(serial))
    }

    /// What all peers note about NACKed versions.
    pub(super) fn nacked_versions(&self) -> impl Iterator<Item = &NackedVersionNote> {
        self.control_planes.values().flat_map(|note| &note.nacked_versions)
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
                .is_some_and(|received| received.note.acked_leave == Some(since))
        };
        self.control_planes.keys().all(has_acked)
    }

    /// The host names of the peers of which some caller has not ACKed the cordon of a proxy that began then.
    pub(super) fn pending_cordon(&self, id: ProxyId, since: Timestamp) -> Vec<String> {
        let notes = self.notes.get(&id);
        let has_acked = |peer: &Uuid| {
            let received = notes.and_then(|notes| notes.get(peer));
            received.is_some_and(|received| received.note.acked_cordon == Some(since))
        };
        let pending = self.control_planes.iter().filter(|(peer, _)| !has_acked(peer));
        pending.map(|(_, note)| note.host.clone()).collect()
    }
}

/// The notes of a chunk. A different version may write some that this one cannot read: these are left out.
fn parse(content: &[u8]) -> BTreeMap<ProxyId, ProxyNote> {
    // Nearly always, all can be read at once.
    if let Ok(notes) = serde_json::from_slice(content) {
        return notes;
    }
    let values: BTreeMap<String, Value> = serde_json::from_slice(content).unwrap_or_default();
    let note = |(id, value): (String, Value)| {
        Some((id.parse().ok()?, serde_json::from_value(value).ok()?))
    };
    values.into_iter().filter_map(note).collect()
}

/// Whether a control plane publishes this revision of policy, and all its proxies have ACKed it.
fn is_done(note: &ControlPlaneNote, revision: &str) -> bool {
    let done = |one: &PolicyNote| one.revision == revision && one.pending == 0;
    note.policy.as_ref().is_some_and(done)
}

#[cfg(test)]
mod tests {
    use ironmesh_store_etcd::MAX_CHUNK;

    use super::*;
    use crate::peers::notes::{OwnNotes, ServingNote};

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
        let host = ControlPlaneNote { host: "cp-2".to_owned(), ..ControlPlaneNote::default() };
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
            let host = "cp-2".to_owned();
            let note = ControlPlaneNote { host, policy, ..ControlPlaneNote::default() };
            let note = serde_json::to_vec(&note).unwrap();
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
        assert_eq!(peer.publish().len(), 128);
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

    #[test]
    fn unreadable_note_leaves_the_others_of_its_chunk() {
        let mut notes = PeerNotes::default();
        let connected =
            |more: &str| format!(r#"{{"connected_since":"1970-01-01T00:00:05Z"{more}}}"#);
        let content = format!(
            r#"{{"{}":{},"{}":{},"{}":{{"connected_since":[]}},"later":{{}}}}"#,
            id(0),
            connected(""),
            id(64),
            connected(r#","nacks":{"since":5,"nacked":"none"}"#),
            id(128),
        );
        // A version whose first NACK lacks what this version requires, and one that lacks its own name.
        let control_plane = r#"{"host":"cp-2","nacked_versions":[
            {"resource_type":"RDS","name":"a","version":"1","is_disputed":true,"first":{"name":"a"}},
            {"resource_type":"RDS","version":"1"}]}"#;
        let chunks = [("proxies/00", content.as_str()), (SELF, control_plane)];
        let chunks = chunks.map(|(name, text)| (name.to_owned(), Arc::from(text.as_bytes())));
        notes.receive(&Arc::new([(Uuid::from_u128(1), chunks.into())].into()));
        for (number, expected) in
            [(0, Some((at(5), "cp-2"))), (64, Some((at(5), "cp-2"))), (128, None)]
        {
            assert_eq!(notes.connection(id(number)), expected, "{number}");
            assert_eq!(notes.nacks(id(number)), None);
        }
        let versions: Vec<_> = notes.nacked_versions().collect();
        assert!(
            matches!(&versions[..], [one] if one.is_disputed && one.first.is_none()),
            "{versions:?}"
        );
    }

    #[test]
    fn notes_beyond_one_chunk_are_split_and_stay_complete() {
        let (mut peer, mut notes) = (Peer::default(), PeerNotes::default());
        // All in one bucket, and each of about 40 KiB.
        let proxy = |number: u128| ProxyId(Uuid::from_u128(number));
        let names =
            (0..1000).map(|number| (format!("{number:032}.mesh"), "shop/a".parse().unwrap()));
        let serving = ServingNote { at: at(1), names: names.collect() };
        let receive = |peer: &mut Peer, notes: &mut PeerNotes| {
            let chunks = peer.publish();
            assert!(chunks.values().all(|chunk| chunk.len() <= MAX_CHUNK));
            notes.receive(&Arc::new([(Uuid::from_u128(1), chunks.clone())].into()));
            chunks.len()
        };
        let known = |notes: &PeerNotes| {
            (0..40).filter(|one| notes.connection(proxy(*one)).is_some()).count()
        };
        for number in 0..40 {
            peer.0.update(proxy(number), |note| {
                (note.connected_since, note.serving) = (Some(at(1)), Some(serving.clone()));
            });
        }
        let chunks = receive(&mut peer, &mut notes);
        assert!(chunks > 3, "{chunks}");
        assert_eq!((known(&notes), notes.take_changed().len()), (40, 40));
        // The others move to the chunks before theirs, and have not changed.
        for number in 0..20 {
            peer.0.update(proxy(number), |note| *note = ProxyNote::default());
        }
        assert!(receive(&mut peer, &mut notes) < chunks);
        assert_eq!((known(&notes), notes.take_changed().len()), (20, 20));
        for number in 20..39 {
            peer.0.update(proxy(number), |note| note.serving = None);
        }
        assert_eq!((receive(&mut peer, &mut notes), known(&notes)), (1, 20));
        notes.receive(&Arc::default());
        assert_eq!(known(&notes), 0);
    }
}
