//! Counters of the reports of Envoys about health, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The result of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportOutcome {
    /// It was recorded.
    Recorded,
    /// It was recorded without endpoints that the Envoy does not probe, or not any more.
    OtherEndpoints,
    /// It was ignored: the agent of the proxy reports.
    AgentReports,
    /// It was ignored: it came too soon after the previous one.
    TooFrequent,
    /// It was ignored: it has too many endpoints.
    TooLarge,
}

impl ReportOutcome {
    /// All outcomes.
    pub(crate) const ALL: [Self; 5] = [
        Self::Recorded,
        Self::OtherEndpoints,
        Self::AgentReports,
        Self::TooFrequent,
        Self::TooLarge,
    ];

    /// The value of the metric's label.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::OtherEndpoints => "other_endpoints",
            Self::AgentReports => "agent_reports",
            Self::TooFrequent => "too_frequent",
            Self::TooLarge => "too_large",
        }
    }
}

/// How many reports had each outcome.
#[derive(Debug, Default)]
pub(crate) struct HealthCounters([AtomicU64; ReportOutcome::ALL.len()]);

impl HealthCounters {
    pub(super) fn count(&self, outcome: ReportOutcome) {
        if let Some(count) = self.of(outcome) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of reports with this outcome.
    pub(crate) fn reports(&self, outcome: ReportOutcome) -> u64 {
        self.of(outcome).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn of(&self, outcome: ReportOutcome) -> Option<&AtomicU64> {
        self.0.get(ReportOutcome::ALL.iter().position(|one| *one == outcome)?)
    }
}
