//! The reconciler: the one task that derives each proxy's resource set from every change of input.
//!
//! It is level-triggered. A change only wakes it; it then reads the active policy, the register, the certificates and
//! the clients that changed. Each pass examines again what an earlier pass could not settle. The first change starts
//! a pass at once, and `debounce` collects the changes of a burst into one pass.
//!
//! It never accepts connections and never encodes a response: `ironmesh-xds-server` does.

pub(crate) mod change_log;
mod clients;
mod clock;
pub(crate) mod convergence;
mod debounce;
mod duplicates;
mod endpoints;
mod expiry;
mod finding_log;
mod liveness;
mod local_ports;
mod mesh_findings;
mod nack_tracker;
mod own_certificates;
mod peer_state;
mod pending_servers;
mod progress;
mod publish;
mod reissue;
mod revocation_failures;
mod rollout_order;
mod snapshot_builder;
mod without_listener;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{CertificateStore, Finding, Mesh, Provider, ProxyId, Records, Snapshot};
use ironmesh_cert::{Authority, CertificateFacts, ServiceCertificates};
use ironmesh_config_settings::{ReloadableSettings, Settings};
use ironmesh_enrollment::EnrollmentCredentials;
use ironmesh_providers::ClockDifference;
use ironmesh_store::{MeshState, Store};
use ironmesh_xds_server::{ClientKey, Hub};
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::health_table::HealthTable;
use super::leave_table::LeaveTable;
use super::peers::Peers;
use super::policy_source::PolicyState;
use super::register::Register;
use super::serving_table::ServingTable;
use super::shared_changes::SharedChanges;
use change_log::ChangeLog;
use clients::Clients;
use clock::ClockWatch;
use convergence::Convergence;
use debounce::{Cause, Debounce};
use duplicates::Duplicates;
pub(crate) use endpoints::{
    Acceptance, Acceptances, EndpointsOptions, EndpointsView, ProviderState,
};
use endpoints::{Endpoints, current_time};
pub(crate) use expiry::ExpiringProxies;
use finding_log::FindingLog;
use ironmesh_catalog::text::chain;
use liveness::{DisconnectedProxies, ProxyLiveness};
pub(crate) use mesh_findings::MeshFindings;
use nack_tracker::NackTracker;
pub(crate) use nack_tracker::{InactiveResources, NackReport};
use own_certificates::OwnCertificate;
use peer_state::MergedHealth;
use pending_servers::PendingServers;
use reissue::Reissues;
use revocation_failures::RevocationFailures;
use rollout_order::{ExaminedClusters, RolloutContext, RolloutOrder};
use snapshot_builder::{SnapshotBuilder, Sources};

/// The interval of the work that is due by the clock. (After a jump of the wall clock it is due at once.)
const TICK: Duration = Duration::from_secs(30);

/// The interval of the heartbeats while nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The channels by which the reconciler publishes its results to the admin API, metrics and log.
#[derive(Debug, Clone)]
pub(crate) struct StatusFeeds {
    /// Whether the control plane is ready to serve xDS.
    pub(crate) ready: watch::Receiver<bool>,
    /// The TLS configuration of the xDS listener.
    pub(crate) tls: watch::Receiver<Arc<ServerConfig>>,
    /// The credentials of the enrollment listener.
    pub(crate) enrollment_credentials: watch::Receiver<Arc<EnrollmentCredentials>>,
    /// The control plane's own certificate.
    pub(crate) own_certificate: watch::Receiver<CertificateFacts>,
    /// The newest snapshot; none before the first.
    pub(crate) snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    /// The state of the endpoints providers and of their guards.
    pub(crate) endpoints: watch::Receiver<EndpointsView>,
    /// The findings about the mesh as a whole.
    pub(crate) mesh_findings: watch::Receiver<MeshFindings>,
    /// The findings about what each proxy requests.
    pub(crate) findings: watch::Receiver<BTreeMap<ProxyId, Vec<Finding>>>,
    /// The alarms of identities that are live on two machines.
    pub(crate) duplicates: watch::Receiver<BTreeMap<ProxyId, Finding>>,
    /// The proxies that are disconnected.
    pub(crate) disconnected: watch::Receiver<DisconnectedProxies>,
    /// The resources of each connected proxy that it NACKs, or that are withheld because others NACK them.
    pub(crate) inactive_resources: watch::Receiver<BTreeMap<ProxyId, InactiveResources>>,
    /// Which proxies have not ACKed everything.
    pub(crate) convergence: watch::Receiver<Convergence>,
    /// The heartbeat of the reconciler, which has a new value at each pass, and while it waits for changes.
    pub(crate) heartbeat: watch::Receiver<()>,
}

