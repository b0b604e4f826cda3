//! The reports of agents about the inbound ports that accept callers.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ironmesh_catalog::ServicePort;
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_enrollment::{EnrollmentError, ServingAnswer, ServingReport};
use ironmesh_xds_compile::names::server_name;
use jiff::Timestamp;

use super::MachineEnrollment;
use crate::peers::ServingNote;
use crate::serving_table::ServingNames;

impl MachineEnrollment {
    /// Records which ports of a proxy accept callers. It answers whether the register has all of them, and as which
    /// account the proxy calls.
    pub(super) fn record_serving_report(
        &self,
        proxy: &VerifiedProxy,
        report: ServingReport,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<ServingAnswer, EnrollmentError> {
        let record = self.identify(proxy, peer, now)?;
        let names: ServingNames = report
            .ports
            .into_iter()
            .flat_map(|(account, names)| names.into_iter().map(move |name| (name, account.clone())))
            .collect();
        let has = |(service, port): &(_, _)| {
            server_name(&ServicePort::new(Clone::clone(service), *port), &self.mesh.domain)
        };
        let known: BTreeSet<_> = record.participation.0.iter().map(has).collect();
        let recorded = names.keys().all(|name| known.contains(name));
        let process_starts = self.hub.process_starts(&record.id.to_string());
        if self.hub.streams(&record.id.to_string()) == 0 {
            // Its Envoy may be connected to a peer, which decides by the report.
            let serving = ServingNote { at: now, names: names.clone() };
            self.peers.note(record.id, |note| note.serving = Some(serving));
        }
        self.serving.report(record.id, names, process_starts);
        let policy = self.policy.borrow();
        let first = policy.specification.as_ref().zip(record.services.first());
        let first = first.and_then(|(specification, name)| specification.services.get(name));
        Ok(ServingAnswer { recorded, account: first.map(|service| service.account.clone()) })
    }
}
