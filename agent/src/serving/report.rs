//! When a report is sent, and what follows from its answer.

use std::time::Duration;

use ironmesh_catalog::backoff::{Backoff, spread};
use ironmesh_catalog::text::chain;
use ironmesh_enrollment::{EnrollmentClient, ServingAnswer, ServingReport};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::activity::AgentState;
use crate::certificates::CertificateTable;
use crate::error::AgentError;
use crate::machine_folder::ProxyFiles;
use crate::settings::AgentSettings;

/// The waits until the control plane has recorded all ports, and after failures.
const LEAST_WAIT: Duration = Duration::from_secs(2);
const MOST_WAIT: Duration = Duration::from_secs(60);

/// The interval of the reports when nothing is left to record.
const REPORT_INTERVAL: Duration = Duration::from_secs(300);

/// The wait after a rejection, which is counted against the address of the machine. A control plane of an earlier version
/// has no reports.
const REJECTED_WAIT: Duration = Duration::from_secs(600);

/// The time limit of a report.
const LIMIT: Duration = Duration::from_secs(20);

/// The reports to the control plane.
#[derive(Debug)]
pub(super) struct Reports<'a> {
    settings: &'a AgentSettings,
    table: &'a CertificateTable,
    state: &'a AgentState,
    /// The last report that was answered.
    reported: Option<ServingReport>,
    /// The last report that failed, which is not repeated before its time.
    failed: Option<ServingReport>,
    next: Instant,
    backoff: Backoff,
}

impl<'a> Reports<'a> {
    pub(super) fn new(
        settings: &'a AgentSettings,
        table: &'a CertificateTable,
        state: &'a AgentState,
    ) -> Self {
        let backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
        Self { settings, table, state, reported: None, failed: None, next: Instant::now(), backoff }
    }

    /// The next report is sent although it says the same: it is about another Envoy.
    pub(super) fn repeat(&mut self) {
        (self.reported, self.failed) = (None, None);
        self.backoff.reset();
    }

    /// Sends the report if it is new, or due again.
    pub(super) async fn send_if_due(&mut self, report: &ServingReport, now: Instant) {
        let known = self.failed.as_ref().or(self.reported.as_ref());
        if known == Some(report) && now < self.next {
            return;
        }
        if known != Some(report) {
            self.backoff.reset();
        }
        match self.send(report).await {
            Ok(answer) => {
                (self.reported, self.failed) = (Some(report.clone()), None);
                let wait = if answer.recorded {
                    self.backoff.reset();
                    spread(REPORT_INTERVAL)
                } else {
                    self.backoff.step()
                };
                self.next = Instant::now() + wait;
                self.table.expect_account(answer.account);
            }
            Err(error) => {
                let is_rejected =
                    matches!(&error, AgentError::ControlPlane { source, .. } if source.is_final());
                let wait = if is_rejected { REJECTED_WAIT } else { self.backoff.step() };
                let text = chain(&error);
                if self.failed.is_none() {
                    tracing::warn!(error = text, retry_in = ?wait, "cannot report the ports that accept callers: callers get no new ones");
                }
                self.state.serving_report_failed(&text, Timestamp::now());
                self.failed = Some(report.clone());
                self.next = Instant::now() + wait;
            }
        }
    }

    async fn send(&self, report: &ServingReport) -> Result<ServingAnswer, AgentError> {
        let files = ProxyFiles::read(&self.settings.folder)?;
        let (addresses, _) = files.enrollment(&self.settings.control_plane)?;
        let action = "report the ports that accept callers";
        let failed = |source| AgentError::ControlPlane { action, source };
        let client = EnrollmentClient::new(addresses, files.trust()).map_err(failed)?;
        let client = client.without_retries().with_time_limit(LIMIT);
        client.report_serving(&files.identity, report).await.map_err(failed)
    }
}