/// The task that builds snapshots and publishes a resource set per proxy.
pub(crate) struct Reconciler {
    certificate_store: Arc<dyn CertificateStore>,
    authority: Arc<Mutex<Authority>>,
    register: Arc<Register>,
    leaves: Arc<LeaveTable>,
    serving: Arc<ServingTable>,
    health: Arc<HealthTable>,
    policy: watch::Receiver<PolicyState>,
    hub: Arc<Hub>,

    ready: watch::Sender<bool>,
    tls: watch::Sender<Arc<ServerConfig>>,
    enrollment_credentials: watch::Sender<Arc<EnrollmentCredentials>>,
    own_certificate: OwnCertificate,
    clock: ClockWatch,
    clock_differences: BTreeMap<Provider, ClockDifference>,
    clock_findings: Vec<Finding>,
    snapshot: watch::Sender<Option<Arc<Snapshot>>>,
    endpoints_view: watch::Sender<EndpointsView>,
    mesh_findings: watch::Sender<MeshFindings>,
    findings: watch::Sender<BTreeMap<ProxyId, Vec<Finding>>>,
    inactive_resources: watch::Sender<BTreeMap<ProxyId, InactiveResources>>,
    duplicate_findings: watch::Sender<BTreeMap<ProxyId, Finding>>,

    /// The reloadable part of the settings.
    settings: watch::Receiver<ReloadableSettings>,
    /// What other control planes have stored.
    shared: Arc<SharedChanges>,
    /// What they tell of their proxies.
    peers: Arc<Peers>,
    merged_health: MergedHealth,
    /// The revoked proxies of the last pass.
    revoked: Records,
    /// The records of the last pass.
    examined: Records,
    /// The time of the newest report to a peer about the ports of each proxy that accept callers.
    served_at: BTreeMap<ProxyId, Timestamp>,
    endpoints: Endpoints,
    /// The findings about reports of endpoints providers.
    endpoints_findings: Vec<Finding>,
    acceptances: mpsc::Receiver<Acceptance>,
    liveness: ProxyLiveness,
    duplicates: Duplicates,
    started: Timestamp,
    disconnected: watch::Sender<DisconnectedProxies>,
    /// The findings about certificates and versions of proxies, and the register's membership count for which they hold.
    expiry: (Vec<Finding>, u64),
    is_expiry_news: bool,
    /// The register's membership count of the last pass.
    members: u64,
    snapshot_builder: SnapshotBuilder,
    clients: Clients,
    nack_tracker: NackTracker,
    rollout_order: RolloutOrder,
    reissues: Reissues,
    revocation_failures: RevocationFailures,
    revocation_findings: Vec<Finding>,
    convergence: watch::Sender<Convergence>,
    heartbeat: watch::Sender<()>,
    /// Whether a proxy has disconnected or was forgotten since convergence was published.
    is_convergence_news: bool,
    pending_servers: PendingServers,
    /// The clients examined in the last pass, to which a resource set may have been published.
    published_to: BTreeSet<ClientKey>,
    /// The clients that get nothing until the accounts of their certificates are recorded.
    unrecorded: BTreeSet<ClientKey>,
    /// When the next tick is due.
    next_tick: Instant,
    /// The clients of which it is not known yet whether they ACKed what makes them participants.
    pending_progress: BTreeSet<ClientKey>,
    finding_log: FindingLog,
    change_log: ChangeLog,
}

