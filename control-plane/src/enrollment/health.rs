//! The reports of agents about the health of their applications, what the agents probe, and when they report.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    ApplicationState, HealthSource, JoinRecord, MachineDrainState, ProbedApplication, ProxyId,
    ProxyVersions, ServicePort, Snapshot,
};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_enrollment::{
    ApplicationProbe, DrainOrder, DrainReport, EnrollmentError, HealthAnswer, HealthReport,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::MachineEnrollment;
use crate::health_table::{Report, ReportedStates};

/// The interval of the reports of an agent that probes.
const INTERVAL: Duration = Duration::from_secs(10);

/// The interval of an agent without probes, which learns of new ones by it.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);

/// The longest interval.
const MOST_INTERVAL: Duration = Duration::from_secs(300);

/// So many reports per second come from all agents: each has a handshake of its own, and the listener limits these.
const REPORTS_PER_SECOND: u64 = 50;

/// The interval of an agent whose machine is drained, which tells soon how far it is, and when it may return.
pub(crate) const ORDERED_INTERVAL: Duration = Duration::from_secs(3);

/// A report lasts for so many intervals.
const LIFETIME: u32 = 3;

impl MachineEnrollment {
    /// Records the health of the applications of a proxy. It answers what the agent probes from now on.
    pub(super) fn record_health_report(
        &self,
        proxy: &VerifiedProxy,
        report: HealthReport,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<HealthAnswer, EnrollmentError> {
        let record = self.identify(proxy, peer, now)?;
        let is_own = |service| record.services.contains(service);
        if let Some(other) = report.applications.iter().find(|one| !is_own(&one.service)) {
            let (name, service) = (record.display_name(), &other.service);
            let problem = format!("proxy {name} does not serve service `{service}`");
            return Err(EnrollmentError::RequestInvalid(problem));
        }
        let probes = self.snapshot.borrow().as_ref().map(|known| probes(known, &record));
        let probes = probes.unwrap_or_default();
        let known: BTreeSet<_> =
            probes.iter().map(|one| (&one.service, one.check.port, one.target)).collect();
        let mut states: BTreeMap<ServicePort, ReportedStates> = BTreeMap::new();
        for one in report.applications {
            // Policy may have changed since the agent learned of the probe.
            if known.contains(&(&one.service, one.port, one.target)) {
                let port = ServicePort::new(one.service, one.port);
                states.entry(port).or_default().insert(one.target, (one.state, one.reason));
            }
        }
        // An agent that has just started knows no probes yet. They are unknown, so that an application which failed before
        // stays out of use.
        let mut kinds = BTreeMap::new();
        for one in &probes {
            let port = ServicePort::new(one.service.clone(), one.check.port);
            kinds.insert(port.clone(), one.check.probe.clone());
            let state = (ApplicationState::Unknown, None);
            states.entry(port).or_default().entry(one.target).or_insert(state);
        }
        let proxies = self.register.records().len();
        let interval = report_interval(proxies, !probes.is_empty());
        let at = (now, Instant::now());
        let lifetime = interval * LIFETIME;
        let health = Report { source: HealthSource::Agent, states, probes: kinds, lifetime };
        // An agent's report is rejected only if it is too frequent.
        self.health.report(record.id, health, at).map_err(|_| {
            EnrollmentError::Busy("health is reported too often: wait for a second".to_owned())
        })?;
        if let Some(traffic) = report.traffic {
            self.record_traffic(&record, traffic, lifetime, at);
        }
        let traffic_in_seconds = Some(report_interval(proxies, true).as_secs());
        let version = report.agent_version.as_deref();
        self.record_machine(record.id, version, report.drain, now);
        let drain = self
            .register
            .get(record.id)
            .map_or_else(DrainOrder::default, |record| drain_order(&record));
        let next = match drain.ordered {
            Some(_) => ordered_interval(self.leaves.cordons().len()).min(interval),
            None => interval,
        };
        let report_in_seconds = next.as_secs();
        Ok(HealthAnswer { probes, report_in_seconds, traffic_in_seconds, drain: Some(drain) })
    }

    /// Records what an agent reports about its machine. A later report repeats what could not be stored.
    fn record_machine(
        &self,
        id: ProxyId,
        version: Option<&str>,
        drain: Option<DrainReport>,
        now: Timestamp,
    ) {
        let version = version.filter(|version| ProxyVersions::is_valid(version));
        let recorded =
            version.map_or(Ok(()), |version| self.register.record_agent_version(id, version));
        let recorded = recorded.and_then(|()| match drain {
            Some(DrainReport { ordered, state }) => {
                self.register.record_machine_drain(id, ordered, state, now)
            }
            None => Ok(()),
        });
        if let Err(error) = recorded {
            tracing::error!(proxy = %id, error = chain(&error), "cannot store the report of an agent");
        }
    }
}

/// The order for the machine of a proxy.
fn drain_order(record: &JoinRecord) -> DrainOrder {
    let drain = record.cordon.as_ref().and_then(|cordon| cordon.drain.as_ref());
    let state = drain.and_then(|drain| drain.machine).map(|machine| machine.state);
    DrainOrder {
        ordered: drain.map(|drain| drain.since),
        is_done: state == Some(MachineDrainState::Drained),
    }
}

/// When the agent of one of so many cordoned machines reports next.
fn ordered_interval(cordoned: usize) -> Duration {
    Duration::from_secs(cordoned as u64 / REPORTS_PER_SECOND).max(ORDERED_INTERVAL)
}

/// The probes of the applications of a proxy.
fn probes(snapshot: &Snapshot, record: &JoinRecord) -> Vec<ApplicationProbe> {
    let applications = snapshot.probed_applications(record).into_iter();
    let probe = |ProbedApplication { service_port, target, check }| ApplicationProbe {
        service: service_port.service,
        target,
        check,
    };
    applications.map(probe).collect()
}

/// When an agent reports next, in a mesh of so many proxies, if it probes or has traffic, or if it does not.
pub(crate) fn report_interval(proxies: usize, is_active: bool) -> Duration {
    let least = if is_active { INTERVAL } else { IDLE_INTERVAL };
    let all = Duration::from_secs(proxies as u64 / REPORTS_PER_SECOND);
    all.clamp(least, MOST_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_a_large_mesh_are_spread() {
        assert_eq!(report_interval(1, true), INTERVAL);
        assert_eq!(report_interval(1, false), IDLE_INTERVAL);
        assert_eq!(report_interval(1000, true), Duration::from_secs(20));
        assert_eq!(report_interval(1_000_000, true), MOST_INTERVAL);
        assert_eq!(ordered_interval(1), ORDERED_INTERVAL);
        assert_eq!(ordered_interval(1000), Duration::from_secs(20));
    }
}
