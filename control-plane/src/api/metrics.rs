//! The metrics of the running control plane.

use std::sync::Arc;

use super::RunningControlPlane;
use crate::metrics;

impl RunningControlPlane {
    /// All metrics, as text.
    pub(super) fn exposition(&self) -> String {
        metrics::exposition(metrics::Sources {
            hub: Arc::clone(&self.hub),
            register: Arc::clone(&self.register),
            policy: self.policy.clone(),
            feeds: self.feeds.clone(),
            state_findings: self.state_findings.clone(),
            audit: Arc::clone(&self.audit),
            enrollment: Arc::clone(&self.enrollment_counters),
            api_losses: Arc::clone(&self.api_losses),
            health_discovery: Arc::clone(&self.health_discovery),
            traffic: Arc::clone(&self.traffic),
            journal: self.journal.clone(),
            certificates: self.certificate_counts(),
            local_outage: self.local_outage.clone(),
            etcd_store: self.exporter.etcd.clone(),
            traces: self.traces.clone(),
            silences: self.active_silences(),
            findings: self.finding_counts(),
        })
    }
}