impl Reconciler {
    #[expect(clippy::too_many_arguments, reason = "the reconciler combines all inputs")]
    pub(crate) fn new(
        mesh: Mesh,
        settings: &Settings,
        store: Arc<Store>,
        state: Arc<MeshState>,
        certificate_store: Arc<dyn CertificateStore>,
        authority: Arc<Mutex<Authority>>,
        certificates: ServiceCertificates,
        register: Arc<Register>,
        leaves: Arc<LeaveTable>,
        serving: Arc<ServingTable>,
        health: Arc<HealthTable>,
        policy: watch::Receiver<PolicyState>,
        endpoints: EndpointsOptions,
        hub: Arc<Hub>,
    ) -> anyhow::Result<(Self, StatusFeeds, Acceptances)> {
        let now = Timestamp::now();
        let (own_certificate, credentials) =
            OwnCertificate::issue(&authority.lock(), settings, now)?;
        let (ready, tls) = (watch::Sender::new(false), watch::Sender::new(credentials.xds));
        let enrollment_credentials = watch::Sender::new(credentials.enrollment);
        let (mesh_findings, findings) = (watch::Sender::default(), watch::Sender::default());
        let (acceptances, requests) = mpsc::channel(1);
        let (endpoints_view, started) = (watch::Sender::default(), Timestamp::now());
        let disconnected = watch::Sender::new(DisconnectedProxies {
            grace: Some(started),
            ..DisconnectedProxies::default()
        });
        let (inactive_resources, snapshot) = (watch::Sender::default(), watch::Sender::default());
        let duplicate_findings = watch::Sender::default();
        let (convergence, heartbeat) = (watch::Sender::default(), watch::Sender::default());
        let feeds = StatusFeeds {
            duplicates: duplicate_findings.subscribe(),
            ready: ready.subscribe(),
            tls: tls.subscribe(),
            enrollment_credentials: enrollment_credentials.subscribe(),
            own_certificate: own_certificate.facts(),
            snapshot: snapshot.subscribe(),
            endpoints: endpoints_view.subscribe(),
            mesh_findings: mesh_findings.subscribe(),
            findings: findings.subscribe(),
            disconnected: disconnected.subscribe(),
            inactive_resources: inactive_resources.subscribe(),
            convergence: convergence.subscribe(),
            heartbeat: heartbeat.subscribe(),
        };
        let issuer = Arc::clone(&authority);
        let acceptances = Acceptances { requests: acceptances, shared: Arc::clone(&state) };
        let reconciler = Self {
            settings: watch::Sender::new(settings.reloadable()).subscribe(),
            shared: Arc::default(),
            peers: Arc::default(),
            merged_health: MergedHealth::default(),
            revoked: Records::new(),
            examined: Records::new(),
            served_at: BTreeMap::new(),
            endpoints: Endpoints::new(store, Arc::clone(&state), endpoints)?,
            endpoints_findings: Vec::new(),
            acceptances: requests,
            liveness: ProxyLiveness::default(),
            duplicates: Duplicates::default(),
            duplicate_findings,
            convergence,
            heartbeat,
            is_convergence_news: false,
            started,
            disconnected,
            expiry: (Vec::new(), 0),
            is_expiry_news: false,
            members: 0,
            snapshot_builder: SnapshotBuilder::new(mesh, settings, state, issuer, certificates)?,
            certificate_store,
            authority,
            register,
            leaves,
            serving,
            health,
            policy,
            hub,
            ready,
            tls,
            enrollment_credentials,
            own_certificate,
            clock: ClockWatch::new(now, Instant::now()),
            clock_differences: BTreeMap::new(),
            clock_findings: Vec::new(),
            snapshot,
            endpoints_view,
            mesh_findings,
            findings,
            inactive_resources,
            clients: Clients::default(),
            nack_tracker: NackTracker::default(),
            rollout_order: RolloutOrder::default(),
            reissues: Reissues::default(),
            revocation_failures: RevocationFailures::default(),
            revocation_findings: Vec::new(),
            pending_servers: PendingServers::default(),
            published_to: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            next_tick: Instant::now(),
            pending_progress: BTreeSet::new(),
            finding_log: FindingLog::default(),
            change_log: ChangeLog::new(now.as_second()),
        };
        Ok((reconciler, feeds, acceptances))
    }

