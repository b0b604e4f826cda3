//! The push order of types on a state-of-the-world stream: make before break (invariant 6).
//!
//! As in delta, clusters go first, then their endpoints, listeners and routes; runtime layers,
//! configurations of filters and secrets wait for nothing. Listeners and routes wait for what they name unless they are urgent, and for nothing
//! else except with their first response. A removed cluster stays in the state that is sent until
//! listeners and routes are ACKed, because they may still name it. Nothing refers to a listener: it
//! is removed with the next push.

use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType, SotwResponse};
use tokio::time::Instant;

use super::partial::Partial;
use super::whole::Whole;
use super::{SotwOutput, SotwStream};
use crate::references::{ClientState, must_wait};

impl SotwStream {
    /// Sends everything that may be sent now.
    pub(super) fn advance(&mut self, now: Instant, outputs: &mut Vec<SotwOutput>) {
        if self.grace_ends.is_some_and(|end| now >= end) {
            self.grace_ends = None;
        }
        let Some(target) = self.target.clone() else { return };
        self.share(&target);
        for whole in [&mut self.clusters, &mut self.listeners] {
            outputs.extend(whole.settle_claim(&target).map(SotwOutput::Acked));
        }
        let response = self.runtimes.next(&target, self.last_nonce + 1, now, |_| false);
        self.send(response, outputs);
        let response = self.extension_configs.next(&target, self.last_nonce + 1, now, |_| false);
        self.send(response, outputs);
        let response = self.secrets.next(&target, self.last_nonce + 1, now, |_| false);
        self.send(response, outputs);
        self.push_clusters(&target, true, now, outputs);
        if self.clusters.is_blocked {
            // With the removed clusters it is a state that the client NACKed; without them it may
            // not be. A cluster that is sent so goes before its endpoints.
            self.push_removals(&target, now, outputs);
        }
        self.push_endpoints(&target, now, outputs);
        self.push_listeners(&target, now, outputs);
        self.push_routes(&target, now, outputs);
        self.push_removals(&target, now, outputs);
    }

    /// Sends the clusters without removed ones, once nothing can refer to these any more.
    fn push_removals(&mut self, target: &ResourceSet, now: Instant, outputs: &mut Vec<SotwOutput>) {
        if self.grace_ends.is_none() && self.is_settled(target) {
            self.push_clusters(target, false, now, outputs);
            self.push_endpoints(target, now, outputs);
        }
    }

    /// Shares structure with the target where both are equal.
    fn share(&mut self, target: &ResourceSet) {
        for (of, exchange) in self.exchanges_mut() {
            exchange.subscription.share(target.of(of));
        }
        self.runtimes.acked.share(target.of(ResourceType::Runtime));
        self.extension_configs.acked.share(target.of(ResourceType::ExtensionConfig));
        self.secrets.acked.share(target.of(ResourceType::Secret));
        self.clusters.acked.share(target.of(ResourceType::Cluster));
        self.endpoints.acked.share(target.of(ResourceType::Endpoint));
        self.listeners.acked.share(target.of(ResourceType::Listener));
        self.routes.acked.share(target.of(ResourceType::Route));
    }

    fn push_listeners(
        &mut self,
        target: &ResourceSet,
        now: Instant,
        outputs: &mut Vec<SotwOutput>,
    ) {
        if self.listeners.exchange.is_busy()
            || (self.listeners.owes_response
                && self.listeners.exchange.is_fresh
                && (self.are_clusters_pending(target) || self.are_parts_pending(target)))
        {
            return;
        }
        let (clusters, routes) = (&self.clusters, &self.routes);
        let parts = [&self.secrets, &self.extension_configs];
        let client = OtherTypes { clusters, parts, routes, target };
        let hold = |listener: &Resource| must_wait(listener, target, &client);
        let Some(state) = self.listeners.due(target, false, hold) else { return };
        let (response, _) = self.listeners.push(state, self.last_nonce + 1, now);
        self.send(Some(response), outputs);
        self.secrets.allow_repeat();
        self.extension_configs.allow_repeat();
        self.routes.allow_repeat();
    }

