//! What other control planes of the mesh publish of themselves, as it was received.
//!
//! A control plane publishes chunks of bytes under its lease, each sealed with a version that only grows. A chunk that does
//! not open, or is older than what was seen, has no effect. One chunk is a sign of life: a control plane whose sign of life
//! does not change is dropped, so chunks that a client of etcd puts back have an effect for [`SILENCE`] only. This module
//! does no IO.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_store::RecordCipher;
use tokio::time::Instant;
use uuid::Uuid;

use crate::layout::Layout;

/// The chunks of each other control plane, by their names.
pub type PeerStates = BTreeMap<Uuid, BTreeMap<String, Arc<[u8]>>>;

/// The chunk that changes although nothing else does.
pub(crate) const SIGN_OF_LIFE: &str = "alive";

/// How long a control plane may give no sign of life.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// The chunks that were received.
#[derive(Debug)]
pub(crate) struct PeerChunks {
    own: Uuid,
    peers: BTreeMap<Uuid, Peer>,
}

/// The version of a chunk, and its content; none if it was removed.
type VersionedChunk = (u64, Option<Arc<[u8]>>);

#[derive(Debug)]
struct Peer {
    chunks: BTreeMap<String, VersionedChunk>,
    /// When its sign of life changed last.
    alive_at: Instant,
}

impl Peer {
    fn is_alive(&self, now: Instant) -> bool {
        let has_sign = self.chunks.get(SIGN_OF_LIFE).is_some_and(|(_, value)| value.is_some());
        has_sign && now < self.alive_at + SILENCE
    }
}

impl PeerChunks {
    /// Nothing is received yet. `own` is this control plane, whose chunks are ignored.
    pub(crate) fn new(own: Uuid) -> Self {
        Self { own, peers: BTreeMap::new() }
    }

    /// Receives the value of a key; none if it was removed.
    pub(crate) fn receive(
        &mut self,
        cipher: &RecordCipher,
        layout: &Layout,
        (key, value): (&str, Option<&[u8]>),
        now: Instant,
    ) {
        let Some((id, chunk)) = layout.peer_chunk(key).filter(|(id, _)| *id != self.own) else {
            return;
        };
        let Some(value) = value else {
            if let Some((_, content)) =
                self.peers.get_mut(&id).and_then(|peer| peer.chunks.get_mut(chunk))
            {
                *content = None;
            }
            return;
        };
        let Ok((version, content)) = cipher.open(key, value) else { return };
        let unknown = || Peer { chunks: BTreeMap::new(), alive_at: now };
        let peer = self.peers.entry(id).or_insert_with(unknown);
        let seen = peer.chunks.get(chunk).map(|(version, _)| *version);
        // The same version again is what was removed a moment ago, with a lease that had ended.
        if seen.is_some_and(|seen| version.0 < seen) {
            return;
        }
        if chunk == SIGN_OF_LIFE && seen != Some(version.0) {
            peer.alive_at = now;
        }
        peer.chunks.insert(chunk.to_owned(), (version.0, Some(content.as_slice().into())));
    }

    /// Continues after a time without etcd, in which no sign of life could come: it counts for no control plane that was
    /// alive when that time began.
    pub(crate) fn resume(&mut self, since: Instant, now: Instant) {
        for peer in self.peers.values_mut().filter(|peer| peer.is_alive(since)) {
            peer.alive_at += now - since;
        }
    }

    /// Notes that etcd has these keys alone.
    pub(crate) fn retain(&mut self, layout: &Layout, keys: &BTreeSet<&str>) {
        for (id, peer) in &mut self.peers {
            for (chunk, (_, content)) in &mut peer.chunks {
                if !keys.contains(layout.peer_key(*id, chunk).as_str()) {
                    *content = None;
                }
            }
        }
    }

    /// The chunks of all control planes that are alive.
    pub(crate) fn current(&self, now: Instant) -> PeerStates {
        let alive = self.peers.iter().filter(|(_, peer)| peer.is_alive(now));
        let chunks = |peer: &Peer| {
            let present = peer.chunks.iter().filter(|(name, _)| *name != SIGN_OF_LIFE);
            present
                .filter_map(|(name, (_, content))| Some((name.clone(), content.clone()?)))
                .collect()
        };
        alive.map(|(id, peer)| (*id, chunks(peer))).collect()
    }

