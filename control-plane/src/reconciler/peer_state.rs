//! The state of proxies that peers report: connections, leaves, health, and the ports that accept callers.
//!
//! What one control plane learns of a proxy affects what all of them send. The reconciler treats it as its own, and tells
//! peers what it has learned itself. It never waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use imbl::ordmap::DiffItem;
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    JoinRecord, PortHealth, ProxyId, Records, ReportedApplications, ServicePort,
};
use ironmesh_xds_wire::ResourceType;
use jiff::Timestamp;
use tokio::time::Instant;

use super::Reconciler;
use crate::peers::{NackNote, PeerView, ProxyNacks, ServingNote};

/// How old the connection of an Envoy is before a report that came to a peer is about it: the report takes a second or two,
/// and may be about its predecessor. Agents repeat it every second.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// The health of applications by the reports that came here, and to peers.
#[derive(Debug, Default)]
pub(super) struct MergedHealth {
    /// The reports that came here, as they were merged last, and the ports of each proxy in them.
    own: ReportedApplications,
    own_ports: PortsByProxy,
    /// The proxies whose notes at peers have changed since.
    changed: BTreeSet<ProxyId>,
    merged: ReportedApplications,
    merged_ports: PortsByProxy,
}

type PortsByProxy = BTreeMap<ProxyId, BTreeSet<ServicePort>>;

/// The reported health of each service port of a proxy.
type HealthByPort = Vec<(ServicePort, Arc<PortHealth>)>;

impl MergedHealth {
    /// Takes the reports that came here, and returns the proxies whose reports differ.
    fn replace_own(&mut self, own: &ReportedApplications) -> BTreeSet<ProxyId> {
        let mut differing = BTreeSet::new();
        if self.own.ptr_eq(own) {
            return differing;
        }
        for item in self.own.diff(own) {
            match item {
                DiffItem::Remove((id, port), _) => {
                    if let Some(ports) = self.own_ports.get_mut(id) {
                        ports.remove(port);
                    }
                    differing.insert(*id);
                }
                DiffItem::Add((id, port), _) | DiffItem::Update { new: ((id, port), _), .. } => {
                    self.own_ports.entry(*id).or_default().insert(port.clone());
                    differing.insert(*id);
                }
            }
        }
        self.own_ports.retain(|_, ports| !ports.is_empty());
        self.own.clone_from(own);
        differing
    }

    /// The reports about a proxy that came here.
    fn own_of(&self, id: ProxyId) -> HealthByPort {
        let ports = self.own_ports.get(&id).into_iter().flatten();
        let health = |port: &ServicePort| {
            let key = (id, port.clone());
            self.own.get(&key).map(|health| (key.1, Arc::clone(health)))
        };
        ports.filter_map(health).collect()
    }

    /// Replaces the merged health of a proxy.
    fn merge(&mut self, id: ProxyId, health: HealthByPort) {
        for port in self.merged_ports.remove(&id).into_iter().flatten() {
            self.merged.remove(&(id, port));
        }
        for (port, health) in health {
            self.merged_ports.entry(id).or_default().insert(port.clone());
            self.merged.insert((id, port), health);
        }
    }
}

