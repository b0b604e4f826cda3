//! In which order the types of a stream are pushed: make before break (invariant 6).
//!
//! Clusters, then their endpoints, then listeners, then routes; secrets wait for nothing. Routes are not
//! warmed: one that names a missing cluster answers 503. So what names a cluster waits until that is
//! taken or refused, however long it takes, and nothing else does; and what is urgent does not, because
//! a withdrawal must not wait while some cluster warms. A listener waits for its routes as well, and for
//! 15 s at most for the secrets that it names: a chain that is made anew because somebody was withdrawn
//! must not begin with the list on which he still was.
//!
//! Only the first answer of a type waits for all clusters, and that of listeners for all secrets, since a
//! client that begins takes itself for ready with it; but no longer than for one that is late.
//!
//! Removals come last, and in the order in which things refer to each other.

use std::collections::BTreeMap;

use ironmesh_xds_wire::{ResourceSet, ResourceType};
use tokio::time::Instant;

use super::type_stream::TypeStream;
use super::{DeltaOutput, DeltaStream};
use crate::references::{ClientState, REMOVALS, must_wait};

impl DeltaStream {
    /// Sends all that may be sent now.
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
        for stream in self.types.values_mut() {
            stream.share(target);
        }
        for resource_type in ResourceType::ALL {
            // Nearly always there is something to be said of one type only.
            if self.types.get(&resource_type).is_some_and(TypeStream::may_have_updates) {
                self.push_updates(resource_type, target, now, outputs);
            }
        }
        if self.grace_ends.is_some() || !self.types.values().any(|s| s.has_removals(target)) {
            return;
        }
        let clusters = self.types.get(&ResourceType::Cluster);
        let is_lagging = clusters.is_some_and(TypeStream::is_lagging);
        for (resource_type, referrers) in REMOVALS {
            let mut referrers = referrers.iter();
            if !referrers.all(|referrer| self.is_settled(*referrer, is_lagging, target)) {
                continue;
            }
            let nonce = self.last_nonce + 1;
            let Some(stream) = self.types.get_mut(&resource_type) else { continue };
            // What is left to be sent is held, and may be to take the place of what has gone.
            let is_replaced = is_lagging || !stream.has_updates(target);
            if stream.is_busy() || !is_replaced || !stream.has_removals(target) {
                continue;
            }
            let response = stream.next_removals(target, nonce);
            stream.sent(&response, now);
            self.last_nonce = nonce;
            if let (ResourceType::Cluster, Some(endpoints)) =
                (resource_type, self.types.get_mut(&ResourceType::Endpoint))
            {
                endpoints.release(&response.removed);
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
                &[ResourceType::Cluster, ResourceType::Secret]
            }
            ResourceType::Listener | ResourceType::Route => &[ResourceType::Cluster],
            _ => &[],
        };
        let are_pending = needs.iter().any(|of| self.are_pending(*of, target));
        let nonce = self.last_nonce + 1;
        let Some(mut stream) = self.types.remove(&resource_type) else { return };
        let mut response = None;
        let is_free = stream.subscription.has_begun && !stream.is_busy();
        if is_free && !(are_pending && stream.owes_response) {
            stream.has_updates(target);
            let others = OtherTypes { types: &self.types, target };
            let hold = |name: &str| others.hold(resource_type, name);
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
        outputs.push(DeltaOutput::Send(response));
    }

    /// Whether resources of a type are still to be sent or to be taken, by a client that takes them in
    /// time.
    fn are_pending(&mut self, resource_type: ResourceType, target: &ResourceSet) -> bool {
        self.types.get_mut(&resource_type).is_some_and(|stream| {
            !stream.is_lagging()
                && (stream.is_busy()
                    || (stream.subscription.has_begun && stream.has_updates(target)))
        })
    }

    /// Whether the client has taken all that it is to have of a type, and let go what it is not; but for
    /// what waits for clusters that are late.
    fn is_settled(
        &mut self,
        resource_type: ResourceType,
        is_lagging: bool,
        target: &ResourceSet,
    ) -> bool {
        self.types.get_mut(&resource_type).is_none_or(|stream| {
            let has_updates = stream.has_updates(target) && !is_lagging;
            !stream.is_busy() && !has_updates && !stream.has_removals(target)
        })
    }
}

/// The other types, seen from one.
struct OtherTypes<'a> {
    types: &'a BTreeMap<ResourceType, TypeStream>,
    target: &'a ResourceSet,
}

impl OtherTypes<'_> {
    fn is(&self, of: ResourceType, is_so: impl Fn(&TypeStream) -> bool) -> bool {
        self.types.get(&of).is_some_and(is_so)
    }

    /// Whether `name` is not to be sent yet.
    fn hold(&self, resource_type: ResourceType, name: &str) -> bool {
        match resource_type {
            // Endpoints before their cluster are taken and dropped, and the cluster then waits 15 s.
            // Those of a cluster that the client knows never wait, not even for a change of it: they
            // may be what the client needs to take the push of clusters that is under way.
            ResourceType::Endpoint => {
                self.is(ResourceType::Cluster, |clusters| clusters.is_unsent(name, self.target))
            }
            ResourceType::Listener | ResourceType::Route => {
                let resource = self.target.of(resource_type).get(name);
                resource.is_some_and(|resource| must_wait(resource, self.target, self))
            }
            ResourceType::Secret | ResourceType::Cluster => false,
        }
    }
}

impl ClientState for OtherTypes<'_> {
    fn lacks_none(&self, of: ResourceType) -> bool {
        self.is(of, |stream| stream.lacks_none(self.target))
    }

    fn lacks_cluster(&self, name: &str) -> bool {
        self.is(ResourceType::Cluster, |clusters| clusters.is_lacking(name, self.target))
    }

    fn lacks_routes(&self, name: &str) -> bool {
        !self.is(ResourceType::Route, |routes| routes.acked.contains_key(name))
    }

    fn lacks_secret(&self, name: &str) -> bool {
        self.is(ResourceType::Secret, |secrets| {
            !secrets.is_lagging() && secrets.is_outdated(name, self.target)
        })
    }
}
