//! Traffic: what the agent counts by the statistics of its Envoy, for the reports to the control plane.
//!
//! ```text
//! Envoy ──statistics──► Statistics ──► Meter ──counts since the last reading──► PendingTraffic ──► report
//! ```
//!
//! This module owns the readings, their differences, and the counts that are not reported yet. It never sends a report:
//! `health.rs` does, so that both reports cost one handshake. It changes nothing in Envoy (docs/decisions/0083).

mod meter;
mod pending;
mod statistics;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ironmesh_enrollment::TrafficReport;
use tokio::time::{Instant, sleep_until};

use crate::settings::AgentSettings;
use crate::supervised::admin_address;
use meter::Meter;
use pending::PendingTraffic;
use statistics::Statistics;

/// The least time between two readings, and between two reports because of traffic.
const LEAST_INTERVAL: Duration = Duration::from_secs(10);

/// The longest interval that a control plane may set.
const MOST_INTERVAL: Duration = Duration::from_secs(600);

/// The traffic of the proxy of this machine.
#[derive(Debug)]
pub(crate) struct TrafficReader<'a> {
    settings: &'a AgentSettings,
    /// The interval of readings; none while the control plane wants no traffic, as one of an earlier version.
    interval: Option<Duration>,
    next_reading: Instant,
    meter: Meter,
    pending: PendingTraffic,
}

impl<'a> TrafficReader<'a> {
    /// It reads nothing until a control plane wants traffic.
    pub(crate) fn new(settings: &'a AgentSettings) -> Self {
        let now = Instant::now();
        Self {
            settings,
            interval: None,
            next_reading: now,
            meter: Meter::new(now),
            pending: PendingTraffic::new(now),
        }
    }

    /// The traffic for the next report; none if the control plane wants none.
    pub(crate) fn report(&mut self) -> Option<TrafficReport> {
        self.interval.map(|_| self.pending.report(Instant::now()))
    }

    /// The control plane has recorded the traffic of the last report.
    pub(crate) fn acknowledged(&mut self) {
        self.pending.acknowledged();
    }

    /// The next report is due after `interval`; none if the control plane wants no traffic.
    pub(crate) fn set_interval(&mut self, interval: Option<Duration>) {
        self.interval = interval.map(|interval| interval.clamp(LEAST_INTERVAL, MOST_INTERVAL));
    }

    /// The control plane has rejected the last report: its traffic is not sent again.
    pub(crate) fn rejected(&mut self) {
        self.pending.acknowledged();
    }

    /// Waits until there is traffic to report, but not before the interval has passed since the last report. Nothing is lost
    /// if the future is dropped.
    pub(crate) async fn wait_until_due(&mut self, last_report: Instant) {
        let Some(interval) = self.interval else { return std::future::pending().await };
        loop {
            sleep_until(self.next_reading.max(last_report + interval)).await;
            self.read(interval).await;
            if self.pending.is_due() {
                return;
            }
        }
    }

    /// Reads Envoy's statistics if that is due, or nearly so: reports of health are due at the same time.
    pub(crate) async fn read_if_due(&mut self) {
        let soon = Instant::now() + LEAST_INTERVAL / 10;
        if let Some(interval) = self.interval.filter(|_| self.next_reading <= soon) {
            self.read(interval).await;
        }
    }

    async fn read(&mut self, interval: Duration) {
        let begin = Instant::now();
        let Ok(admin) = admin_address(self.settings) else {
            self.next_reading = begin + interval;
            return;
        };
        let statistics = Statistics::read(&admin).await;
        // Not before: a reading that is dropped is due again.
        self.next_reading = begin + interval;
        match statistics {
            Ok(statistics) => {
                let differences = self.meter.advance(Instant::now(), statistics);
                self.pending.add(differences);
            }
            // Envoy starts, ends, or is busy. Its counters go on.
            Err(error) => {
                tracing::debug!(%error, "cannot read the statistics of Envoy");
                self.pending.nothing_in_flight();
            }
        }
    }
}