    /// Applies each new value of `settings`.
    pub(crate) fn follow_settings(&mut self, settings: watch::Receiver<ReloadableSettings>) {
        self.settings = settings;
    }

    /// Reads again what other control planes have stored, when it changes.
    pub(crate) fn follow_shared(&mut self, shared: Arc<SharedChanges>, peers: Arc<Peers>) {
        (self.shared, self.peers) = (shared, peers);
    }

    /// Reconciles until `shutdown`, and then stores what waits for its interval.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let end = self.follow(shutdown).await;
        self.store_rest();
        end
    }

    /// Stores what waits for its interval, and ends the traces.
    fn store_rest(&mut self) {
        self.endpoints.store_unsaved();
        self.change_log.complete();
    }

    async fn follow(&mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut clients = self.hub.changes();
        let (mut policy, mut register) = (self.policy.clone(), self.register.generation());
        let (mut leaves, mut serving) = (self.leaves.changes(), self.serving.changes());
        let (mut settings, mut health) = (self.settings.clone(), self.health.changes());
        let (mut shared, mut peers) = (self.shared.changes(), self.peers.changes());
        let (mut debounce, endpoints) = (Debounce::default(), self.endpoints.news());
        let mut compare_clocks = interval(clock::COMPARE);
        compare_clocks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heartbeats = interval(HEARTBEAT);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.heartbeat.send_replace(());
            clients.mark_unchanged();
            policy.mark_unchanged();
            leaves.mark_unchanged();
            serving.mark_unchanged();
            health.mark_unchanged();
            shared.mark_unchanged();
            peers.mark_unchanged();
            self.snapshot_builder.set_settings(settings.borrow_and_update().clone());
            debounce.set_window(settings.borrow().settle);
            let members = register.borrow_and_update().members;
            debounce.start_pass(Instant::now());
            // A pass compiles and may write to the store: other tasks continue on other threads.
            tokio::task::block_in_place(|| self.reconcile(Timestamp::now()));
            let clock = self.deadline();
            let mut is_late = false;
            loop {
                let now = Instant::now();
                let due = debounce.due(now);
                if due.is_some_and(|due| due <= now) && !shutdown.is_cancelled() {
                    break;
                }
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok(()),
                    _ = heartbeats.tick() => self.heartbeat.send_replace(()),
                    changed = policy.changed() => {
                        if changed.is_err() {
                            return ended("policy source", &shutdown);
                        }
                        debounce.note(Cause::Source);
                    }
                    () = endpoints.notified() => debounce.note(Cause::Source),
                    Some(acceptance) = self.acceptances.recv() => {
                        self.accept(acceptance);
                        debounce.note(Cause::Source);
                    }
                    changed = register.changed() => {
                        if changed.is_err() {
                            return ended("register", &shutdown);
                        }
                        // Most changes are progress of proxies, which follows from their answers.
                        let are_others = register.borrow_and_update().members > members;
                        debounce.note(if are_others { Cause::Source } else { Cause::Clients });
                    }
                    _ = leaves.changed() => debounce.note(Cause::Source),
                    _ = shared.changed() => debounce.note(Cause::Source),
                    _ = peers.changed() => debounce.note(Cause::Clients),
                    _ = health.changed() => debounce.note(Cause::Source),
                    _ = serving.changed() => debounce.note(Cause::Clients),
                    // Without a sender, the settings stay.
                    Ok(()) = settings.changed() => debounce.note(Cause::Source),
                    changed = clients.changed() => {
                        if changed.is_err() {
                            return ended("xDS server", &shutdown);
                        }
                        debounce.note(Cause::Clients);
                    }
                    _ = compare_clocks.tick() => {
                        if self.compare_clocks() {
                            debounce.note(Cause::Source);
                        }
                    }
                    () = sleep_until(due.unwrap_or(now)), if due.is_some() => {}
                    () = sleep_until(clock), if !is_late => {
                        is_late = true;
                        debounce.note(Cause::Clients);
                    }
                }
            }
        }
    }

    /// When the next pass is due although nothing changes.
    fn deadline(&self) -> Instant {
        let others = [
            self.rollout_order.deadline(),
            self.endpoints.deadline(),
            self.liveness.deadline(),
            self.duplicates.deadline(),
            self.pending_servers.deadline(),
            self.nack_tracker.retries.deadline(),
            self.leaves.deadline(),
            self.health.deadline(),
            self.reissues.deadline(),
        ];
        others.into_iter().flatten().fold(self.next_tick, Instant::min)
    }

    #[tracing::instrument(level = "debug", skip_all)]
    fn reconcile(&mut self, now: Timestamp) {
        self.change_log.begin_pass();
        // By the clock, not by the wake-up: a client that answers without end would postpone it forever.
        let is_tick = Instant::now() >= self.next_tick;
        let clock = self.clock.reading(now, Instant::now());
        if is_tick {
            self.next_tick = Instant::now() + TICK;
            self.compare_provider_clocks(now);
            self.register.restore(now);
            if self.clock.recent_jump(Instant::now()).is_none() {
                self.register.retire(now);
            }
        }
        self.update_shared(is_tick, clock);
        let Some(specification) = self.policy.borrow().specification.clone() else { return };
        let news = self.hub.take_changed();
        self.close_revoked_streams();
        self.follow_peers(now);
        self.update_presence(&news, now);
        self.note_serving();
        self.check_duplicates(&news, now);
        let (mut unserved, mut connected) = (Vec::new(), BTreeSet::new());
        for (client, news) in &news {
            if news.streams > 0 {
                if !news.has_set {
                    connected.insert(Arc::clone(client));
                }
                if !self.clients.connected(client, &news.node) || !news.has_set {
                    unserved.push(Arc::clone(client));
                }
            } else {
                self.change_log.settle(client);
                let was_served = self.clients.disconnected(client);
                self.nack_tracker.disconnected(client);
                let id = client.parse::<ProxyId>().ok();
                if let Some((id, compiler)) = id.zip(self.snapshot_builder.compiler()) {
                    compiler.forget(id);
                }
                if let Some(id) = id {
                    // The notes of peers may have come while its last stream was open here.
                    self.follow_nacks(id, client, news.process_starts);
                    self.convergence.send_if_modified(|convergence| {
                        convergence.depart(id, was_served, news.was_synced, now);
                        // Published with the rest of the pass.
                        false
                    });
                    self.is_convergence_news = true;
                }
                self.inactive_resources
                    .send_if_modified(|all| id.is_some_and(|id| all.remove(&id).is_some()));
                self.rollout_order.forget(client);
                self.pending_progress.remove(client);
            }
        }
        self.mark_unreachable();
        let waiting = self.refused_certificates(is_tick, now);
        let (records, revoked) = (self.register.records(), self.register.revoked());
        self.clear_unreachable(&records, is_tick);
        self.forget_unused(&records, is_tick);
        self.follow_cordons(&records);
        self.leaves.expire(Instant::now(), |id| self.peers.connection(id).is_some());
        self.health.expire(Instant::now());
        self.note_leaves();
        let (leaving, health) = (self.leaves.current(), self.merge_health());
        let discovered = self.endpoints.discover(&specification, &records, current_time(now));
        let sources =
            Sources { specification, records, revoked, waiting, leaving, health, discovered };
        let changes = self.snapshot_builder.build(sources, clock, is_tick);
        self.find_changes();
        let is_ready = self.endpoints.are_synced(Instant::now());
        let mut affected = self.clients.affected(&changes);
        let mut to_publish = BTreeSet::new();
        if let Some(compiler) = self.snapshot_builder.compiler() {
            to_publish = self.clients.replace_endpoints(&changes, &affected, compiler);
            let renewed = self.clients.renew_applications(&changes, &affected, compiler);
            // Whether their ports have a backend may differ.
            self.pending_progress.extend(renewed.iter().cloned());
            to_publish.extend(renewed);
        }
        affected.extend(unserved);
        affected.extend(std::mem::take(&mut self.unrecorded));
        self.compile(&affected);
        self.unrecorded = self.record_shared_accounts(&affected);
        to_publish.extend(self.track_nacks(&news, &affected));
        self.retry_nacked();
        to_publish.extend(affected);
        let mut touched = std::mem::take(&mut self.published_to);
        touched.append(&mut news.into_iter().map(|(client, _)| client).collect());
        self.nack_tracker.update_quarantine(&self.hub, &self.peers);
        to_publish.extend(self.nack_tracker.take_affected());
        if let Some(snapshot) = self.snapshot_builder.snapshot() {
            let (clients, hub, peers) = (&self.clients, &*self.hub, &*self.peers);
            let (examined, now) = (&ExaminedClusters::default(), Instant::now());
            let context = RolloutContext { snapshot, clients, hub, peers, examined, now };
            to_publish.extend(self.rollout_order.due(context));
        }
        to_publish.retain(|client| !self.unrecorded.contains(client));
        let changed = self.publish_sets(&to_publish);
        touched.append(&mut to_publish.clone());
        self.examine_convergence(&touched, &changed, &connected, now);
        self.note_acked_leaves();
        self.published_to = to_publish;
        self.record_participation();
        if is_tick {
            self.forget_unregistered(now);
        }
        // Operators and the disk come after the proxies.
        if let Some(away) = self.liveness.take_disconnected(Instant::now()) {
            let grace = Some(self.started).filter(|_| self.liveness.is_in_grace());
            self.disconnected.send_replace(DisconnectedProxies { since: away, grace });
        }
        self.check_certificates(is_tick, now);
        self.publish_mesh(now);
        self.endpoints.store_changes(Instant::now());
        if is_ready && !*self.ready.borrow() {
            self.liveness.start_grace(&self.register.records(), Instant::now(), now);
            self.ready.send_replace(true);
        }
    }

    /// Drops what is known of proxies that are not in use any more: their leaves, and the findings about them.
    fn forget_unused(&mut self, records: &Records, is_tick: bool) {
        let members = self.register.generation().borrow().members;
        if std::mem::replace(&mut self.members, members) == members && !is_tick {
            return;
        }
        self.leaves.retain(|id| records.contains_key(&id));
        self.serving.retain(|id| records.contains_key(&id));
        self.health.retain(|id| records.contains_key(&id));
        self.peers.retain(|id| records.contains_key(&id));
        self.served_at.retain(|id, _| records.contains_key(id));
        self.findings.send_if_modified(|all| {
            let before = all.len();
            all.retain(|id, _| records.contains_key(id));
            all.len() < before
        });
    }

    /// Forgets disconnected clients that the register no longer has, and state that no client needs.
    fn forget_unregistered(&mut self, now: Timestamp) {
        if let Err(error) = self.register.forget(now, Instant::now()) {
            tracing::error!(error = chain(&error), "cannot remove expired join records");
        }
        let records = self.register.records();
        let is_known = |client: &ClientKey| {
            client.parse::<ProxyId>().is_ok_and(|id| records.contains_key(&id))
        };
        let away = self.hub.disconnected_clients().into_iter().chain(self.nack_tracker.moved());
        for client in away.collect::<BTreeSet<_>>().iter().filter(|client| !is_known(client)) {
            self.hub.forget(client);
            self.nack_tracker.forget(client);
        }
        self.convergence.send_if_modified(|convergence| {
            convergence.retain_departed(|id| records.contains_key(&id));
            false
        });
        self.nack_tracker.prune(&self.clients);
    }
}

/// The reconciler's result when one of its sources has ended: a failure, except during shutdown, when all sources end
/// in any order.
fn ended(source: &str, shutdown: &CancellationToken) -> anyhow::Result<()> {
    anyhow::ensure!(shutdown.is_cancelled(), "the {source} ended by itself");
    Ok(())
}

#[cfg(test)]
mod tests;
