//! The traffic in the reports of agents.

use std::time::Duration;

use ironmesh_analysis::reach::is_port_reachable;
use ironmesh_catalog::{JoinRecord, ServicePort};
use ironmesh_enrollment::TrafficReport;
use jiff::Timestamp;
use tokio::time::Instant;

use super::MachineEnrollment;
use crate::traffic_table::TrafficSource;

impl MachineEnrollment {
    /// Records the traffic of a proxy.
    ///
    /// It counts as calls of the first service of the proxy. Calls to service ports that policy does not define, or that are
    /// private elsewhere, add up as other calls.
    pub(super) fn record_traffic(
        &self,
        record: &JoinRecord,
        report: TrafficReport,
        lifetime: Duration,
        at: (Timestamp, Instant),
    ) {
        let snapshot = self.snapshot.borrow().clone();
        let is_known = |port: &ServicePort| {
            let service = snapshot.as_ref().and_then(|known| known.service(&port.service));
            let caller = record.services.first();
            service.is_some_and(|service| {
                service.port(port.port).is_some()
                    && caller.is_some_and(|caller| service.is_visible_in(&caller.namespace))
            })
        };
        let is_allowed = |port: &ServicePort| {
            let caller = record.services.first();
            snapshot.as_ref().zip(caller).is_some_and(|(snapshot, caller)| {
                let caller = snapshot.service(caller);
                caller.is_some_and(|caller| is_port_reachable(snapshot, &caller.account, port))
            })
        };
        let source = TrafficSource { proxy: record.id, services: &record.services, lifetime };
        self.traffic.record(&source, report, is_known, is_allowed, at);
        let records = self.register.records();
        self.traffic.sweep(at.1, |id| records.contains_key(&id));
    }
}
