//! The reports of which inbound ports accept callers.
//!
//! Envoy ACKs a listener that still waits for a certificate of the agent, and goes on with the earlier one. So the agent
//! looks at Envoy's active inbound listener, and tries each of its server names by a handshake: the port accepts callers
//! once it presents a certificate of the agent. The control plane directs callers to a new port on this report
//! (docs/decisions/0077).
//!
//! This module owns these looks and the reports. It never completes a handshake, and changes nothing in Envoy.

mod envoy_process;
mod handshake;
mod inbound_listener;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_agent_envoy::local_http::LocalAddress;
use ironmesh_catalog::backoff::Backoff;
use ironmesh_catalog::text;
use ironmesh_enrollment::ServingReport;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::activity::AgentState;
use crate::certificates::CertificateTable;
use crate::settings::AgentSettings;
use crate::status::LocalRequestError;
use crate::supervised::admin_address;
use envoy_process::EnvoyProcess;
use handshake::presented_leaf;
use inbound_listener::InboundListener;
use report::Reports;

/// The interval in which the agent looks whether Envoy's listeners have changed.
const INTERVAL: Duration = Duration::from_secs(1);

/// The waits between two checks of the ports while one of them accepts no callers yet.
const LEAST_WAIT: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_secs(10);

/// The interval of the checks while nothing changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);

/// Looks at Envoy and reports its ports, until it is dropped.
pub(crate) async fn report_ports(
    settings: &AgentSettings,
    table: &CertificateTable,
    state: &AgentState,
) {
    let mut ports = InboundPorts::new(table);
    let mut reports = Reports::new(settings, table, state);
    let mut looks = interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let Ok(admin) = admin_address(settings) else { continue };
        match ports.look(&admin, Instant::now()).await {
            Ok(is_other_process) => {
                if is_other_process {
                    reports.repeat();
                }
                state.closed_ports(&ports.closed, Timestamp::now());
                reports.send_if_due(&ports.serving, Instant::now()).await;
            }
            // Envoy starts, ends, or is busy: nothing is known of its ports.
            Err(error) => tracing::debug!(%error, "cannot look at the inbound listener"),
        }
    }
}

/// The inbound ports of Envoy, as the last check found them.
#[derive(Debug)]
struct InboundPorts<'a> {
    table: &'a CertificateTable,
    certificates: watch::Receiver<()>,
    /// The Envoy at the last look; none if there was none.
    process: Option<EnvoyProcess>,
    serving: ServingReport,
    /// The ports that accept no callers yet, each with the reason.
    closed: BTreeMap<String, String>,
    next_check: Instant,
    backoff: Backoff,
}

impl<'a> InboundPorts<'a> {
    fn new(table: &'a CertificateTable) -> Self {
        Self {
            table,
            certificates: table.changes(),
            process: None,
            serving: ServingReport::default(),
            closed: BTreeMap::new(),
            next_check: Instant::now(),
            backoff: Backoff::new(LEAST_WAIT, MOST_WAIT),
        }
    }

    /// Checks the ports if something has changed, or if that is due. Returns whether the Envoy is another process than at
    /// the last look.
    async fn look(
        &mut self,
        admin: &LocalAddress,
        now: Instant,
    ) -> Result<bool, LocalRequestError> {
        let process = match EnvoyProcess::read(admin).await {
            Ok(process) => Some(process),
            Err(error) if error.is_absent() => None,
            Err(error) => return Err(error),
        };
        let (is_other, has_changed) = match (&process, &self.process) {
            (Some(new), Some(old)) => (!new.is_same_as(old), new.has_other_listeners(old)),
            (new, old) => (new.is_some() != old.is_some(), false),
        };
        let are_certificates_new = self.certificates.has_changed().unwrap_or_default();
        if is_other || has_changed || are_certificates_new {
            self.backoff.reset();
            self.next_check = now;
        }
        if self.next_check <= now {
            self.certificates.mark_unchanged();
            (self.serving, self.closed) = match &process {
                Some(_) => self.check_ports(admin).await?,
                None => Default::default(),
            };
            let is_settled = self.closed.is_empty();
            let wait = if is_settled { CHECK_INTERVAL } else { self.backoff.step() };
            self.next_check = now + wait;
            // The ports of an Envoy that has started meanwhile are its own.
            if let Some(tried) = &process
                && !EnvoyProcess::read(admin).await?.is_same_as(tried)
            {
                self.serving = ServingReport::default();
                self.next_check = now;
            }
        }
        self.process = process;
        Ok(is_other)
    }

    /// The server names of the active listener that present a certificate of the agent, and those that do not, each with
    /// the reason.
    async fn check_ports(
        &self,
        admin: &LocalAddress,
    ) -> Result<(ServingReport, BTreeMap<String, String>), LocalRequestError> {
        let listener = InboundListener::read(admin).await?;
        let mut ports: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let mut closed = BTreeMap::new();
        if listener.is_warming {
            let reason = "its newest version waits, perhaps for a certificate of this agent";
            closed.insert(InboundListener::NAME.to_owned(), reason.to_owned());
        }
        for chain in &listener.agent_fed_chains {
            let Some(address) = listener.address else { break };
            match presented_leaf(address, &chain.server_name).await {
                Ok(leaf) => {
                    let name = chain.server_name.clone();
                    if let Some(account) = self.table.account_of(&chain.secret, &leaf) {
                        ports.entry(account).or_default().insert(name);
                    } else {
                        let reason = "it presents a certificate that this agent does not serve";
                        closed.insert(name, reason.to_owned());
                    }
                }
                Err(error) => {
                    closed.insert(chain.server_name.clone(), text::chain(&error));
                    // The others would fail alike, each after its time limit.
                    if error.is_of_all_names() {
                        break;
                    }
                }
            }
        }
        Ok((ServingReport { ports }, closed))
    }
}
