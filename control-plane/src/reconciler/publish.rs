//! Compiles the resource sets of clients, and publishes them with the changes of the NACK tracker and of the rollout order.
//!
//! It never decides which clients are affected: the reconciler's pass does.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{Finding, Proxy, ProxyId};
use ironmesh_xds_server::{ClientChange, ClientKey, PushObserver};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Reconciler;
use super::convergence::{Effect, Lag};
use super::local_ports::held_ports;
use super::nack_tracker::InactiveResources;
use super::rollout_order::{ExaminedClusters, RolloutContext};
use crate::change_traces::ChangeTraces;
use crate::node_metadata::node_metadata;
use crate::peers::ProxyNacks;
use crate::sidecars;

impl Reconciler {
    /// Compiles the resource sets of these clients.
    pub(super) fn compile(&mut self, clients: &BTreeSet<ClientKey>) {
        let mut reported = Vec::new();
        for client in clients {
            let Some((proxy, compiler)) = self.proxy(client).zip(self.snapshot_builder.compiler())
            else {
                continue;
            };
            let mut compiled = sidecars::compile(compiler, &proxy);
            let old = self.clients.config(client);
            if let Some(old) = old {
                compiled.resources = compiled.resources.keeping_types_of(&old.compiled.resources);
                let hub = &self.hub;
                let has = |t, name: &str, version| hub.has_all(client, [(t, name, version)]);
                self.nack_tracker.replaced(old, &compiled, has);
            }
            let is_new = |finding: &&Finding| {
                !old.is_some_and(|old| old.compiled.findings.contains(finding))
            };
            let new = compiled.findings.iter().filter(is_new);
            self.finding_log.log(client, new, Instant::now());
            self.pending_progress.insert(Arc::clone(client));
            reported.push((proxy.record.id, compiled.findings.clone()));
            self.clients.set_config(client, proxy, compiled, &Arc::clone(compiler.snapshot()));
        }
        if reported.is_empty() {
            return;
        }
        self.findings.send_if_modified(|all| {
            let mut is_news = false;
            for (id, findings) in reported {
                let old = if findings.is_empty() {
                    all.remove(&id)
                } else {
                    all.insert(id, findings.clone())
                };
                is_news |= old.unwrap_or_default() != findings;
            }
            is_news
        });
    }

    /// Updates the NACK tracker from these clients' answers; returns the clients whose NACKs changed. Those that were
    /// `compiled` in this pass may have come from a peer.
    pub(super) fn track_nacks(
        &mut self,
        news: &[(ClientKey, ClientChange)],
        compiled: &BTreeSet<ClientKey>,
    ) -> Vec<ClientKey> {
        let Some(snapshot) = self.snapshot_builder.snapshot() else { return Vec::new() };
        let (clients, nack_tracker, hub) = (&self.clients, &mut self.nack_tracker, &self.hub);
        for client in compiled {
            if let Some(config) = clients.config(client) {
                let process_starts = || hub.process_starts(client);
                nack_tracker.track_moved(client, process_starts, config, snapshot);
            }
        }
        let mut is_news = |client: &ClientKey, news: &ClientChange| {
            let has = |t, name: &str, version| hub.has_all(client, [(t, name, version)]);
            let config = clients.config(client);
            config.is_some_and(|config| nack_tracker.track(client, news, has, config, snapshot))
        };
        let of_news = news.iter().filter(|(client, news)| is_news(client, news));
        let to_publish = of_news.map(|(client, _)| Arc::clone(client)).collect();
        // The client may have NACKed its inbound listener: then the proxy is no longer a participant.
        let nacking = news.iter().filter(|(_, news)| !news.nacks.is_empty());
        self.pending_progress.extend(nacking.map(|(client, _)| Arc::clone(client)));
        to_publish
    }

    /// Pushes again the resources that clients NACKed for reasons local to their machines, when their pause is over.
    pub(super) fn retry_nacked(&mut self) {
        for (client, names) in self.nack_tracker.retries.take_due(Instant::now()) {
            let resources: Vec<_> = names.iter().map(|(_, name)| &**name).collect();
            tracing::info!(
                %client,
                ?resources,
                reason = "local to the proxy's machine",
                "retrying NACKed resources"
            );
            self.hub.retry(&client, names);
        }
    }

    /// Publishes the resources of a proxy that are not active in it, also to peers. These also get its NACKs that count
    /// only with other policy: it may move to one of them that has it.
    fn publish_inactive_resources(
        &self,
        client: &ClientKey,
        id: ProxyId,
        inactive: &InactiveResources,
    ) {
        let is_news = self.inactive_resources.send_if_modified(|all| {
            let before = if *inactive == InactiveResources::default() {
                all.remove(&id)
            } else {
                all.insert(id, inactive.clone())
            };
            before.unwrap_or_default() != *inactive
        });
        let moved = self.nack_tracker.moved_with(client);
        if is_news || !self.peers.has_noted_nacks(id, moved) {
            self.peers.note(id, |note| {
                let since = note.nacks.as_ref().and_then(|nacks| nacks.since);
                let since = since.unwrap_or_else(Timestamp::now);
                note.nacks = Some(ProxyNacks::new(since, inactive, moved));
            });
        }
    }

