//! The health table: the health of applications, by the newest report of each proxy's agent, or of its Envoy.
//!
//! It is the one writer of these reports, which are in memory alone: no flap reaches the store, and after a restart the
//! health is unknown until the next reports. A report expires when its source is silent for three intervals. The table
//! never decides what callers get: the reconciler puts the reports into each snapshot (docs/decisions/0081, 0082).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    ApplicationHealth, ApplicationState, HealthSource, PortHealth, Probe, ProxyId,
    ReportedApplications, ServicePort,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// The least time between two reports of a proxy. An agent and an Envoy wait for a second.
const LEAST_INTERVAL: Duration = Duration::from_millis(500);

/// The reported state of each application of a service port, by the port on which it listens, with the reason.
pub(crate) type ReportedStates = BTreeMap<u16, (ApplicationState, Option<String>)>;

/// Why a report changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportRejection {
    /// The proxy reported again before [`LEAST_INTERVAL`] had passed.
    TooFrequent,
    /// The agent of the proxy reports, and so its Envoy does not count.
    AgentReports,
}

/// A report about the applications of a proxy.
#[derive(Debug)]
pub(crate) struct Report {
    /// The component that probes them.
    pub(crate) source: HealthSource,
    pub(crate) states: BTreeMap<ServicePort, ReportedStates>,
    /// The probe of each of these service ports.
    pub(crate) probes: BTreeMap<ServicePort, Probe>,
    /// How long it lasts.
    pub(crate) lifetime: Duration,
}

/// The newest report of each proxy.
#[derive(Debug, Default)]
pub(crate) struct HealthTable {
    reports: Mutex<Reports>,
    /// Changes with each change of a state.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Reports {
    current: ReportedApplications,
    by_proxy: BTreeMap<ProxyId, Reported>,
    ends: BTreeSet<(Instant, ProxyId)>,
}

#[derive(Debug)]
struct Reported {
    received: Instant,
    expires: Instant,
    source: HealthSource,
    probes: BTreeMap<ServicePort, Probe>,
}

impl HealthTable {
    /// Replaces the report of a proxy.
    pub(crate) fn report(
        &self,
        id: ProxyId,
        report: Report,
        (now, instant): (Timestamp, Instant),
    ) -> Result<(), ReportRejection> {
        let Report { source, states, probes, lifetime } = report;
        let mut reports = self.reports.lock();
        if let Some(earlier) = reports.by_proxy.get(&id).filter(|known| instant < known.expires) {
            if (earlier.source, source) == (HealthSource::Agent, HealthSource::Envoy) {
                return Err(ReportRejection::AgentReports);
            }
            if earlier.source == source && instant < earlier.received + LEAST_INTERVAL {
                return Err(ReportRejection::TooFrequent);
            }
        }
        let ports: BTreeSet<_> = states.keys().cloned().collect();
        let known = reports.by_proxy.get(&id);
        let is_same = |port| known.is_some_and(|known| known.probes.get(port) == probes.get(port));
        let with_same_probe: BTreeSet<_> =
            ports.iter().filter(|port| is_same(*port)).cloned().collect();
        let gone = reports.forget(id, &ports);
        let mut is_changed = gone;
        for (port, states) in states {
            let has_same_probe = with_same_probe.contains(&port);
            is_changed |= reports.replace((id, port), states, has_same_probe, (source, now));
        }
        let expires = instant + lifetime;
        let reported = Reported { received: instant, expires, source, probes };
        reports.by_proxy.insert(id, reported);
        reports.ends.insert((expires, id));
        drop(reports);
        if is_changed {
            self.changes.send_replace(());
        }
        Ok(())
    }

    /// Forgets the report of a proxy if it is older than one that has come to a peer, whose age is given.
    pub(crate) fn give_way(&self, id: ProxyId, age: Duration, now: Instant) {
        let mut reports = self.reports.lock();
        if reports.by_proxy.get(&id).is_some_and(|known| now - known.received > age) {
            reports.forget(id, &BTreeSet::new());
        }
    }

    /// Whether there is a report of a proxy.
    pub(crate) fn has_report(&self, id: ProxyId) -> bool {
        self.reports.lock().by_proxy.contains_key(&id)
    }

