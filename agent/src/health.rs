//! Health probes: what the agent asks of the applications beside it, and its reports to the control plane. They also carry
//! the traffic of the proxy (docs/decisions/0083).
//!
//! Policy defines the probes, and the control plane sends them in its answer to each report. This module owns the probes,
//! the thresholds that damp them, and the reports. It never decides what callers get, and runs no program that the
//! settings of this machine do not name (docs/decisions/0081).
//!
//! ```text
//! control plane ──probes──► ProbeTable ──one task per probe──► application
//!       ▲                        │ state changed, or due
//!       └───────── report ◄──────┘
//! ```

mod command;
mod grpc;
mod http;
mod probe;
mod reconnects;
mod table;
#[cfg(test)]
mod tests;
mod tracker;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ironmesh_catalog::backoff::Backoff;
use ironmesh_catalog::text::chain;
use ironmesh_enrollment::{EnrollmentClient, HealthAnswer, HealthReport, MAX_BODY};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, sleep_until};

use crate::activity::AgentState;
use crate::drain::DrainFollower;
use crate::error::AgentError;
use crate::machine_folder::ProxyFiles;
use crate::settings::AgentSettings;
use crate::supervised::application_address;
use crate::traffic::TrafficReader;
use reconnects::Reconnects;
use table::ProbeTable;

/// The least time between two reports.
const LEAST_GAP: Duration = Duration::from_secs(1);

/// The time until the next report after an order was carried out.
const ORDERED_GAP: Duration = Duration::from_secs(2);

/// The waits after failures.
const LEAST_WAIT: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_secs(8);

/// The wait after a rejection, which is counted against the address of the machine. A control plane of an earlier version
/// knows no such report.
const REJECTED_WAIT: Duration = Duration::from_secs(60);

/// After a new connection of Envoy, the next report is due within this part of the interval.
const RECONNECT_SHARE: u32 = 10;

/// The longest interval that a control plane may set.
const MOST_INTERVAL: Duration = Duration::from_secs(600);

/// The time limit of a report.
const LIMIT: Duration = Duration::from_secs(10);

/// Probes the applications of the enrolled proxy and reports their health, with the traffic, until it is dropped, which ends
/// all probes.
pub(crate) async fn report_health(settings: &AgentSettings, state: &AgentState) {
    let address = application_address(settings).unwrap_or_else(|error| {
        tracing::warn!(
            error = chain(&error),
            action = "probing at 127.0.0.1",
            "the address of the applications is unknown"
        );
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    });
    let mut probes = ProbeTable::new(settings, address, state.clone());
    let mut traffic = TrafficReader::new(settings);
    let mut reconnects = Reconnects::default();
    let mut drain = DrainFollower::new(settings);
    let mut backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
    let mut is_failing = false;
    loop {
        traffic.read_if_due().await;
        let sent_at = Instant::now();
        let report = within_bounds(HealthReport {
            traffic: traffic.report(),
            agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            drain: drain.report().await,
            ..probes.report()
        });
        let (next, spread) = match send(settings, &report).await {
            Ok(answer) => {
                backoff.reset();
                is_failing = false;
                let interval = Duration::from_secs(answer.report_in_seconds.max(1));
                let interval = interval.min(MOST_INTERVAL);
                probes.replace(answer.probes);
                if report.traffic.is_some() {
                    traffic.acknowledged();
                }
                traffic.set_interval(answer.traffic_in_seconds.map(Duration::from_secs));
                let interval = if drain.follow(answer.drain).await {
                    interval.min(ORDERED_GAP)
                } else {
                    interval
                };
                (sent_at + interval, interval / RECONNECT_SHARE)
            }
            Err(error) => {
                let is_rejected =
                    matches!(&error, AgentError::ControlPlane { source, .. } if source.is_final());
                if is_rejected {
                    // Perhaps the proxy serves other services now: the next answer says what to probe.
                    probes.replace(Vec::new());
                    if report.traffic.is_some() {
                        traffic.rejected();
                    }
                }
                let wait = if is_rejected { REJECTED_WAIT } else { backoff.step() };
                let text = chain(&error);
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(error = text, retry_in = ?wait, "cannot report the health of applications");
                }
                state.health_report_failed(&text, Timestamp::now());
                tokio::select! {
                    () = sleep(wait) => {}
                    () = reconnects.next(settings), if !is_rejected => {
                        sleep(LEAST_WAIT.mul_f64(fastrand::f64())).await;
                    }
                }
                continue;
            }
        };
        tokio::select! {
            () = sleep_until(next) => {}
            () = probes.changed() => sleep_until(sent_at + LEAST_GAP).await,
            () = traffic.wait_until_due(sent_at) => {}
            () = reconnects.next(settings), if !probes.is_empty() => {
                // All agents see a restart of the control plane at once.
                let due = (sent_at + LEAST_GAP).max(Instant::now() + spread.mul_f64(fastrand::f64()));
                sleep_until(due.min(next)).await;
            }
        }
    }
}

/// The report without its traffic, and then without reasons, if a request cannot have them: many applications fail, each
/// with a long reason.
fn within_bounds(mut report: HealthReport) -> HealthReport {
    let is_too_large =
        |report: &HealthReport| serde_json::to_vec(report).is_ok_and(|body| body.len() > MAX_BODY);
    if is_too_large(&report) {
        // It is reported later.
        report.traffic = None;
    }
    if is_too_large(&report) {
        report.applications.iter_mut().for_each(|one| one.reason = None);
    }
    report
}

async fn send(settings: &AgentSettings, report: &HealthReport) -> Result<HealthAnswer, AgentError> {
    let files = ProxyFiles::read(&settings.folder)?;
    let (addresses, _) = files.enrollment(&settings.control_plane)?;
    let failed =
        |source| AgentError::ControlPlane { action: "report the health of applications", source };
    let client = EnrollmentClient::new(addresses, files.trust()).map_err(failed)?;
    let client = client.without_retries().with_time_limit(LIMIT);
    client.report_health(&files.identity, report).await.map_err(failed)
}
