//! What the running agent knows of itself: its phase, its renewals, and the last errors.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ironmesh_catalog::{ApplicationState, ServiceAccount, ServiceName};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The most errors that are kept.
const MAX_ERRORS: usize = 10;

/// What the agent does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentPhase {
    /// It enrolls the machine, again and again until that succeeds.
    #[default]
    Joining,
    /// It waits for a token: there is none, or the control plane rejected it.
    WaitingForToken,
    /// The machine is enrolled, and the agent renews its certificate.
    Enrolled,
    /// The proxy is revoked: only a new enrollment helps.
    Revoked,
}

/// An error of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFailure {
    /// When it happened last.
    pub at: Timestamp,
    /// What failed, where, and what to do.
    pub error: String,
    /// How often it happened in a row.
    pub count: u64,
}

/// What the running agent knows of itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AgentActivity {
    /// What it does.
    pub phase: AgentPhase,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When it last renewed the certificate.
    pub renewed_at: Option<Timestamp>,
    /// How many renewals succeeded.
    pub renewals: u64,
    /// How many renewals failed.
    pub failed_renewals: u64,
    /// When the next renewal is due.
    pub next_renewal_at: Option<Timestamp>,
    /// The last errors, the newest last. A success of the same work ends none of them: `at` says when they were.
    pub errors: VecDeque<AgentFailure>,
    /// Whether the last renewal or join failed.
    pub is_failing: bool,
    /// The service certificates that the agent serves to Envoy, by secret.
    #[serde(default)]
    pub service_certificates: Vec<ServiceCertificateActivity>,
    /// How many of them Envoy has NACKed.
    #[serde(default)]
    pub secret_nacks: u64,
    /// The health probes of the applications.
    #[serde(default)]
    pub probes: Vec<ProbeActivity>,
    /// The inbound ports that accept no callers.
    #[serde(default)]
    pub closed_ports: Vec<ClosedPort>,
}

/// An inbound port that accepts no callers, by the last look of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedPort {
    /// The server name by which callers select it, or `inbound` for the listener as a whole.
    pub name: String,
    /// Since when it accepts none.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
}

/// A health probe of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeActivity {
    /// The service.
    pub service: ServiceName,
    /// The service port.
    pub port: u16,
    /// The port on which the application listens.
    pub target_port: u16,
    /// The kind of probe: `http`, `tcp`, `grpc` or `command`.
    pub kind: String,
    /// The state of the application.
    pub state: ApplicationState,
    /// Since when it has this state.
    pub since: Timestamp,
    /// Why the last probe failed; none if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// A service certificate that the agent serves to Envoy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCertificateActivity {
    /// The name of the secret.
    pub secret: String,
    /// The account that the certificate identifies.
    pub account: ServiceAccount,
    /// When the agent renews it.
    pub renew_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// The activity of the running agent. The tasks of the agent write it; the status socket reads it.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentState(Arc<Mutex<AgentActivity>>);

impl AgentState {
    pub(crate) fn new(now: Timestamp) -> Self {
        let state = Self::default();
        state.0.lock().started_at = Some(now);
        state
    }

    /// A copy of it.
    pub(crate) fn activity(&self) -> AgentActivity {
        self.0.lock().clone()
    }

    pub(crate) fn enter(&self, phase: AgentPhase) {
        self.0.lock().phase = phase;
    }

    pub(crate) fn succeeded(&self) {
        self.0.lock().is_failing = false;
    }

    pub(crate) fn next_renewal(&self, at: Timestamp) {
        self.0.lock().next_renewal_at = Some(at);
    }

    pub(crate) fn renewed(&self, now: Timestamp) {
        let mut activity = self.0.lock();
        activity.renewed_at = Some(now);
        activity.renewals += 1;
        activity.is_failing = false;
    }

    pub(crate) fn renewal_failed(&self) {
        self.0.lock().failed_renewals += 1;
    }

    /// Replaces the list of service certificates.
    pub(crate) fn service_certificates(&self, certificates: Vec<ServiceCertificateActivity>) {
        self.0.lock().service_certificates = certificates;
    }

    /// Replaces the list of probes.
    pub(crate) fn probes(&self, probes: Vec<ProbeActivity>) {
        self.0.lock().probes = probes;
    }

    /// Replaces the list of ports that accept no callers, each with the reason.
    pub(crate) fn closed_ports(&self, closed: &BTreeMap<String, String>, now: Timestamp) {
        let mut activity = self.0.lock();
        let known = std::mem::take(&mut activity.closed_ports);
        let since = |name: &String| {
            let known = known.iter().find(|port| port.name == *name);
            known.map_or(now, |port| port.since)
        };
        let port = |(name, reason): (&String, &String)| ClosedPort {
            since: since(name),
            name: name.clone(),
            reason: reason.clone(),
        };
        activity.closed_ports = closed.iter().map(port).collect();
    }

    /// Notes an error about a report of the health of applications.
    pub(crate) fn health_report_failed(&self, error: &str, now: Timestamp) {
        self.note(error, now);
    }

    pub(crate) fn secret_nacked(&self) {
        self.0.lock().secret_nacks += 1;
    }

    /// Notes an error about the certificate of the proxy, or the join. The same one again only counts.
    pub(crate) fn failed(&self, error: &str, now: Timestamp) {
        self.0.lock().is_failing = true;
        self.note(error, now);
    }

    /// Notes an error about a service certificate. It says nothing about the certificate of the proxy.
    pub(crate) fn service_certificate_failed(&self, error: &str, now: Timestamp) {
        self.note(error, now);
    }

    /// Notes an error about a report of the ports that accept callers.
    pub(crate) fn serving_report_failed(&self, error: &str, now: Timestamp) {
        self.note(error, now);
    }

    fn note(&self, error: &str, now: Timestamp) {
        let mut activity = self.0.lock();
        if let Some(last) = activity.errors.back_mut().filter(|last| last.error == error) {
            last.count += 1;
            last.at = now;
            return;
        }
        if activity.errors.len() == MAX_ERRORS {
            activity.errors.pop_front();
        }
        activity.errors.push_back(AgentFailure { at: now, error: error.to_owned(), count: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_port_keeps_its_time_while_it_stays_closed() {
        let (before, now) = (Timestamp::UNIX_EPOCH, Timestamp::now());
        let state = AgentState::new(before);
        let closed = |names: &[&str]| {
            names.iter().map(|name| ((*name).to_owned(), "no certificate".to_owned())).collect()
        };
        state.closed_ports(&closed(&["80.store", "81.store"]), before);
        state.closed_ports(&closed(&["80.store", "82.store"]), now);
        let ports = state.activity().closed_ports;
        let since: Vec<_> = ports.iter().map(|port| (&*port.name, port.since)).collect();
        assert_eq!(since, [("80.store", before), ("82.store", now)]);
    }

    #[test]
    fn errors_are_bounded_and_repeated_ones_count() {
        let now = Timestamp::now();
        let state = AgentState::new(now);
        for number in 0..2 * MAX_ERRORS {
            state.failed(&format!("error {number}"), now);
            state.failed(&format!("error {number}"), now);
        }
        let activity = state.activity();
        assert_eq!(activity.errors.len(), MAX_ERRORS);
        let last = activity.errors.back().unwrap();
        assert_eq!((&*last.error, last.count), ("error 19", 2));
        assert!(activity.is_failing);
    }
}
