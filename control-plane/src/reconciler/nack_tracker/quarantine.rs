//! The versions that are withheld because every recipient NACKs them, at all control planes (docs/decisions/0050).

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::Version;

use super::{NackTracker, ResourceKey, TrackedNack, is_local, nack_report};
use crate::peers::{MAX_VERSIONS, NackNote, NackedVersionNote, Peers};

/// The least number of clients that must NACK a version before it is withheld from others.
const MIN_NACKING_CLIENTS: usize = 3;

/// The quarantined versions.
pub(super) type QuarantinedVersions = BTreeMap<(ResourceKey, Version), QuarantinedVersion>;

/// A version that every recipient NACKs.
#[derive(Debug)]
pub(super) struct QuarantinedVersion {
    /// The NACK of one client.
    pub(super) first: TrackedNack,
    /// How many clients NACK it, at all control planes.
    pub(super) clients: usize,
    /// From how many clients peers withhold it.
    pub(super) withheld_at_peers: usize,
}

/// What peers report of a version.
#[derive(Debug, Default)]
struct AtPeers {
    clients: usize,
    withheld: usize,
    is_disputed: bool,
    first: Option<NackNote>,
}

impl NackTracker {
    /// Quarantines the versions that every recipient NACKs: no client has ACKed them, none has still to answer, and at
    /// least [`MIN_NACKING_CLIENTS`] connected clients NACK them, for certain and not for a local reason. The clients of
    /// peers count.
    pub(in crate::reconciler) fn update_quarantine(&mut self, hub: &Hub, peers: &Peers) {
        let mut at_peers = BTreeMap::<(ResourceKey, Version), AtPeers>::new();
        for note in peers.nacked_versions() {
            let Some(version) = note.resource() else { continue };
            let all = at_peers.entry(version).or_default();
            all.clients = all.clients.saturating_add(note.clients);
            all.withheld = all.withheld.saturating_add(note.withheld);
            all.is_disputed |= note.is_disputed;
            all.first = all.first.take().or(note.first);
        }
        let mut nacking: BTreeMap<(&ResourceKey, Version), Vec<(&ClientKey, &TrackedNack)>> =
            at_peers.keys().map(|(name, version)| ((name, *version), Vec::new())).collect();
        for (client, own) in &self.by_client {
            // The NACKs of a disconnected client say nothing about later clients.
            if hub.published(client).is_none() {
                continue;
            }
            for (name, tracked) in &own.names {
                let is_local = is_local(&tracked.message);
                if tracked.is_certain && !is_local && tracked.is_shared {
                    nacking.entry((name, tracked.ideal)).or_default().push((client, tracked));
                }
            }
        }
        let mut quarantined = QuarantinedVersions::new();
        let mut notes = Vec::new();
        for ((name, version), nacking) in nacking {
            let key = (name.clone(), version);
            let at_peers = at_peers.get(&key);
            let in_all = nacking.len() + at_peers.map_or(0, |peers| peers.clients);
            // Without peers, few NACKs need no further look.
            if in_all < MIN_NACKING_CLIENTS && !peers.is_any() {
                continue;
            }
            let clients: BTreeSet<_> = nacking.iter().map(|(client, _)| *client).collect();
            let (of, text) = (name.0, &*name.1);
            let is_disputed = hub.any_client_has(of, text, version)
                || hub.is_published_to_others(of, text, version, &clients);
            let own = nacking.first().map(|(_, tracked)| TrackedNack::clone(tracked));
            if (own.is_some() || is_disputed) && notes.len() < MAX_VERSIONS {
                let first =
                    own.as_ref().map(|first| NackNote::new(&nack_report(name, first, None)));
                notes.push(NackedVersionNote {
                    resource_type: of.to_string(),
                    name: text.to_owned(),
                    version: version.to_string(),
                    clients: nacking.len(),
                    withheld: self.withheld.get(&key).map_or(0, BTreeSet::len),
                    is_disputed,
                    first,
                });
            }
            let first = own.or_else(|| Some(of_peer(at_peers?.first.as_ref()?, version)));
            let Some(first) = first.filter(|_| in_all >= MIN_NACKING_CLIENTS) else { continue };
            if !is_disputed && !at_peers.is_some_and(|peers| peers.is_disputed) {
                let withheld_at_peers = at_peers.map_or(0, |peers| peers.withheld);
                let all = QuarantinedVersion { first, clients: in_all, withheld_at_peers };
                quarantined.insert(key, all);
            }
        }
        let words = |all: &QuarantinedVersions| {
            all.iter().map(|(version, by_all)| (version.clone(), by_all.first.clone())).collect()
        };
        let (before, after): (Vec<_>, Vec<_>) = (words(&self.quarantined), words(&quarantined));
        self.needs_publish |= before != after;
        self.quarantined = quarantined;
        self.nacked_versions = notes;
    }

    /// The versions that the clients here NACK, and what they do with those that clients of peers NACK.
    pub(in crate::reconciler) fn nacked_versions(&self) -> &[NackedVersionNote] {
        &self.nacked_versions
    }
}

/// The NACK of a client of a peer.
fn of_peer(note: &NackNote, version: Version) -> TrackedNack {
    TrackedNack {
        ideal: version,
        message: note.view.message.clone(),
        is_certain: true,
        is_shared: true,
        origins: note.origins(),
        versions: note.versions(),
        keeps_earlier: note.keeps_earlier,
    }
}
