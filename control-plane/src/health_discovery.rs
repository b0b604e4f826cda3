//! Health discovery: what Envoys without an agent probe, and what their reports mean.
//!
//! The owner of the open streams' specifiers: one task follows the snapshots, and changes those of affected proxies. Reports
//! go into the health table. An Envoy with an agent gets an empty specifier: the agent probes (docs/decisions/0082).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    ApplicationState, CertificateSource, HealthSource, JoinRecord, NodeMetadata, Probe,
    ProbedApplication, Proxy, ProxyId, ServicePort, Snapshot,
};
use ironmesh_xds_compile::health_discovery::{can_probe, health_check_specifier};
use ironmesh_xds_compile::names::{port_of_local_cluster, port_of_passed_cluster};
use ironmesh_xds_wire::pb::envoy::service::health::v3::HealthCheckSpecifier;
use ironmesh_xds_wire::{EndpointReport, ProbeResult};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::health_table::{HealthTable, Report, ReportRejection, ReportedStates};

mod counters;
#[cfg(test)]
mod tests;

pub(crate) use counters::{HealthCounters, ReportOutcome};

/// So many reports per second come from all Envoys. They need no handshake, unlike those of agents.
const REPORTS_PER_SECOND: u64 = 500;

/// The longest interval of the reports.
const MOST_INTERVAL: Duration = Duration::from_secs(256);

/// The interval of an Envoy that probes nothing. A new specifier replaces it at once.
const IDLE_INTERVAL: Duration = Duration::from_secs(300);

/// A report lasts for so many intervals, and at least for so long: a busy control plane is no silence of its Envoys.
const LIFETIME: u32 = 3;
const LEAST_LIFETIME: Duration = Duration::from_secs(30);

/// The most endpoints in a report: two for each application.
const MAX_ENDPOINTS: usize = 2 * ProbedApplication::MAX;

const NO_COMMANDS: &str = "an Envoy without an agent runs no commands";
const NO_SUCH_PROBE: &str = "this version does not know the probe";

/// The Envoys that probe, and what they probe.
#[derive(Debug)]
pub(crate) struct HealthDiscovery {
    table: Arc<HealthTable>,
    snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    streams: Mutex<BTreeMap<ProxyId, ProbingEnvoy>>,
    pub(crate) counters: HealthCounters,
}

/// What an application's port is: the service port that it serves, and where it listens.
type ApplicationKey = (ServicePort, u16);

/// An Envoy with a stream.
#[derive(Debug)]
struct ProbingEnvoy {
    metadata: NodeMetadata,
    applications: Vec<ProbedApplication>,
    /// Their keys.
    keys: BTreeSet<ApplicationKey>,
    address: IpAddr,
    interval: Duration,
    /// The applications that have passed while this stream was open. A new stream may be one of a new process.
    passed: BTreeSet<ApplicationKey>,
    /// The others that fail although they have passed before, as Envoy remembers, and since when.
    remembered: BTreeMap<ApplicationKey, Instant>,
    specifier: watch::Sender<Arc<HealthCheckSpecifier>>,
}

impl HealthDiscovery {
    pub(crate) fn new(
        table: Arc<HealthTable>,
        snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    ) -> Self {
        Self { table, snapshot, streams: Mutex::default(), counters: HealthCounters::default() }
    }

    /// Registers a new stream of a proxy, in place of an earlier one. The result is what it probes, and changes with it.
    pub(crate) fn open(
        &self,
        record: &JoinRecord,
        metadata: NodeMetadata,
    ) -> watch::Receiver<Arc<HealthCheckSpecifier>> {
        let mut envoy = ProbingEnvoy {
            address: Proxy { record: record.clone(), metadata: metadata.clone() }.app_address(),
            metadata,
            applications: Vec::new(),
            keys: BTreeSet::new(),
            interval: IDLE_INTERVAL,
            passed: BTreeSet::new(),
            remembered: BTreeMap::new(),
            specifier: watch::Sender::default(),
        };
        let mut streams = self.streams.lock();
        // A mesh without health checks has no updates, which forget closed streams.
        if streams.len().is_power_of_two() {
            streams.retain(|_, envoy| envoy.specifier.receiver_count() > 0);
        }
        // Under the lock: the task that follows the snapshots has seen this one, or updates the stream later.
        let snapshot = self.snapshot.borrow().clone();
        envoy.update(record, snapshot.as_deref());
        let specifier = envoy.specifier.subscribe();
        streams.insert(record.id, envoy);
        specifier
    }