    /// Forgets the reports whose sources are silent: their applications are unknown.
    pub(crate) fn expire(&self, now: Instant) {
        let mut reports = self.reports.lock();
        while let Some((_, id)) = reports.ends.first().copied().filter(|(ends, _)| *ends <= now) {
            let source = reports.by_proxy.get(&id).map(|known| known.source);
            if reports.forget(id, &BTreeSet::new()) {
                tracing::info!(proxy = %id, ?source, reason = "its source is silent", "application health is unknown");
            }
        }
    }

    /// When the next report expires.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.reports.lock().ends.first().map(|(ends, _)| *ends)
    }

    /// Forgets the reports of proxies that are not in use any more.
    pub(crate) fn retain(&self, is_in_use: impl Fn(ProxyId) -> bool) {
        let mut reports = self.reports.lock();
        let gone: Vec<_> = reports.by_proxy.keys().copied().filter(|id| !is_in_use(*id)).collect();
        for id in gone {
            reports.forget(id, &BTreeSet::new());
        }
    }

    /// The health of all reported applications.
    pub(crate) fn current(&self) -> ReportedApplications {
        self.reports.lock().current.clone()
    }

    /// Notifies of changed states.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

impl Reports {
    /// Removes what is known of a proxy, except these ports. Returns whether that changes the current health.
    fn forget(&mut self, id: ProxyId, except: &BTreeSet<ServicePort>) -> bool {
        let Some(known) = self.by_proxy.remove(&id) else { return false };
        self.ends.remove(&(known.expires, id));
        let gone = known.probes.into_keys().filter(|port| !except.contains(port));
        let removed: Vec<_> = gone.filter_map(|port| self.current.remove(&(id, port))).collect();
        !removed.is_empty()
    }

