//! Service ports without an endpoint that a proxy is about to serve. The rollout order holds their callers back, so no
//! request fails. This module only distinguishes such a port from an outage.

use std::collections::BTreeMap;

use ironmesh_catalog::{ServicePort, Snapshot};
use tokio::time::Instant;

use super::clients::Clients;
use super::rollout_order::MAX_WAIT;

/// The ports that a proxy is about to serve, and since when.
#[derive(Debug, Default)]
pub(super) struct PendingServers {
    since: BTreeMap<ServicePort, Instant>,
    /// The earliest end of such a time that was not reported yet.
    next_end: Option<Instant>,
}

impl PendingServers {
    /// Examines the ports without endpoints. Returns whether the time of one has ended since the last call.
    pub(super) fn update(&mut self, snapshot: &Snapshot, clients: &Clients, now: Instant) -> bool {
        let pending = snapshot
            .ports_without_endpoints()
            .filter(|port| clients.has_pending_server(port, snapshot));
        let since = |port: &ServicePort| self.since.get(port).copied().unwrap_or(now);
        self.since = pending.map(|port| (port.clone(), since(port))).collect();
        let has_ended = self.next_end.is_some_and(|end| end <= now);
        let ends = self.since.values().map(|since| *since + MAX_WAIT);
        self.next_end = ends.filter(|end| *end > now).min();
        has_ended
    }

    /// Whether callers of a port are still held back.
    pub(super) fn is_pending(&self, port: &ServicePort, now: Instant) -> bool {
        self.since.get(port).is_some_and(|since| now < *since + MAX_WAIT)
    }

    /// When [`Self::update`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_end
    }
}