    /// Records a report of a proxy.
    pub(crate) fn report(&self, id: ProxyId, endpoints: Vec<EndpointReport>, now: Instant) {
        let mut streams = self.streams.lock();
        let Some(envoy) = streams.get_mut(&id) else { return };
        let outcome = self.record(id, envoy, endpoints, now);
        drop(streams);
        self.counters.count(outcome);
    }

    fn record(
        &self,
        id: ProxyId,
        envoy: &mut ProbingEnvoy,
        endpoints: Vec<EndpointReport>,
        now: Instant,
    ) -> ReportOutcome {
        if envoy.metadata.certificates == CertificateSource::Agent {
            return ReportOutcome::AgentReports;
        }
        if endpoints.len() > MAX_ENDPOINTS {
            return ReportOutcome::TooLarge;
        }
        let has_report = self.table.has_report(id);
        let (states, has_others) = envoy.states(endpoints, has_report, now);
        if states.is_empty() && !has_report {
            return if has_others {
                ReportOutcome::OtherEndpoints
            } else {
                ReportOutcome::Recorded
            };
        }
        let lifetime = (envoy.interval * LIFETIME).max(LEAST_LIFETIME);
        let probe = |one: &ProbedApplication| (one.service_port.clone(), one.check.probe.clone());
        let probes = envoy.applications.iter().map(probe).collect();
        let report = Report { source: HealthSource::Envoy, states, probes, lifetime };
        match self.table.report(id, report, (Timestamp::now(), now)) {
            Ok(()) if has_others => ReportOutcome::OtherEndpoints,
            Ok(()) => ReportOutcome::Recorded,
            Err(ReportRejection::TooFrequent) => ReportOutcome::TooFrequent,
            Err(ReportRejection::AgentReports) => ReportOutcome::AgentReports,
        }
    }

    /// Follows the snapshots until `shutdown`.
    pub(crate) async fn follow(self: Arc<Self>, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut snapshots = self.snapshot.clone();
        let mut known: Option<(Arc<Snapshot>, bool)> = None;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                changed = snapshots.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
            let Some(next) = snapshots.borrow_and_update().clone() else { continue };
            let same_policy = known
                .as_ref()
                .filter(|(known, _)| Arc::ptr_eq(&known.specification, &next.specification));
            let has_checks = same_policy.map_or_else(|| has_health_checks(&next), |(_, has)| *has);
            let had_checks = known.as_ref().is_some_and(|(_, had)| *had);
            // A mesh without health checks costs nothing more.
            if has_checks || had_checks {
                self.update(same_policy.map(|(known, _)| &**known), &next);
            }
            known = Some((next, has_checks));
        }
    }

    /// Changes what affected proxies probe: all of them, unless `earlier` has the same policy.
    fn update(&self, earlier: Option<&Snapshot>, next: &Snapshot) {
        let interval = |snapshot: &Snapshot| report_interval(snapshot.proxy_count());
        let earlier = earlier.filter(|earlier| interval(earlier) == interval(next));
        let mut streams = self.streams.lock();
        streams.retain(|_, envoy| envoy.specifier.receiver_count() > 0);
        let affected: BTreeSet<_> = match earlier {
            Some(earlier) => next.proxies_with_other_applications(earlier).collect(),
            None => streams.keys().copied().collect(),
        };
        for id in affected {
            if let (Some(envoy), Some(record)) = (streams.get_mut(&id), next.record(id)) {
                envoy.update(record, Some(next));
            }
        }
    }
}

impl ProbingEnvoy {
    /// Changes what it probes, if it differs.
    fn update(&mut self, record: &JoinRecord, snapshot: Option<&Snapshot>) {
        let applications = match (self.metadata.certificates, snapshot) {
            (CertificateSource::Ads, Some(snapshot)) => snapshot.probed_applications(record),
            (CertificateSource::Agent, _) | (_, None) => Vec::new(),
        };
        // (An Envoy that can run none of the probes reports all the same, so that operators see why.)
        self.interval = match snapshot {
            Some(snapshot) if !applications.is_empty() => report_interval(snapshot.proxy_count()),
            _ => IDLE_INTERVAL,
        };
        let specifier = health_check_specifier(&applications, self.address, self.interval);
        let key = |one: &ProbedApplication| (one.service_port.clone(), one.target);
        self.keys = applications.iter().map(key).collect();
        self.applications = applications;
        self.passed.retain(|key| self.keys.contains(key));
        self.remembered.retain(|key, _| self.keys.contains(key));
        self.specifier.send_if_modified(|current| {
            let is_new = **current != specifier;
            if is_new {
                *current = Arc::new(specifier);
            }
            is_new
        });
    }