    /// Replaces the states of one service port. Returns whether a state has changed.
    fn replace(
        &mut self,
        key: (ProxyId, ServicePort),
        states: ReportedStates,
        has_same_probe: bool,
        (source, now): (HealthSource, Timestamp),
    ) -> bool {
        let known = self.current.get(&key).cloned().unwrap_or_default();
        let next = |(target, (state, reason)): (u16, (ApplicationState, Option<String>))| {
            let before = known.get(&target);
            let is_same = |before: &&ApplicationHealth| {
                let states = (before.state, state);
                match states {
                    // A changed probe has a reason of its own.
                    (ApplicationState::Unknown, ApplicationState::Unknown) => {
                        let has_first_reason = before.reason.is_none() && reason.is_some();
                        has_same_probe && before.source == source && !has_first_reason
                    }
                    // A source that starts again knows of no earlier success: the application fails as before. Another
                    // probe knows nothing of it, and may be one that cannot run there.
                    (ApplicationState::Unhealthy, ApplicationState::Unknown) => has_same_probe,
                    _ => before.state == state && before.source == source,
                }
            };
            let health = before.filter(is_same).cloned().unwrap_or_else(|| ApplicationHealth {
                state,
                since: now,
                reason: reason.map(Into::into),
                source,
            });
            (target, health)
        };
        let next: PortHealth = states.into_iter().map(next).collect();
        if self.current.get(&key).is_some_and(|known| **known == next) {
            return false;
        }
        self.current.insert(key, Arc::new(next));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ApplicationState::{Healthy, Unhealthy, Unknown};

    const LIFETIME: Duration = Duration::from_secs(30);

    fn proxy() -> ProxyId {
        "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap()
    }

    fn port() -> ServicePort {
        ServicePort::new("shop/store".parse().unwrap(), 80)
    }

    /// Reports a state of the one application, at this second.
    fn report(table: &HealthTable, start: Instant, state: ApplicationState, second: u64) {
        let at = (Timestamp::UNIX_EPOCH, start + Duration::from_secs(second));
        table.report(proxy(), of(HealthSource::Agent, state), at).unwrap();
    }

    fn of(source: HealthSource, state: ApplicationState) -> Report {
        let states = [(port(), ReportedStates::from([(8080, (state, None))]))].into();
        Report { source, states, probes: [(port(), Probe::Tcp)].into(), lifetime: LIFETIME }
    }

    fn state(table: &HealthTable) -> Option<ApplicationState> {
        Some(table.current().get(&(proxy(), port()))?.get(&8080)?.state)
    }

    #[test]
    fn silent_agent_makes_health_unknown_after_the_lifetime() {
        let (table, start) = (HealthTable::default(), Instant::now());
        report(&table, start, Healthy, 0);
        report(&table, start, Unhealthy, 10);
        assert_eq!(table.deadline(), Some(start + Duration::from_secs(40)));
        table.expire(start + Duration::from_secs(39));
        assert_eq!(state(&table), Some(Unhealthy));
        table.expire(start + Duration::from_secs(40));
        assert_eq!((state(&table), table.deadline()), (None, None));
    }

    #[test]
    fn restarted_agent_does_not_return_a_failing_application() {
        let (table, start) = (HealthTable::default(), Instant::now());
        report(&table, start, Unhealthy, 0);
        report(&table, start, Unknown, 1);
        assert_eq!(state(&table), Some(Unhealthy));
        report(&table, start, Healthy, 2);
        report(&table, start, Unknown, 3);
        assert_eq!(state(&table), Some(Unknown));
    }

    #[test]
    fn other_probe_forgets_what_the_earlier_one_has_found() {
        let (table, start) = (HealthTable::default(), Instant::now());
        let report = |second, probe, (state, reason): (_, Option<&str>)| {
            let states = ReportedStates::from([(8080, (state, reason.map(str::to_owned)))]);
            let report = Report {
                probes: [(port(), probe)].into(),
                states: [(port(), states)].into(),
                ..of(HealthSource::Envoy, state)
            };
            let at = (Timestamp::UNIX_EPOCH, start + Duration::from_secs(second));
            table.report(proxy(), report, at).unwrap();
            let current = table.current();
            let health = current.get(&(proxy(), port())).unwrap().get(&8080).unwrap();
            (health.state, health.reason.as_deref().map(str::to_owned))
        };
        let command = || Probe::Command { name: "check".parse().unwrap() };
        report(0, Probe::Tcp, (Unhealthy, Some("it fails")));
        let kept = report(1, Probe::Tcp, (Unknown, None));
        assert_eq!(kept, (Unhealthy, Some("it fails".to_owned())));
        assert_eq!(report(2, command(), (Unknown, None)), (Unknown, None));
        let other = report(3, command(), (Unknown, Some("no commands")));
        assert_eq!(other, (Unknown, Some("no commands".to_owned())));
        let back = report(4, Probe::Tcp, (Unknown, Some("it fails")));
        assert_eq!(back, (Unknown, Some("it fails".to_owned())));
    }

    #[test]
    fn unchanged_report_wakes_nobody_and_shares_the_current_health() {
        let (table, start) = (HealthTable::default(), Instant::now());
        report(&table, start, Healthy, 0);
        let (mut changes, before) = (table.changes(), table.current());
        report(&table, start, Healthy, 1);
        assert!(!changes.has_changed().unwrap() && table.current().ptr_eq(&before));
        report(&table, start, Unhealthy, 2);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
    }

    #[test]
    fn too_frequent_report_is_rejected_and_changes_nothing() {
        let (table, start) = (HealthTable::default(), Instant::now());
        report(&table, start, Healthy, 0);
        let at = (Timestamp::UNIX_EPOCH, start + Duration::from_millis(100));
        let rejected = table.report(proxy(), of(HealthSource::Agent, Unhealthy), at);
        assert_eq!(rejected, Err(ReportRejection::TooFrequent));
        assert_eq!(state(&table), Some(Healthy));
    }

    #[test]
    fn envoy_is_ignored_while_the_agent_reports() {
        let (table, start) = (HealthTable::default(), Instant::now());
        report(&table, start, Healthy, 0);
        let at = |second| (Timestamp::UNIX_EPOCH, start + Duration::from_secs(second));
        let rejected = table.report(proxy(), of(HealthSource::Envoy, Unhealthy), at(29));
        assert_eq!(rejected, Err(ReportRejection::AgentReports));
        assert_eq!(state(&table), Some(Healthy));
        table.report(proxy(), of(HealthSource::Envoy, Unhealthy), at(30)).unwrap();
        assert_eq!(state(&table), Some(Unhealthy));
        // The agent is back: it replaces the report of Envoy at once.
        table.report(proxy(), of(HealthSource::Agent, Healthy), at(30)).unwrap();
        let current = table.current();
        let health = current.get(&(proxy(), port())).unwrap().get(&8080).unwrap();
        assert_eq!((health.state, health.source), (Healthy, HealthSource::Agent));
    }

    #[test]
    fn proxy_that_is_not_in_use_is_forgotten() {
        let (table, start) = (HealthTable::default(), Instant::now());
        report(&table, start, Unhealthy, 0);
        table.retain(|_| false);
        assert_eq!((state(&table), table.deadline()), (None, None));
    }
}
