//! The probes of this machine: one task for each, and their states.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{HealthCheck, ServiceName};
use ironmesh_enrollment::{
    ApplicationProbe, HealthReport, MAX_REASON, MAX_REPORTED_APPLICATIONS, ReportedApplication,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::probe::probe;
use super::tracker::ProbeTracker;
use crate::activity::{AgentState, ProbeActivity};
use crate::settings::{AgentSettings, Commands};

/// The longest wait before the first probe: so that the probes of a machine do not all come at once.
const MOST_OFFSET: Duration = Duration::from_secs(1);

/// An application: the service, the service port, and the port on which it listens.
type Key = (ServiceName, u16, u16);

/// The probes of this machine. Dropping it ends them.
pub(super) struct ProbeTable {
    address: IpAddr,
    commands: Arc<Commands>,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    handles: BTreeMap<Key, AbortHandle>,
}

struct Shared {
    probes: Mutex<BTreeMap<Key, Probed>>,
    changed: Notify,
    state: AgentState,
}

#[derive(Debug, Clone)]
struct Probed {
    check: HealthCheck,
    tracker: ProbeTracker,
    since: Timestamp,
}

impl ProbeTable {
    /// No probes yet.
    pub(super) fn new(settings: &AgentSettings, address: IpAddr, state: AgentState) -> Self {
        state.probes(Vec::new());
        let shared = Shared { probes: Mutex::default(), changed: Notify::new(), state };
        Self {
            address,
            commands: Arc::new(settings.commands.clone()),
            shared: Arc::new(shared),
            tasks: JoinSet::new(),
            handles: BTreeMap::new(),
        }
    }

    /// Replaces the probes. One with the same health check goes on, and one with a changed check keeps its state.
    pub(super) fn replace(&mut self, probes: Vec<ApplicationProbe>) {
        while self.tasks.try_join_next().is_some() {}
        let key = |one: &ApplicationProbe| (one.service.clone(), one.check.port, one.target);
        let wanted: BTreeMap<Key, HealthCheck> = probes
            .into_iter()
            .take(MAX_REPORTED_APPLICATIONS)
            .map(|one| (key(&one), one.check))
            .collect();
        let mut known = self.shared.probes.lock();
        let is_same = |key: &Key, wanted: &BTreeMap<_, _>, known: &BTreeMap<Key, Probed>| {
            wanted.get(key) == known.get(key).map(|probed| &probed.check)
        };
        self.handles.retain(|key, handle| {
            let stays = is_same(key, &wanted, &known);
            if !stays {
                handle.abort();
            }
            stays
        });
        known.retain(|key, _| wanted.contains_key(key));
        for (key, check) in wanted {
            if self.handles.contains_key(&key) {
                continue;
            }
            let before = known.get(&key).cloned();
            let (tracker, since) = before.map_or_else(
                || (ProbeTracker::default(), Timestamp::now()),
                |before| (before.tracker, before.since),
            );
            known.insert(key.clone(), Probed { check: check.clone(), tracker, since });
            let address = SocketAddr::new(self.address, key.2);
            let (shared, commands) = (Arc::clone(&self.shared), Arc::clone(&self.commands));
            let task = probe_for_ever(key.clone(), check, address, commands, shared);
            self.handles.insert(key, self.tasks.spawn(task));
        }
        self.shared.show(&known);
    }

    /// Whether there are no probes.
    pub(super) fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// The states of all probes.
    pub(super) fn report(&self) -> HealthReport {
        let known = self.shared.probes.lock();
        let application = |((service, port, target), probed): (&Key, &Probed)| {
            let reason = probed.tracker.last_error.as_ref();
            ReportedApplication {
                service: service.clone(),
                port: *port,
                target: *target,
                state: probed.tracker.state,
                reason: reason.map(|reason| reason.chars().take(MAX_REASON).collect()),
            }
        };
        HealthReport {
            applications: known.iter().map(application).collect(),
            ..HealthReport::default()
        }
    }

    /// Waits until the state of a probe changes.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Shared {
    /// Notes the outcome of a probe, unless it was removed.
    fn note(&self, key: &Key, outcome: Result<(), String>) {
        let mut probes = self.probes.lock();
        let Some(probed) = probes.get_mut(key) else { return };
        let before = probed.tracker.last_error.clone();
        let is_changed = probed.tracker.note(outcome, &probed.check);
        if is_changed {
            probed.since = Timestamp::now();
            let (state, reason) = (probed.tracker.state, probed.tracker.last_error.as_deref());
            tracing::info!(service = %key.0, port = key.1, %state, reason, "health of an application changed");
            self.changed.notify_one();
        }
        if is_changed || probed.tracker.last_error != before {
            self.show(&probes);
        }
    }

    /// Shows the probes in the status of the agent.
    fn show(&self, probes: &BTreeMap<Key, Probed>) {
        let activity = |((service, port, target), probed): (&Key, &Probed)| ProbeActivity {
            service: service.clone(),
            port: *port,
            target_port: *target,
            kind: probed.check.probe.to_string(),
            state: probed.tracker.state,
            since: probed.since,
            last_error: probed.tracker.last_error.clone(),
        };
        self.state.probes(probes.iter().map(activity).collect());
    }
}

async fn probe_for_ever(
    key: Key,
    check: HealthCheck,
    address: SocketAddr,
    commands: Arc<Commands>,
    shared: Arc<Shared>,
) {
    // (A control plane of another version may not have the limits of this one.)
    let interval = check.interval.max(Duration::from_secs(1));
    let timeout = check.timeout.min(interval);
    let offset = interval.min(MOST_OFFSET).mul_f64(fastrand::f64());
    let mut ticks = interval_at(Instant::now() + offset, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let outcome = probe(&check.probe, address, timeout, &commands).await;
        shared.note(&key, outcome);
    }
}
