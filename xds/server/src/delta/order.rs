//! The push order of types on a delta stream: make before break (invariant 6).
//!
//! Clusters go first, then their endpoints, listeners and routes. Runtime layers, configurations of
//! filters and secrets wait for nothing, and go before all others in this order. Envoy
//! does not warm routes: a route to a missing cluster answers 503. So a resource that names a
//! cluster waits until the client ACKs or NACKs that cluster, however long it takes. Nothing else
//! waits for clusters, and neither do urgent resources: a withdrawal must not wait for a warming
//! cluster.
//!
//! A listener also waits for its routes, and up to 15 s for the secrets and configurations of
//! filters that it names. When a grant is withdrawn, a recreated filter chain must not start with
//! the old list of callers.
//!
//! Only the first response of a type waits for all clusters, and that of listeners for all secrets
//! and configurations of filters, because a starting client counts itself ready with it. It waits no longer than for a late ACK.
//!
//! Removals come last, in the order of references.

use ironmesh_xds_wire::{ByType, ResourceSet, ResourceType};
use tokio::time::Instant;

use super::type_stream::TypeStream;
use super::{DeltaOutput, DeltaStream};
use crate::references::{ClientState, REMOVALS, must_wait};

impl DeltaStream {
    /// Sends everything that may be sent now.
    pub(super) fn advance(&mut self, now: Instant, outputs: &mut Vec<DeltaOutput>) {
        if self.grace_ends.is_some_and(|end| now >= end) {
            self.grace_ends = None;
        }
        if let Some(target) = self.target.take() {
            self.advance_to(&target, now, outputs);
            self.target = Some(target);
        }
    }

    fn advance_to(&mut self, target: &ResourceSet, now: Instant, outputs: &mut Vec<DeltaOutput>) {
        for resource_type in ResourceType::ALL {
            // Nearly always only one type has updates.
            if self.types.of(resource_type).may_have_updates() {
                self.push_updates(resource_type, target, now, outputs);
            }
        }
        if self.grace_ends.is_some() || !self.types.values().any(|s| s.has_removals(target)) {
            return;
        }
        let is_lagging = self.types.of(ResourceType::Cluster).is_lagging();
        for (resource_type, referrers) in REMOVALS {
            let mut referrers = referrers.iter();
            if !referrers.all(|referrer| self.is_settled(*referrer, is_lagging, target)) {
                continue;
            }
            let nonce = self.last_nonce + 1;
            let stream = self.types.of_mut(resource_type);
            // Updates that remain are held, and may replace what is removed.
            let is_replaced = is_lagging || !stream.has_updates(target);
            if stream.is_busy() || !is_replaced || !stream.has_removals(target) {
                continue;
            }
            let response = stream.next_removals(target, nonce);
            stream.sent(&response, now);
            self.last_nonce = nonce;
            if resource_type == ResourceType::Cluster {
                self.types.of_mut(ResourceType::Endpoint).release(&response.removed);
            }
            outputs.push(DeltaOutput::Send(response));
        }
    }

    fn push_updates(
        &mut self,
        resource_type: ResourceType,
        target: &ResourceSet,
        now: Instant,
        outputs: &mut Vec<DeltaOutput>,
    ) {
        let needs: &[_] = match resource_type {
            ResourceType::Listener if !target.of(resource_type).is_empty() => {
                &[ResourceType::Cluster, ResourceType::Secret, ResourceType::ExtensionConfig]
            }
            ResourceType::Listener | ResourceType::Route => &[ResourceType::Cluster],
            _ => &[],
        };
        let are_pending = needs.iter().any(|of| self.are_pending(*of, target));
        let stream = self.types.of_mut(resource_type);
        if !stream.subscription.has_begun || stream.is_busy() || are_pending && stream.owes_response
        {
            return;
        }
        stream.has_updates(target);
        let others = OtherTypes { types: &self.types, target };
        let hold = |name: &str| others.hold(resource_type, name);
        let names = self.types.of(resource_type).next_names(target, hold);
        let nonce = self.last_nonce + 1;
        let stream = self.types.of_mut(resource_type);
        let Some(response) = stream.next_updates(names, target, nonce) else { return };
        stream.sent(&response, now);
        self.last_nonce = nonce;
        if resource_type == ResourceType::Cluster {
            // Envoy warms an added or changed cluster until it receives endpoints, and does not
            // request those that it is subscribed to already.
            let endpoints = self.types.of_mut(ResourceType::Endpoint);
            for cluster in &response.resources {
                endpoints.resend(cluster.name());
            }
        }
        outputs.push(DeltaOutput::Send(response));
    }

    /// Whether resources of a type remain to be sent or ACKed, by a client that ACKs in time.
    fn are_pending(&mut self, resource_type: ResourceType, target: &ResourceSet) -> bool {
        let stream = self.types.of_mut(resource_type);
        !stream.is_lagging()
            && (stream.is_busy() || (stream.subscription.has_begun && stream.has_updates(target)))
    }

    /// Whether the client has ACKed all resources of a type and all removals, apart from those that
    /// wait for late clusters.
    fn is_settled(
        &mut self,
        resource_type: ResourceType,
        is_lagging: bool,
        target: &ResourceSet,
    ) -> bool {
        let stream = self.types.of_mut(resource_type);
        let has_updates = stream.has_updates(target) && !is_lagging;
        !stream.is_busy() && !has_updates && !stream.has_removals(target)
    }
}

/// The other types of the stream, for checks of references.
struct OtherTypes<'a> {
    types: &'a ByType<TypeStream>,
    target: &'a ResourceSet,
}

impl OtherTypes<'_> {
    /// Whether the resource `name` must wait.
    fn hold(&self, resource_type: ResourceType, name: &str) -> bool {
        match resource_type {
            // Envoy accepts and discards endpoints before their cluster, and the cluster then waits
            // 15 s. Endpoints of a cluster that the client has never wait, not even for a change of
            // it: the client may need them to ACK the push of clusters in flight.
            ResourceType::Endpoint => {
                self.types.of(ResourceType::Cluster).is_unsent(name, self.target)
            }
            ResourceType::Listener | ResourceType::Route => {
                let resource = self.target.of(resource_type).get(name);
                resource.is_some_and(|resource| must_wait(resource, self.target, self))
            }
            ResourceType::Runtime
            | ResourceType::ExtensionConfig
            | ResourceType::Secret
            | ResourceType::Cluster => false,
        }
    }
}

impl ClientState for OtherTypes<'_> {
    fn lacks_none(&self, of: ResourceType) -> bool {
        self.types.of(of).lacks_none(self.target)
    }

    fn lacks_cluster(&self, name: &str) -> bool {
        self.types.of(ResourceType::Cluster).is_lacking(name, self.target)
    }

    fn lacks_routes(&self, name: &str) -> bool {
        !self.types.of(ResourceType::Route).acked.contains_key(name)
    }

    fn lacks_part(&self, of: ResourceType, name: &str) -> bool {
        {
            let parts = self.types.of(of);
            !parts.is_lagging() && parts.is_outdated(name, self.target)
        }
    }
}
