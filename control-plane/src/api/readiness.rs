//! The admin API's view of readiness: what the control plane waits for, its policy, and the findings about the mesh.

use ironmesh_api::{
    FindingView, HandshakesView, PeerControlPlane, Readiness, RejectedAddress, RejectedHandshake,
};
use ironmesh_xds_server::ConnectionRejection;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{RunningControlPlane, wall_time};
use crate::peers::PeerVersion;
use crate::policy_source::PolicyState;

impl RunningControlPlane {
    /// Whether the control plane is ready, and the state of policy and mesh. Findings are marked with their silences.
    pub(super) fn readiness_view(&self) -> Readiness {
        let is_synced = *self.feeds.ready.borrow();
        let of_sidecars = self.sidecars.waiting_for();
        let ready = is_synced && of_sidecars.is_empty();
        let state = self.policy.borrow().clone();
        let waiting_for = if is_synced {
            of_sidecars
        } else {
            let of_policy = snapshot_wait_reason(&state);
            let is_missing = self.feeds.snapshot.borrow().is_none();
            let mut waiting_for = self.feeds.endpoints.borrow().waiting_for.clone();
            waiting_for.splice(0..0, is_missing.then_some(of_policy));
            waiting_for
        };
        let of_state = self.state_findings.borrow().clone();
        let findings = self.feeds.mesh_findings.borrow();
        let of_machines = {
            let revoked = self.register.revoked();
            let is_revoked = |id| revoked.contains_key(&id);
            let name_of = |id| self.register.get(id).map(|record| record.display_name());
            self.alarms.findings(&self.tokens.misused(), is_revoked, name_of, Timestamp::now())
        };
        let of_mesh = of_state.iter().chain(&of_machines).chain(findings.iter());
        let of_mesh = of_mesh.map(FindingView::from);
        let mut findings: Vec<_> = self.risk_findings.iter().cloned().chain(of_mesh).collect();
        let mut policy = state.view;
        let silences = self.active_silences();
        for finding in findings.iter_mut().chain(&mut policy.findings) {
            finding.mark(&silences);
        }
        let handshakes = self.handshakes();
        let peers = self.peers.versions().into_iter();
        let peers = peers.map(|PeerVersion { host, version }| PeerControlPlane { host, version });
        let peers = peers.collect();
        Readiness { ready, waiting_for, policy, findings, handshakes, peers }
    }

    /// The failed TLS handshakes with clients.
    fn handshakes(&self) -> HandshakesView {
        let failed = [
            ConnectionRejection::BadHandshake,
            ConnectionRejection::SlowHandshake,
            ConnectionRejection::Displaced,
        ];
        let counters = self.hub.counters();
        let rejections = self.hub.rejections();
        let last = rejections.last().map(|last| RejectedHandshake {
            address: last.address,
            at: wall_time(last.at),
            reason: last.reason,
        });
        let recent = rejections.recent(Instant::now()).into_iter();
        let recent = recent.map(|(last, count)| RejectedAddress {
            address: last.address.ip().to_canonical(),
            count,
            at: wall_time(last.at),
            reason: last.reason,
        });
        let recent = recent.collect();
        let rejected = failed.into_iter().map(|why| counters.connections_rejected(why)).sum();
        HandshakesView { rejected, last, recent }
    }
}

/// What readiness waits for as long as there is no snapshot.
fn snapshot_wait_reason(policy: &PolicyState) -> String {
    if policy.specification.is_some() {
        // That takes a moment, for example to issue certificates.
        return "the first snapshot of the mesh".to_owned();
    }
    // Without findings, the source cannot be read at all.
    let view = &policy.view;
    let why = if view.findings.is_empty() { view.rendered.trim_end() } else { "" };
    let colon = if why.is_empty() { "" } else { ": " };
    format!("a policy without errors in `{}`{colon}{why}", view.source)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn start_waits_for_a_policy_and_then_for_the_snapshot() {
        let mut state = PolicyState::default();
        state.view.source = "policy".to_owned();
        assert_eq!(snapshot_wait_reason(&state), "a policy without errors in `policy`");
        state.view.rendered = "it is away\n".to_owned();
        assert_eq!(snapshot_wait_reason(&state), "a policy without errors in `policy`: it is away");
        state.specification = Some(Arc::default());
        assert_eq!(snapshot_wait_reason(&state), "the first snapshot of the mesh");
    }
}
