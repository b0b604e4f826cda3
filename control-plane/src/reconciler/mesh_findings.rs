//! The findings about the mesh as a whole: collects those of all parts, publishes them and logs the new ones, once per
//! change. It detects nothing itself.

use std::collections::HashSet;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ironmesh_catalog::{Finding, ServiceName};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Reconciler, expiry};
use crate::versions;

/// The findings about the mesh as a whole. A catalog may have a hundred thousand endpoints without traffic: those findings
/// are shared with the snapshot, so that a change costs the services that it touches.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeshFindings {
    /// Outages, and identities that no caller can have.
    of_calls: Vec<Finding>,
    /// Those about the endpoints of each service.
    of_endpoints: OrdMap<ServiceName, Arc<[Finding]>>,
    /// Those of providers, the clock, proxies and revocations.
    others: Vec<Finding>,
}

impl MeshFindings {
    /// All findings, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Finding> {
        let of_endpoints = self.of_endpoints.values().flat_map(|findings| findings.iter());
        self.of_calls.iter().chain(of_endpoints).chain(&self.others)
    }

    /// Logs the findings that `earlier` does not have. Returns whether they differ.
    fn log_news(&self, earlier: &Self) -> bool {
        let mut is_news = false;
        if (&self.of_calls, &self.others) != (&earlier.of_calls, &earlier.others) {
            is_news = true;
            let known: HashSet<_> = earlier.of_calls.iter().chain(&earlier.others).collect();
            log(self.of_calls.iter().chain(&self.others), |finding| known.contains(finding));
        }
        for item in earlier.of_endpoints.diff(&self.of_endpoints) {
            match item {
                DiffItem::Add(_, new) => log(new.iter(), |_| false),
                DiffItem::Update { old: (_, old), new: (_, new) } if old != new => {
                    let known: HashSet<_> = old.iter().collect();
                    log(new.iter(), |finding| known.contains(finding));
                }
                DiffItem::Update { .. } => continue,
                DiffItem::Remove(..) => {}
            }
            is_news = true;
        }
        is_news
    }
}

/// Logs the findings that are not known.
fn log<'a>(findings: impl Iterator<Item = &'a Finding>, is_known: impl Fn(&Finding) -> bool) {
    for finding in findings.filter(|finding| !is_known(finding)) {
        tracing::warn!("{finding}");
    }
}

impl Reconciler {
    /// Updates the findings about proxy certificates and versions: by the clock, and after an enrollment or a revocation.
    pub(super) fn check_certificates(&mut self, is_tick: bool, now: Timestamp) {
        let members = self.register.generation().borrow().members;
        if !is_tick && self.expiry.1 == members {
            return;
        }
        // After a jump of the clock no proxy is retired, so none is reported either.
        let is_clock_reliable = self.clock.recent_jump(Instant::now()).is_none();
        let records = is_clock_reliable.then(|| self.register.all_records());
        let mut findings = records.map_or_else(Vec::new, |records| expiry::findings(&records, now));
        findings.extend(versions::findings(&self.register.records()));
        self.is_expiry_news |= findings != self.expiry.0;
        self.expiry = (findings, members);
    }

    /// Publishes each snapshot once, and the findings about the mesh when they change.
    pub(super) fn publish_mesh(&mut self, now: Timestamp) {
        let view = self.endpoints.take_news();
        let is_news_of_endpoints = view.is_some();
        if let Some(view) = view {
            self.endpoints_findings = self.endpoints.findings();
            self.endpoints_view.send_replace(view);
        }
        let clock_findings = self.clock_findings(now);
        let is_news_of_clock = self.clock_findings != clock_findings;
        self.clock_findings = clock_findings;
        self.revocation_failures.note_lists(self.snapshot_builder.lists_failure());
        let revocation_findings = self.revocation_failures.findings();
        let is_news_of_revocations = self.revocation_findings != revocation_findings;
        self.revocation_findings = revocation_findings;
        let Some(snapshot) = self.snapshot_builder.snapshot() else { return };
        let instant = Instant::now();
        let has_pending_server_expired =
            self.pending_servers.update(snapshot, &self.clients, instant);
        let is_news_of_certificates = std::mem::take(&mut self.is_expiry_news);
        let is_news_of_listeners = self.clients.without_listener.take_news();
        let is_news_of_ports = self.clients.local_ports.take_news();
        let is_news = self.snapshot.send_if_modified(|published| {
            let is_known =
                published.as_ref().is_some_and(|published| Arc::ptr_eq(published, snapshot));
            *published = Some(Arc::clone(snapshot));
            !is_known
        });
        let is_news_of_others = is_news_of_clock
            || is_news_of_revocations
            || is_news_of_listeners
            || is_news_of_ports
            || is_news_of_certificates
            || has_pending_server_expired;
        if !is_news && !is_news_of_endpoints && !is_news_of_others {
            return;
        }
        let outages = snapshot.outages(|port| self.pending_servers.is_pending(port, instant));
        let of_listeners = self.clients.without_listener.findings(snapshot);
        let of_ports = self.clients.local_ports.findings();
        let others = self.endpoints_findings.iter().chain(&self.clock_findings);
        let others = others.chain(&of_listeners).chain(&of_ports).chain(&self.expiry.0);
        let findings = MeshFindings {
            of_calls: outages.into_iter().chain(snapshot.identity_findings().cloned()).collect(),
            of_endpoints: snapshot.endpoint_findings().clone(),
            others: others.chain(&self.revocation_findings).cloned().collect(),
        };
        self.mesh_findings.send_if_modified(|published| {
            let is_news = findings.log_news(published);
            // Also if they are equal: the next ones share their structure with these.
            *published = findings;
            is_news
        });
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::Code;

    use super::*;

    fn findings(text: &str) -> Vec<Finding> {
        vec![Finding::warning(Code(1), None, text.to_owned())]
    }

    #[test]
    fn findings_are_news_only_if_they_differ() {
        let of = |service: &str, text: &str| {
            let of_endpoints = OrdMap::from(vec![(
                service.parse::<ServiceName>().unwrap(),
                Arc::from(findings(text)),
            )]);
            MeshFindings { of_endpoints, ..MeshFindings::default() }
        };
        let store = of("store", "no traffic");
        assert!(
            store.log_news(&MeshFindings::default()) && MeshFindings::default().log_news(&store)
        );
        assert!(!of("store", "no traffic").log_news(&store), "derived again, with the same result");
        assert!(
            of("store", "plaintext").log_news(&store) && of("buyer", "no traffic").log_news(&store)
        );
        let late = MeshFindings { others: findings("late"), ..store.clone() };
        assert!(late.log_news(&store) && !late.log_news(&late.clone()));
        assert_eq!(late.iter().count(), 2);
    }
}