    /// Publishes to these clients what they should have: compiled, or a fallback, or held back by the rollout order.
    /// Returns those whose set changed, or is to change once other proxies are ready.
    pub(super) fn publish_sets(&mut self, clients: &BTreeSet<ClientKey>) -> BTreeSet<ClientKey> {
        // Collected in order: a set of a thousand clients is then built at once.
        let (mut changed, mut held) = (Vec::new(), Vec::new());
        let examined = ExaminedClusters::default();
        for client in clients {
            let Some(config) = self.clients.config(client) else { continue };
            let published = self.hub.published(client);
            let before = published.as_ref();
            if before.is_none() {
                // What it gets because it connects is part of no change.
                self.change_log.settle(client);
            }
            let (set, inactive_resources) = self.nack_tracker.effective_set(client, config, before);
            let id = config.proxy.record.id;
            self.publish_inactive_resources(client, id, &inactive_resources);
            let upstreams = &config.compiled.upstreams;
            let findings = held_ports(&config.proxy, upstreams, &inactive_resources);
            if !findings.is_empty() || self.clients.local_ports.has_held(client) {
                held.push((client, findings));
            }
            let set = match (&published, self.snapshot_builder.snapshot()) {
                (Some(before), Some(snapshot)) => {
                    let (clients, hub, peers) = (&self.clients, &*self.hub, &*self.peers);
                    let now = Instant::now();
                    self.rollout_order.hold_back(
                        client,
                        set,
                        before,
                        RolloutContext { snapshot, clients, hub, peers, examined: &examined, now },
                    )
                }
                // A client without a set has nothing that could break.
                _ => set,
            };
            let is_new = !before.is_some_and(|published| published.is_same_as(&set));
            let is_changed = is_new || self.rollout_order.is_held(client);
            if is_changed && before.is_some() {
                // Before its stream can push it.
                self.change_log.assign(client);
            }
            if is_new {
                self.hub.publish(client, set);
            }
            if is_changed {
                changed.push(Arc::clone(client));
            }
        }
        for (client, findings) in held {
            self.clients.local_ports.set_held(client, findings);
        }
        if let Some(snapshot) = self.snapshot_builder.snapshot().filter(|_| self.peers.is_any()) {
            self.peers.note_called(self.rollout_order.called_dropped_ports(snapshot, &self.hub));
            self.peers.note_nacked_versions(self.nack_tracker.nacked_versions().to_vec());
        }
        changed.into_iter().collect()
    }

    /// Exports a trace of each change.
    pub(crate) fn trace_changes(&mut self, traces: Arc<ChangeTraces>) {
        let observer: Arc<dyn PushObserver> = Arc::<ChangeTraces>::clone(&traces);
        self.hub.observe_pushes(observer);
        self.change_log.trace(traces);
    }

    /// Logs what has changed since the pass before.
    pub(super) fn find_changes(&mut self) {
        let builder = &self.snapshot_builder;
        let (newest, inputs) = (builder.generations(), builder.changed_inputs());
        if let Some(snapshot) = builder.snapshot() {
            let revision = &snapshot.specification.revision;
            self.change_log.find(newest, revision, inputs, Instant::now());
        }
    }

    /// Examines how far these clients have ACKed what they should have. `changed` are those whose set this pass changed,
    /// `connected` those that have just connected.
    pub(super) fn examine_convergence(
        &mut self,
        clients: &BTreeSet<ClientKey>,
        changed: &BTreeSet<ClientKey>,
        connected: &BTreeSet<ClientKey>,
        now: Timestamp,
    ) {
        let Some(snapshot) = self.snapshot_builder.snapshot() else { return };
        let (generations, revision) =
            (self.snapshot_builder.generations(), &snapshot.specification.revision);
        let connected_count = self.clients.len();
        // Changed in place: a copy for each pass would cost as much as all laggards.
        self.convergence.send_if_modified(|convergence| {
            let mut is_news = std::mem::take(&mut self.is_convergence_news);
            is_news |= convergence.begin_pass(generations, revision, connected_count);
            let inactive_resources = self.inactive_resources.borrow();
            for client in clients.iter().filter(|client| self.clients.node(client).is_some()) {
                let Ok(id) = client.parse::<ProxyId>() else { continue };
                let effect = match client {
                    client if connected.contains(client) => Effect::Connected,
                    client if changed.contains(client) => Effect::Changed,
                    _ => Effect::None,
                };
                let lag = if inactive_resources.contains_key(&id) {
                    Some(Lag::Nacked)
                } else if self.rollout_order.is_held(client) {
                    Some(Lag::Held)
                } else if !self.hub.is_synced(client) {
                    Some(Lag::Updating)
                } else {
                    None
                };
                if lag.is_none() {
                    self.change_log.settle(client);
                }
                is_news |= convergence.examine(id, effect, lag, now);
            }
            convergence.end_pass();
            is_news
        });
        // Lines are written without the lock of the change, for which readers would wait.
        self.change_log.publish(changed.len());
        self.change_log.end_pass(&self.convergence.borrow(), Instant::now());
    }

    /// A connected client as an input of the compiler; none if it is revoked, because its streams are about to end.
    fn proxy(&self, client: &ClientKey) -> Option<Proxy> {
        let node = self.clients.node(client)?;
        let record = self.register.get(client.parse().ok()?)?;
        if record.revoked.is_some() {
            return None;
        }
        // Admission accepts only well-formed node metadata.
        Some(Proxy { record: (*record).clone(), metadata: node_metadata(node).ok()? })
    }
}