    /// The states of its applications by a report, and whether the report has other endpoints. `has_report` is whether
    /// there was one before.
    fn states(
        &mut self,
        endpoints: Vec<EndpointReport>,
        has_report: bool,
        now: Instant,
    ) -> (BTreeMap<ServicePort, ReportedStates>, bool) {
        let (mut results, mut memories) = (BTreeMap::new(), BTreeSet::new());
        let mut has_others = false;
        for endpoint in endpoints {
            let result = endpoint.result;
            match self.application(&endpoint) {
                Some((key, Check::Policy)) => drop(results.insert(key, result)),
                Some((key, Check::Memory)) if result == ProbeResult::Passing => {
                    memories.insert(key);
                }
                Some((_, Check::Memory)) => {}
                None => has_others = true,
            }
        }
        let mut states: BTreeMap<ServicePort, ReportedStates> = BTreeMap::new();
        for one in &self.applications {
            let key = (one.service_port.clone(), one.target);
            let state = match (&one.check.probe, results.get(&key)) {
                (Probe::Command { .. }, _) => unknown(NO_COMMANDS),
                (probe, _) if !can_probe(probe) => unknown(NO_SUCH_PROBE),
                (_, None) if !has_report => continue,
                // A new process may report before it knows the specifier: what failed before stays out of use.
                (_, None) => (ApplicationState::Unknown, None),
                (_, Some(ProbeResult::Passing)) => {
                    self.passed.insert(key.clone());
                    (ApplicationState::Healthy, None)
                }
                (probe, Some(result)) => {
                    let reason = match result {
                        ProbeResult::TimedOut => {
                            format!("no answer within {} ms", one.check.timeout.as_millis())
                        }
                        _ => format!("Envoy's {probe} probe fails"),
                    };
                    let has_passed = if memories.contains(&key) {
                        // At the start, this check may pass before that of policy ends.
                        let since = *self.remembered.entry(key.clone()).or_insert(now);
                        now >= since
                            + one.check.timeout
                            + one.check.interval * one.check.healthy_threshold
                    } else {
                        self.remembered.remove(&key);
                        false
                    };
                    let state = if has_passed || self.passed.contains(&key) {
                        ApplicationState::Unhealthy
                    } else {
                        // Envoy takes it for unhealthy until the first success.
                        ApplicationState::Unknown
                    };
                    (state, Some(reason))
                }
            };
            states.entry(key.0).or_default().insert(key.1, state);
        }
        (states, has_others)
    }

    /// Which of its applications an endpoint is, and which of the two checks it has.
    fn application(&self, endpoint: &EndpointReport) -> Option<(ApplicationKey, Check)> {
        let address = endpoint.address.filter(|address| address.ip() == self.address)?;
        let policy = port_of_local_cluster(&endpoint.cluster).map(|port| (port, Check::Policy));
        let memory = || Some((port_of_passed_cluster(&endpoint.cluster)?, Check::Memory));
        let (port, check) = policy.or_else(memory)?;
        let key = (port, address.port());
        self.keys.contains(&key).then_some((key, check))
    }
}

/// One of the two checks of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The one of policy.
    Policy,
    /// The one by which Envoy remembers that the application has passed.
    Memory,
}

fn unknown(reason: &str) -> (ApplicationState, Option<String>) {
    (ApplicationState::Unknown, Some(reason.to_owned()))
}

fn has_health_checks(snapshot: &Snapshot) -> bool {
    snapshot.specification.services.values().any(|service| service.health.is_some())
}

/// When Envoys report, in a mesh of so many proxies: a power of two, so that it hardly ever changes.
fn report_interval(proxies: usize) -> Duration {
    let seconds = (proxies as u64).div_ceil(REPORTS_PER_SECOND).max(1).next_power_of_two();
    Duration::from_secs(seconds).min(MOST_INTERVAL)
}
