//! The NACKs of clients that were connected to a peer. A client that moves here keeps the fallbacks that it has, and is not
//! sent again what it NACKed.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::Snapshot;
use ironmesh_xds_compile::origin::origins;
use ironmesh_xds_server::{ClientKey, Nack};

use super::{ClientNacks, NackTracker, ResourceKey, TrackedNack, is_shared};
use crate::peers::NackNote;
use crate::reconciler::clients::ClientConfig;

/// By client: the count of its process starts here when they came, and its NACKs at the peer.
pub(super) type Moved = BTreeMap<ClientKey, (u64, Vec<NackNote>)>;

impl NackTracker {
    /// Replaces what is known of a client by its NACKs at a peer, to which it is connected, the newest first.
    /// `process_starts` is the count of its process starts here. Returns the NACKs that it must not be sent again.
    pub(in crate::reconciler) fn move_from_peer(
        &mut self,
        client: &ClientKey,
        process_starts: u64,
        nacks: Vec<NackNote>,
    ) -> BTreeMap<ResourceKey, Nack> {
        self.by_client.remove(client);
        let nack = |note: &NackNote| {
            let (name, version) = note.resource()?;
            let nack = Nack {
                version,
                message: note.view.message.clone(),
                is_certain: note.is_certain,
                keeps_earlier: note.keeps_earlier,
            };
            Some((name, nack))
        };
        // The newest NACK of a resource counts.
        let not_again = nacks.iter().rev().filter_map(nack).collect();
        if nacks.is_empty() {
            self.moved.remove(client);
        } else {
            self.moved.insert(Arc::clone(client), (process_starts, nacks));
        }
        not_again
    }

    /// The clients whose NACKs at a peer are kept.
    pub(in crate::reconciler) fn moved(&self) -> Vec<ClientKey> {
        self.moved.keys().cloned().collect()
    }

    /// The NACKs of a client at a peer to whose versions policy does not compile here.
    pub(in crate::reconciler) fn moved_with(&self, client: &ClientKey) -> &[NackNote] {
        self.moved.get(client).map_or(&[], |(_, nacks)| nacks)
    }

    /// Tracks the NACKs with which a client came here, once policy compiles to the versions that it NACKed.
    pub(in crate::reconciler) fn track_moved(
        &mut self,
        client: &ClientKey,
        process_starts: impl Fn() -> u64,
        config: &ClientConfig,
        snapshot: &Snapshot,
    ) {
        let Some((starts_before, nacks)) = self.moved.remove(client) else { return };
        let process_starts = process_starts();
        // A new process has NACKed nothing yet.
        if starts_before != process_starts {
            return;
        }
        let mut others = Vec::new();
        let new = || ClientNacks { beginnings: process_starts, names: BTreeMap::new() };
        let own = self.by_client.entry(Arc::clone(client)).or_insert_with(new);
        for note in nacks {
            let Some((name, version)) = note.resource() else { continue };
            let ideal = config.compiled.resources.of(name.0).get(&name.1);
            let Some(ideal) = ideal.filter(|ideal| ideal.version() == version) else {
                others.push(note);
                continue;
            };
            let message = note.view.message.clone();
            let tracked = TrackedNack {
                ideal: version,
                is_certain: note.is_certain,
                is_shared: is_shared(ideal),
                origins: origins(snapshot, &config.proxy, name.0, &name.1, &message),
                versions: note.versions(),
                keeps_earlier: note.keeps_earlier,
                message,
            };
            own.names.entry(name).or_insert(tracked);
        }
        if own.names.is_empty() {
            self.by_client.remove(client);
        }
        if !others.is_empty() {
            self.moved.insert(Arc::clone(client), (process_starts, others));
        }
    }
}
