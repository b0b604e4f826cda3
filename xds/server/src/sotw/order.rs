//! In which order the types of a stream are pushed: make before break (invariant 6).
//!
//! As in delta: clusters, then their endpoints, then listeners, then routes; secrets wait for nothing,
//! and listeners for them.
//! A cluster that has gone stays in the state that is sent until all else is taken or late, because
//! listeners and routes may still name it. Nothing refers to a listener: that goes with the next push.

use ironmesh_xds_wire::{ResourceSet, SotwResponse};
use tokio::time::Instant;

use super::partial::Partial;
use super::whole::Whole;
use super::{Output, SotwStream};

impl SotwStream {
    /// Sends all that may be sent now.
    pub(super) fn advance(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        if self.grace_ends.is_some_and(|end| now >= end) {
            self.grace_ends = None;
        }
        let Some(target) = self.target.clone() else { return };
        for whole in [&mut self.clusters, &mut self.listeners] {
            outputs.extend(whole.settle_claim(&target).map(Output::Acked));
        }
        let response = self.secrets.next(&target, self.last_nonce + 1, now, |_| false);
        self.send(response, outputs);
        self.push_clusters(&target, true, now, outputs);
        self.push_endpoints(&target, now, outputs);
        // Routes are not warmed: one that names a missing cluster answers 503.
        let clusters_are_coming =
            self.clusters.exchange.is_busy() || self.clusters.due(&target, true).is_some();
        if !clusters_are_coming {
            // A chain that is made anew must not begin with the secret of before.
            let secrets_are_coming =
                self.secrets.exchange.is_busy() || self.secrets.has_updates(&target);
            if !self.listeners.exchange.is_busy()
                && let Some(state) = self.listeners.due(&target, false)
                && (state.is_empty() || !secrets_are_coming)
            {
                let (response, _) = self.listeners.push(state, self.last_nonce + 1, now);
                self.send(Some(response), outputs);
                self.secrets.allow_to_ask_again();
                self.routes.allow_to_ask_again();
            }
            let response = self.routes.next(&target, self.last_nonce + 1, now, |_| false);
            self.send(response, outputs);
        }
        if self.grace_ends.is_none() && self.is_settled(&target) {
            self.push_clusters(&target, false, now, outputs);
            self.push_endpoints(&target, now, outputs);
        }
    }

    fn push_clusters(
        &mut self,
        target: &ResourceSet,
        keeps_gone: bool,
        now: Instant,
        outputs: &mut Vec<Output>,
    ) {
        if self.clusters.exchange.is_busy() {
            return;
        }
        let Some(state) = self.clusters.due(target, keeps_gone) else { return };
        let (response, changed) = self.clusters.push(state, self.last_nonce + 1, now);
        self.send(Some(response), outputs);
        // Envoy warms an added or changed cluster until it is told its endpoints (rule 1).
        for name in &changed {
            self.endpoints.resend(name);
        }
        self.endpoints.allow_to_ask_again();
        self.secrets.allow_to_ask_again();
    }

    fn push_endpoints(&mut self, target: &ResourceSet, now: Instant, outputs: &mut Vec<Output>) {
        // Endpoints before their cluster are taken and dropped (rule 2).
        let clusters = &self.clusters;
        let hold = |name: &str| clusters.is_to_come(name, target);
        let response = self.endpoints.next(target, self.last_nonce + 1, now, hold);
        self.send(response, outputs);
    }

    fn send(&mut self, response: Option<SotwResponse>, outputs: &mut Vec<Output>) {
        if let Some(response) = response {
            self.last_nonce = response.nonce;
            outputs.push(Output::Send(response));
        }
    }

    fn is_settled(&mut self, target: &ResourceSet) -> bool {
        let is_settled =
            |partial: &mut Partial| !partial.exchange.is_busy() && !partial.has_updates(target);
        let is_whole_settled = |whole: &mut Whole, keeps_gone| {
            !whole.exchange.is_busy() && whole.due(target, keeps_gone).is_none()
        };
        is_settled(&mut self.secrets)
            && is_settled(&mut self.endpoints)
            && is_settled(&mut self.routes)
            && is_whole_settled(&mut self.clusters, true)
            && is_whole_settled(&mut self.listeners, false)
    }
}
