//! In which order the types of a stream are pushed: make before break (invariant 6).
//!
//! Clusters, then their endpoints, then listeners, then routes; removals last, and in the order in
//! which things refer to each other. Secrets wait for nothing. A listener or route waits until the
//! clusters that it may name are taken, because routes are not warmed: one that names a missing
//! cluster answers 503. A listener waits for secrets as well: a chain that is made anew because
//! somebody was withdrawn must not begin with the list on which he still was.

use ironmesh_xds_wire::{ResourceSet, ResourceType};
use tokio::time::Instant;

use super::{DeltaStream, Output};

/// The order of removals: first what refers, then what is referred to.
const REMOVALS: [ResourceType; 5] = [
    ResourceType::Listener,
    ResourceType::Route,
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Secret,
];

impl DeltaStream {
    /// Sends all that may be sent now.
    pub(super) fn advance(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        if self.grace_ends.is_some_and(|end| now >= end) {
            self.grace_ends = None;
        }
        let Some(target) = self.target.clone() else { return };
        for resource_type in ResourceType::ALL {
            self.push_updates(resource_type, &target, now, outputs);
        }
        let is_settled =
            self.types.values_mut().all(|stream| !stream.is_busy() && !stream.has_updates(&target));
        if !is_settled || self.grace_ends.is_some() {
            return;
        }
        for resource_type in REMOVALS {
            let nonce = self.last_nonce + 1;
            let Some(stream) = self.types.get_mut(&resource_type) else { continue };
            if stream.has_removals(&target) {
                let response = stream.next_removals(&target, nonce);
                stream.sent(&response, now);
                self.last_nonce = nonce;
                if let (ResourceType::Cluster, Some(endpoints)) =
                    (resource_type, self.types.get_mut(&ResourceType::Endpoint))
                {
                    endpoints.release(&response.removed);
                }
                outputs.push(Output::Send(response));
                // The next type waits for this one's ACK.
                return;
            }
        }
    }

    fn push_updates(
        &mut self,
        resource_type: ResourceType,
        target: &ResourceSet,
        now: Instant,
        outputs: &mut Vec<Output>,
    ) {
        let needs_clusters = matches!(resource_type, ResourceType::Listener | ResourceType::Route);
        if needs_clusters && self.are_coming(ResourceType::Cluster, target) {
            return;
        }
        let has_listeners = resource_type == ResourceType::Listener
            && self.types.get_mut(&resource_type).is_some_and(|stream| stream.has_updates(target));
        if has_listeners && self.are_coming(ResourceType::Secret, target) {
            return;
        }
        let nonce = self.last_nonce + 1;
        let Some(mut stream) = self.types.remove(&resource_type) else { return };
        let mut response = None;
        if stream.subscription.has_begun && !stream.is_busy() {
            stream.has_updates(target);
            // Endpoints before their cluster are taken and dropped, and the cluster then waits 15 s.
            // Those of a cluster that the client knows never wait, not even for a change of it:
            // they may be what the client needs to take the push of clusters that is under way.
            let clusters = self.types.get(&ResourceType::Cluster);
            let hold = |name: &str| {
                resource_type == ResourceType::Endpoint
                    && clusters.is_some_and(|clusters| clusters.is_to_come(name, target))
            };
            response = stream.next_updates(target, nonce, hold);
        }
        if let Some(response) = &response {
            stream.sent(response, now);
        }
        self.types.insert(resource_type, stream);
        let Some(response) = response else { return };
        self.last_nonce = nonce;
        if resource_type == ResourceType::Cluster {
            // Envoy warms an added or changed cluster until it is told its endpoints, and does not
            // ask for those that it is subscribed to already.
            if let Some(endpoints) = self.types.get_mut(&ResourceType::Endpoint) {
                for cluster in &response.resources {
                    endpoints.resend(cluster.name());
                }
            }
        }
        outputs.push(Output::Send(response));
    }

    /// Whether resources of a type are still to be sent or to be taken.
    fn are_coming(&mut self, resource_type: ResourceType, target: &ResourceSet) -> bool {
        self.types.get_mut(&resource_type).is_some_and(|stream| {
            stream.is_busy() || (stream.subscription.has_begun && stream.has_updates(target))
        })
    }
}