impl Reconciler {
    /// Follows what peers note about proxies.
    pub(super) fn follow_peers(&mut self, now: Timestamp) {
        let changed = self.peers.take_changed();
        if changed.is_empty() {
            return;
        }
        for id in &changed {
            let (client, view) = (id.to_string(), self.peers.view(*id));
            let PeerView { is_reachable, health_at, serving, leaving_since, returned, .. } = view;
            self.liveness.note_elsewhere(*id, is_reachable, Instant::now(), now);
            self.duplicates.note_elsewhere(*id, self.peers.streams(*id), Instant::now());
            let process_starts = self.hub.process_starts(&client);
            let streams = self.hub.live_streams(&client);
            if streams.is_empty() {
                self.follow_nacks(*id, &client, process_starts);
            }
            let envoy = (process_starts, !streams.is_empty());
            let orphaned_since =
                self.leaves.follow(*id, (leaving_since, &returned), envoy, Instant::now());
            if orphaned_since.is_some() {
                self.peers.note(*id, |note| note.leaving_since = orphaned_since);
            }
            if let Some(at) = health_at {
                let age = Duration::try_from(now.duration_since(at)).unwrap_or_default();
                self.health.give_way(*id, age, Instant::now());
            }
            let newest = streams.iter().map(|stream| stream.since).max();
            let is_settled = newest.is_some_and(|since| since.elapsed() >= SETTLED_AFTER);
            let is_new = |serving: &ServingNote| {
                is_settled && self.served_at.get(id).is_none_or(|applied| serving.at > *applied)
            };
            if let Some(serving) = serving.filter(is_new) {
                self.served_at.insert(*id, serving.at);
                self.serving.report(*id, serving.names, envoy.0);
            }
        }
        // What they lack, the control plane knows to which they are connected.
        self.is_convergence_news = true;
        self.convergence.send_if_modified(|convergence| {
            convergence.retain_departed(|id| self.peers.connection(id).is_none());
            false
        });
        self.merged_health.changed.extend(changed);
    }

    /// Follows the NACKs of a proxy without a stream here, whose Envoy has started `process_starts` times. Those of one
    /// that is disconnected stay: it may come here next.
    pub(super) fn follow_nacks(&mut self, id: ProxyId, client: &str, process_starts: u64) {
        let nacks = self.peers.nacks(id);
        let is_listener = |note: &&NackNote| {
            let resource = note.resource();
            resource.is_some_and(|((of, _), _)| of == ResourceType::Listener) && !note.keeps_earlier
        };
        let mut nacked = nacks.iter().flat_map(|nacks| &nacks.nacked);
        let without = nacked.find(is_listener).map(|note| note.view.message.clone());
        let without = without.zip(self.register.get(id));
        let without = without.as_ref().map(|(message, record)| (message.clone(), &**record));
        self.clients.without_listener.set(client, without);
        // A peer of an earlier version does not note NACKs: it says nothing about those that came here.
        if let Some(ProxyNacks { nacked, moved, .. }) = nacks {
            let (client, all) = (client.into(), [nacked, moved].concat());
            let not_again = self.nack_tracker.move_from_peer(&client, process_starts, all);
            self.hub.transfer_nacks(&client, not_again);
        }
    }

    /// Closes the streams of proxies that were revoked: another control plane may have done it.
    pub(super) fn close_revoked_streams(&mut self) {
        let revoked = self.register.revoked();
        for item in self.revoked.diff(&revoked) {
            let (DiffItem::Add(id, record) | DiffItem::Update { new: (id, record), .. }) = item
            else {
                continue;
            };
            if let Some(revocation) = &record.revoked {
                self.hub.disconnect(&id.to_string(), &format!("proxy {id} was {revocation}"));
            }
        }
        self.revoked = revoked;
    }

    /// Clears the marks of proxies that are connected here: another control plane may have set one a moment before it knew of
    /// the connection. At a tick also those that could not be cleared before.
    pub(super) fn clear_unreachable(&mut self, records: &Records, is_tick: bool) {
        let is_wrong = |record: &Arc<JoinRecord>| {
            record.unreachable_since.is_some() && self.liveness.is_connected_here(record.id)
        };
        let wrong: Vec<_> = if is_tick {
            records
                .values()
                .filter(|record| is_wrong(record))
                .map(|record| (record.id, None))
                .collect()
        } else {
            let changed = self.examined.diff(records).filter_map(|item| match item {
                DiffItem::Add(_, record) | DiffItem::Update { new: (_, record), .. } => {
                    Some(record)
                }
                DiffItem::Remove(..) => None,
            });
            changed.filter(|record| is_wrong(record)).map(|record| (record.id, None)).collect()
        };
        self.examined = records.clone();
        if wrong.is_empty() {
            return;
        }
        if let Err(error) = self.register.set_unreachable(&wrong) {
            tracing::error!(
                error = chain(&error),
                "cannot store which proxies are reachable again"
            );
        }
    }

