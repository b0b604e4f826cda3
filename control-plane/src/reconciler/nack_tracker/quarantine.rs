//! The versions that are withheld because every recipient NACKs them, at all control planes (docs/decisions/0050).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::ProxyId;
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

/// A version that peers must know.
struct Reportable<'a> {
    version: (&'a ResourceKey, Version),
    /// How many clients here NACK it.
    clients: usize,
    /// How many clients NACK it, at all control planes.
    in_all: usize,
    /// Whether clients of peers NACK it, and one here does not.
    is_disputed_to_peers: bool,
    is_disputed: bool,
    /// The NACK of one client here.
    own: Option<TrackedNack>,
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
        // A dispute alone is no reason to dispute a version: two control planes would repeat each other for ever.
        let nacked_at_peers = at_peers.iter().filter(|(_, peers)| peers.clients > 0);
        let mut nacking: BTreeMap<(&ResourceKey, Version), Vec<(&ClientKey, &TrackedNack)>> =
            nacked_at_peers.map(|((name, version), _)| ((name, *version), Vec::new())).collect();
        // A stream here may be half-open while the client is connected to a peer, which counts it.
        let mut counted_at_peers = BTreeSet::new();
        for (client, own) in &self.by_client {
            // The NACKs of a disconnected client say nothing about later clients.
            if hub.published(client).is_none() {
                continue;
            }
            if client.parse::<ProxyId>().is_ok_and(|id| peers.has_newer_connection(id)) {
                counted_at_peers.insert(client);
            }
            for (name, tracked) in &own.names {
                let is_local = is_local(&tracked.message);
                if tracked.is_certain && !is_local && tracked.is_shared {
                    nacking.entry((name, tracked.ideal)).or_default().push((client, tracked));
                }
            }
        }
        let mut quarantined = QuarantinedVersions::new();
        let mut reportable = Vec::new();
        for ((name, version), nacking) in nacking {
            let key = (name.clone(), version);
            let at_peers = at_peers.get(&key);
            let clients: BTreeSet<_> = nacking.iter().map(|(client, _)| *client).collect();
            let own_count = clients.difference(&counted_at_peers).count();
            let count_at_peers = at_peers.map_or(0, |peers| peers.clients);
            let in_all = own_count.saturating_add(count_at_peers);
            // Without peers, few NACKs need no further look.
            if in_all < MIN_NACKING_CLIENTS && !peers.is_any() {
                continue;
            }
            let (of, text) = (name.0, &*name.1);
            let is_disputed = hub.any_client_has(of, text, version)
                || hub.is_published_to_others(of, text, version, &clients);
            let own = nacking.first().map(|(_, tracked)| TrackedNack::clone(tracked));
            if own.is_some() || is_disputed {
                reportable.push(Reportable {
                    version: (name, version),
                    clients: own_count,
                    in_all,
                    is_disputed_to_peers: is_disputed && count_at_peers > 0,
                    is_disputed,
                    own: own.clone(),
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
        self.nacked_versions = self.notes(reportable);
        let first_nacks = |all: &QuarantinedVersions| {
            all.iter().map(|(version, by_all)| (version.clone(), by_all.first.clone())).collect()
        };
        let (before, after): (Vec<_>, Vec<_>) =
            (first_nacks(&self.quarantined), first_nacks(&quarantined));
        self.needs_publish |= before != after;
        self.quarantined = quarantined;
    }

    /// The notes about the first [`MAX_VERSIONS`] versions. Disputes that lift a quarantine at peers precede, and then
    /// the versions that most clients NACK.
    fn notes(&self, mut reportable: Vec<Reportable<'_>>) -> Vec<NackedVersionNote> {
        reportable.sort_by_key(|one| Reverse((one.is_disputed_to_peers, one.in_all)));
        let note = |one: Reportable<'_>| {
            let (name, version) = one.version;
            let first = one.own.map(|own| NackNote::new(&nack_report(name, &own, None)));
            NackedVersionNote {
                resource_type: name.0.to_string(),
                name: name.1.to_string(),
                version: version.to_string(),
                clients: one.clients,
                withheld: self.withheld.get(&(name.clone(), version)).map_or(0, BTreeSet::len),
                is_disputed: one.is_disputed,
                first,
            }
        };
        reportable.into_iter().take(MAX_VERSIONS).map(note).collect()
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

#[cfg(test)]
mod tests {
    use ironmesh_xds_wire::ResourceType;

    use super::*;

    #[test]
    fn notes_have_disputes_first_and_then_the_most_nacked_versions() {
        let version: Version = "0000000000000001".parse().unwrap();
        let keys: Vec<ResourceKey> = (0..MAX_VERSIONS + 8)
            .map(|number| (ResourceType::Route, number.to_string().into()))
            .collect();
        let reportable = |(clients, key)| Reportable {
            version: (key, version),
            clients,
            in_all: clients,
            is_disputed_to_peers: clients == 1,
            is_disputed: clients == 1,
            own: None,
        };
        let notes = NackTracker::default().notes(keys.iter().enumerate().map(reportable).collect());
        let clients: Vec<_> = notes.iter().map(|note| note.clients).collect();
        let most = (9..MAX_VERSIONS + 8).rev();
        assert_eq!(clients, [1].into_iter().chain(most).collect::<Vec<_>>());
    }
}