    /// Forgets the control planes that have ended long ago.
    pub(crate) fn forget(&mut self, now: Instant) {
        self.peers.retain(|_, peer| now < peer.alive_at + 20 * SILENCE);
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_store::{KeyEncryptionKey, MeshId, RecordVersion};

    use super::*;

    struct Mesh {
        cipher: RecordCipher,
        layout: Layout,
        chunks: PeerChunks,
        now: Instant,
    }

    impl Mesh {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let kek = KeyEncryptionKey::load_or_create(&folder.path().join("kek"), false).unwrap();
            Self {
                cipher: RecordCipher::new(&kek, MeshId::generate().unwrap()).unwrap(),
                layout: Layout::new("/mesh"),
                chunks: PeerChunks::new(Uuid::from_u128(1)),
                now: Instant::now(),
            }
        }

        fn sealed(&self, peer: u128, chunk: &str, version: u64) -> (String, Vec<u8>) {
            let key = self.layout.peer_key(Uuid::from_u128(peer), chunk);
            let text = format!("{version}");
            let sealed = self.cipher.seal(&key, RecordVersion(version), text.as_bytes());
            (key, sealed.unwrap())
        }

        fn receive(&mut self, key: &str, value: Option<&[u8]>) {
            self.chunks.receive(&self.cipher, &self.layout, (key, value), self.now);
        }

        fn publish(&mut self, peer: u128, chunk: &str, version: u64) {
            let (key, value) = self.sealed(peer, chunk, version);
            self.receive(&key, Some(&value));
        }

        /// The contents of chunk `a`, by control plane.
        fn shown(&self) -> Vec<(u128, String)> {
            let current = self.chunks.current(self.now);
            let text = |one: &Arc<[u8]>| String::from_utf8(one.to_vec()).unwrap();
            let of = |(id, chunks): (&Uuid, &BTreeMap<String, Arc<[u8]>>)| {
                chunks.get("a").map(|one| (id.as_u128(), text(one)))
            };
            current.iter().filter_map(of).collect()
        }
    }

    #[test]
    fn newest_authentic_chunk_of_each_peer_counts() {
        let mut mesh = Mesh::new();
        mesh.publish(2, "a", 1);
        assert_eq!(mesh.shown(), [], "without a sign of life");
        mesh.publish(2, SIGN_OF_LIFE, 2);
        mesh.publish(2, "a", 3);
        mesh.publish(2, "a", 1);
        assert_eq!(mesh.shown(), [(2, "3".to_owned())], "an older one has no effect");
        let (key, value) = mesh.sealed(3, "a", 9);
        let other = mesh.layout.peer_key(Uuid::from_u128(2), "a");
        mesh.receive(&other, Some(&value));
        mesh.receive(&key, Some(b"forged"));
        mesh.publish(1, SIGN_OF_LIFE, 5);
        mesh.publish(1, "a", 5);
        assert_eq!(mesh.shown(), [(2, "3".to_owned())], "neither moved, forged nor its own");
        mesh.receive(&other, None);
        assert_eq!(mesh.shown(), []);
    }

    #[test]
    fn time_without_etcd_counts_for_no_peer() {
        let mut mesh = Mesh::new();
        for (chunk, version) in [(SIGN_OF_LIFE, 1), ("a", 2)] {
            mesh.publish(2, chunk, version);
        }
        mesh.now += SILENCE / 2;
        let since = mesh.now;
        mesh.now += SILENCE * 9;
        mesh.chunks.resume(since, mesh.now);
        mesh.publish(2, SIGN_OF_LIFE, 1);
        assert_eq!(mesh.shown().len(), 1);
        mesh.now += SILENCE / 2;
        assert_eq!(mesh.shown(), [], "it has ended meanwhile");
        mesh.chunks.resume(mesh.now, mesh.now + SILENCE);
        mesh.now += SILENCE;
        assert_eq!(mesh.shown(), [], "only those that were alive");
    }

    #[test]
    fn silent_peer_is_dropped_even_if_its_chunks_are_put_back() {
        let mut mesh = Mesh::new();
        for (chunk, version) in [(SIGN_OF_LIFE, 1), ("a", 2)] {
            mesh.publish(2, chunk, version);
        }
        mesh.now += SILENCE / 2;
        mesh.publish(2, SIGN_OF_LIFE, 3);
        mesh.now += SILENCE / 2;
        assert_eq!(mesh.shown().len(), 1);
        mesh.now += SILENCE / 2;
        mesh.publish(2, SIGN_OF_LIFE, 3);
        mesh.publish(2, "a", 2);
        assert_eq!(mesh.shown(), [], "the sign of life is the same");
        mesh.publish(2, SIGN_OF_LIFE, 4);
        assert_eq!(mesh.shown().len(), 1);
        let layout = mesh.layout.clone();
        mesh.chunks.retain(&layout, &BTreeSet::new());
        assert_eq!(mesh.shown(), [], "its lease has ended");
    }
}
