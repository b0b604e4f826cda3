//! The findings about the mesh as a whole: collects those of all parts, publishes them and logs the new ones, once per
//! change. It detects nothing itself.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Reconciler, expiry};

impl Reconciler {
    /// Updates the findings about proxy certificates: by the clock, and after an enrollment or a revocation.
    pub(super) fn check_certificates(&mut self, is_tick: bool, now: Timestamp) {
        let members = self.register.generation().borrow().members;
        if !is_tick && self.expiry.1 == members {
            return;
        }
        // After a jump of the clock no proxy is retired, so none is reported either.
        let is_clock_reliable = self.clock.recent_jump(Instant::now()).is_none();
        let records = is_clock_reliable.then(|| self.register.all_records());
        let findings = records.map_or_else(Vec::new, |records| expiry::findings(&records, now));
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
        let of_listeners = self.clients.without_listener.findings(snapshot);
        let of_ports = self.clients.local_ports.findings();
        let outages = snapshot.outages(|port| self.pending_servers.is_pending(port, instant));
        let of_mesh = || outages.iter().chain(snapshot.findings());
        let of_proxies = || of_listeners.iter().chain(&of_ports).chain(&self.expiry.0);
        let known = || self.endpoints_findings.iter().chain(&self.clock_findings);
        let of_revocations = || self.revocation_findings.iter();
        let findings = || of_mesh().chain(known()).chain(of_proxies()).chain(of_revocations());
        self.mesh_findings.send_if_modified(|published| {
            if findings().eq(published.iter()) {
                return false;
            }
            let known: HashSet<_> = published.iter().collect();
            for finding in findings().filter(|finding| !known.contains(finding)) {
                tracing::warn!("{finding}");
            }
            *published = findings().cloned().collect();
            true
        });
    }
}