    fn push_routes(&mut self, target: &ResourceSet, now: Instant, outputs: &mut Vec<SotwOutput>) {
        if self.routes.owes_response
            && self.routes.exchange.is_fresh
            && self.are_clusters_pending(target)
        {
            return;
        }
        let clusters = &self.clusters;
        let hold = |name: &str| {
            let routes = target.of(ResourceType::Route).get(name);
            routes.is_some_and(|routes| {
                let mut named = routes.references_to(ResourceType::Cluster);
                !routes.is_urgent() && named.any(|name| clusters.is_lacking(name, target))
            })
        };
        let response = self.routes.next(target, self.last_nonce + 1, now, hold);
        self.send(response, outputs);
    }

    /// Whether clusters remain to be sent or ACKed, by a client that ACKs in time.
    fn are_clusters_pending(&mut self, target: &ResourceSet) -> bool {
        let clusters = &mut self.clusters;
        !clusters.exchange.is_lagging
            && (clusters.exchange.is_busy() || clusters.due(target, true, |_| false).is_some())
    }

    /// The same for secrets and configurations of filters, if there are listeners that may name them.
    fn are_parts_pending(&mut self, target: &ResourceSet) -> bool {
        if target.of(ResourceType::Listener).is_empty() {
            return false;
        }
        [&mut self.secrets, &mut self.extension_configs].into_iter().any(|parts| {
            let is_busy = parts.exchange.is_busy();
            let has_begun = parts.exchange.subscription.has_begun;
            !parts.exchange.is_lagging && (is_busy || (has_begun && parts.has_updates(target)))
        })
    }

    fn push_clusters(
        &mut self,
        target: &ResourceSet,
        keeps_gone: bool,
        now: Instant,
        outputs: &mut Vec<SotwOutput>,
    ) {
        if self.clusters.exchange.is_busy() {
            return;
        }
        let Some(state) = self.clusters.due(target, keeps_gone, |_| false) else { return };
        let (response, changed) = self.clusters.push(state, self.last_nonce + 1, now);
        self.send(Some(response), outputs);
        // Envoy warms an added or changed cluster until it receives endpoints (rule 1).
        for name in &changed {
            self.endpoints.resend(name);
        }
        self.endpoints.allow_repeat();
        self.secrets.allow_repeat();
    }

    fn push_endpoints(
        &mut self,
        target: &ResourceSet,
        now: Instant,
        outputs: &mut Vec<SotwOutput>,
    ) {
        // Envoy accepts and discards endpoints before their cluster (rule 2).
        let clusters = &self.clusters;
        let hold = |name: &str| clusters.is_unsent(name, target);
        let response = self.endpoints.next(target, self.last_nonce + 1, now, hold);
        self.send(response, outputs);
    }

    fn send(&mut self, response: Option<SotwResponse>, outputs: &mut Vec<SotwOutput>) {
        if let Some(response) = response {
            self.last_nonce = response.nonce;
            outputs.push(SotwOutput::Send(response));
        }
    }

    /// Whether nothing that the client has can refer to a removed cluster.
    fn is_settled(&mut self, target: &ResourceSet) -> bool {
        let is_lagging = self.clusters.exchange.is_lagging;
        !self.routes.exchange.is_busy()
            && (is_lagging || !self.routes.has_updates(target))
            && !self.listeners.exchange.is_busy()
            && (is_lagging || self.listeners.held.is_empty())
            && self.clusters.due(target, true, |_| false).is_none()
    }
}

/// The other types of the stream, for checks of a listener's references.
struct OtherTypes<'a> {
    clusters: &'a Whole,
    /// Secrets and configurations of filters.
    parts: [&'a Partial; 2],
    routes: &'a Partial,
    target: &'a ResourceSet,
}

impl ClientState for OtherTypes<'_> {
    fn lacks_none(&self, of: ResourceType) -> bool {
        of == ResourceType::Cluster && self.clusters.lacks_none(self.target)
    }

    fn lacks_cluster(&self, name: &str) -> bool {
        self.clusters.is_lacking(name, self.target)
    }

    fn lacks_routes(&self, name: &str) -> bool {
        !self.routes.acked.contains_key(name)
    }

    fn lacks_part(&self, of: ResourceType, name: &str) -> bool {
        self.parts.iter().any(|parts| {
            let is_lagging = parts.exchange.is_lagging;
            parts.resource_type == of && !is_lagging && parts.is_outdated(name, self.target)
        })
    }
}
