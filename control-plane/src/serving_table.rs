//! The serving table: which inbound ports accept callers, by the newest report of each proxy's agent.
//!
//! It is the one writer of these reports, which are in memory: an agent repeats its report until the register has recorded
//! its ports. It decides nothing: the reconciler compares a report with what the proxy should serve
//! (docs/decisions/0077).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{Participation, ProxyId, ServiceAccount, ServicePort, Snapshot};
use ironmesh_xds_compile::names::server_name;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The server names that accept callers, each with the account of the certificate that it presents.
pub(crate) type ServingNames = BTreeMap<String, ServiceAccount>;

/// A report, and of which Envoy it is.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    names: ServingNames,
    /// The count of the Envoy's starts when the report came: an Envoy that starts later has ports of its own.
    process_starts: u64,
}

/// The newest report of each proxy.
#[derive(Debug, Default)]
pub(crate) struct ServingTable {
    reports: Mutex<Reports>,
    /// Changes with each report that differs from the one before it.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Reports {
    by_proxy: BTreeMap<ProxyId, Arc<Report>>,
    /// The proxies with a new report since [`ServingTable::take_changed`].
    changed: BTreeSet<ProxyId>,
}

impl ServingTable {
    /// Replaces the report of a proxy, whose Envoy has started `process_starts` times.
    pub(crate) fn report(&self, id: ProxyId, names: ServingNames, process_starts: u64) {
        let report = Report { names, process_starts };
        let mut reports = self.reports.lock();
        if reports.by_proxy.get(&id).is_some_and(|known| **known == report) {
            return;
        }
        reports.by_proxy.insert(id, Arc::new(report));
        reports.changed.insert(id);
        drop(reports);
        self.changes.send_replace(());
    }

    /// Forgets the reports of proxies that are not in use any more.
    pub(crate) fn retain(&self, is_in_use: impl Fn(ProxyId) -> bool) {
        self.reports.lock().by_proxy.retain(|id, _| is_in_use(*id));
    }

    /// Whether each of these ports of a proxy accepts callers, with the certificate of its service's account, in the Envoy
    /// that has started as the one with number `process_starts`.
    pub(crate) fn accepts_callers(
        &self,
        id: ProxyId,
        process_starts: u64,
        ports: &Participation,
        snapshot: &Snapshot,
    ) -> bool {
        let report = self.reports.lock().by_proxy.get(&id).cloned();
        let Some(report) = report.filter(|known| known.process_starts == process_starts) else {
            return false;
        };
        ports.0.iter().all(|(service, port)| {
            let Some(account) = snapshot.service(service).map(|known| &known.account) else {
                return false;
            };
            let port = ServicePort::new(service.clone(), *port);
            report.names.get(&server_name(&port, &snapshot.mesh.domain)) == Some(account)
        })
    }

    /// The proxies with a new report since the last call.
    pub(crate) fn take_changed(&self) -> BTreeSet<ProxyId> {
        std::mem::take(&mut self.reports.lock().changed)
    }

    /// Notifies of new reports.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}