    /// Marks the proxies that are cordoned by their records.
    pub(super) fn follow_cordons(&self, records: &Records) {
        for id in self.leaves.follow_records(records) {
            self.peers.note(id, |note| note.acked_cordon = None);
        }
    }

    /// Tells peers which leaves have ended here.
    pub(super) fn note_leaves(&self) {
        for (id, since) in self.leaves.take_ended() {
            self.peers.note(id, |note| {
                (note.leaving_since, note.returned) = (None, Some(since));
                note.acked_leave = None;
            });
        }
    }

    /// Tells peers which leaves and cordons all callers here have ACKed.
    pub(super) fn note_acked_leaves(&self) {
        let convergence = self.convergence.borrow();
        for (id, since, change) in self.leaves.all() {
            if convergence.has_acked_leave(id, change) {
                self.peers.note(id, |note| note.acked_leave = Some(since));
            }
        }
        for (id, mark) in self.leaves.cordons() {
            // A cordon stays for days: its ACKs cost nothing once they are noted.
            let is_noted = self.peers.has_noted_cordon(id, mark.since);
            if !is_noted && convergence.has_acked_leave(id, mark.change) {
                self.peers.note(id, |note| note.acked_cordon = Some(mark.since));
            }
        }
    }

    /// The health of all applications: by the report that came here, or else by the one that came to a peer. Tells peers
    /// what has come here. The cost follows the changes.
    pub(super) fn merge_health(&mut self) -> ReportedApplications {
        let differing = self.merged_health.replace_own(&self.health.current());
        for id in &differing {
            let health = self.merged_health.own_of(*id);
            self.peers.note(*id, |note| {
                note.health_at = (!health.is_empty()).then(Timestamp::now);
                note.health = health;
            });
        }
        let changed = std::mem::take(&mut self.merged_health.changed);
        for id in changed.into_iter().chain(differing).collect::<BTreeSet<_>>() {
            let own = self.merged_health.own_of(id);
            let health = if own.is_empty() { self.peers.view(id).health } else { own };
            self.merged_health.merge(id, health);
        }
        self.merged_health.merged.clone()
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{ApplicationHealth, ApplicationState, HealthSource};
    use uuid::Uuid;

    use super::*;

    fn port(number: u16) -> ServicePort {
        ServicePort::new("shop/store".parse().unwrap(), number)
    }

    fn health(state: ApplicationState) -> Arc<PortHealth> {
        let (since, source) = (Timestamp::UNIX_EPOCH, HealthSource::Agent);
        Arc::new([(8080, ApplicationHealth { state, since, reason: None, source })].into())
    }

    #[test]
    fn own_health_precedes_that_of_peers() {
        let (id, mut merged) = (ProxyId(Uuid::from_u128(1)), MergedHealth::default());
        let (good, bad) = (health(ApplicationState::Healthy), health(ApplicationState::Unhealthy));
        merged.merge(id, vec![(port(80), Arc::clone(&bad)), (port(81), Arc::clone(&bad))]);
        assert_eq!(merged.merged.len(), 2);
        let own: ReportedApplications = [((id, port(80)), Arc::clone(&good))].into_iter().collect();
        assert_eq!(merged.replace_own(&own), [id].into());
        assert_eq!(merged.replace_own(&own), [].into());
        assert_eq!(merged.own_of(id), [(port(80), good)]);
        merged.merge(id, merged.own_of(id));
        assert!(own == merged.merged, "what a peer had reported is gone");
        assert_eq!(merged.replace_own(&ReportedApplications::new()), [id].into());
        assert_eq!(merged.own_of(id), []);
        merged.merge(id, Vec::new());
        assert!(
            merged.merged.is_empty()
                && merged.own_ports.is_empty()
                && merged.merged_ports.is_empty()
        );
    }
}
