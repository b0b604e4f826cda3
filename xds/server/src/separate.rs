//! Streams of the services with one type only.
//!
//! They cannot see each other's ACKs, so a short delay replaces the push order of an aggregated
//! stream. Traffic without gaps requires the aggregated service, as the protocol says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::{ResourceSet, ResourceType};
use tokio::time::Instant;

use crate::stream::{REMOVAL_GRACE, StreamOutput};
use crate::variant::Variant;

/// The delay after a change of clusters, which another stream pushes, before resources that refer
/// to them follow.
pub(crate) const SEPARATE_DELAY: Duration = Duration::from_millis(50);

/// A stream that may have one type only.
#[derive(Debug)]
pub(crate) struct Separate<V> {
    variant: V,
    /// That type; `None` on an aggregated stream.
    only: Option<ResourceType>,
    /// The newest set.
    newest: Option<ResourceSet>,
    /// The time at which the variant receives it, if it has not yet.
    due: Option<Instant>,
    /// The clusters that have changed since the variant's last set.
    clusters: BTreeSet<Arc<str>>,
}

impl<V: Variant> Separate<V> {
    pub(crate) fn new(variant: V, only: Option<ResourceType>) -> Self {
        Self { variant, only, newest: None, due: None, clusters: BTreeSet::new() }
    }

    pub(crate) fn variant(&self) -> &V {
        &self.variant
    }

    pub(crate) fn on_request(
        &mut self,
        request: &V::Request,
        now: Instant,
    ) -> Vec<StreamOutput<V::Response>> {
        self.variant.on_request(request, now)
    }

    pub(crate) fn on_set(
        &mut self,
        set: ResourceSet,
        now: Instant,
    ) -> Vec<StreamOutput<V::Response>> {
        let old = match self.only {
            Some(_) => self.newest.replace(set.clone()),
            None => None,
        };
        let Some(old) = old else { return self.variant.on_set(set, now) };
        match self.only {
            // Other streams push the resources that no longer refer to a cluster.
            Some(ResourceType::Cluster) => {
                self.variant.defer_removals(now + REMOVAL_GRACE);
                return self.variant.on_set(set, now);
            }
            Some(ResourceType::Runtime | ResourceType::ExtensionConfig | ResourceType::Secret)
            | None => return self.variant.on_set(set, now),
            Some(ResourceType::Endpoint | ResourceType::Listener | ResourceType::Route) => {}
        }
        self.clusters.extend(set.changed_since(&old, ResourceType::Cluster));
        if self.clusters.is_empty() {
            return self.variant.on_set(set, now);
        }
        self.due.get_or_insert(now + SEPARATE_DELAY);
        Vec::new()
    }

    pub(crate) fn on_retry(
        &mut self,
        resource_type: ResourceType,
        name: &Arc<str>,
        now: Instant,
    ) -> Vec<StreamOutput<V::Response>> {
        self.variant.on_retry(resource_type, name, now)
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) -> Vec<StreamOutput<V::Response>> {
        let mut outputs = self.variant.on_timeout(now);
        let is_due = self.due.is_some_and(|due| now >= due);
        let Some(set) = self.newest.clone().filter(|_| is_due) else { return outputs };
        self.due = None;
        // Envoy warms a changed cluster until it receives endpoints, and does not request those
        // that it is subscribed to already (rule 1).
        let mut clusters = std::mem::take(&mut self.clusters);
        clusters.retain(|name| set.contains(ResourceType::Endpoint, name));
        if self.only == Some(ResourceType::Endpoint) {
            self.variant.resend_endpoints(&clusters);
        }
        outputs.extend(self.variant.on_set(set, now));
        outputs
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.variant.deadline().into_iter().chain(self.due).min()
    }
}
