//! The state-of-the-world stream, as a state machine: requests, sets and time in, responses and
//! reports out. It has the same interface as [`crate::delta`], and keeps the same rules.
//!
//! The differences: a request has all names each time, and one version for everything. A response
//! of clusters or listeners is complete (`whole`); one of any other type is partial
//! (`partial`), and cannot express that a resource is missing or removed.

mod exchange;
mod order;
mod partial;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), expect(dead_code, reason = "the tests use all of it"))]
#[expect(clippy::indexing_slicing, reason = "for tests: a panic is a failed test")]
mod tests;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::{ResourceSet, ResourceType, SotwRequest, SotwResponse, Version};
use tokio::time::Instant;

use crate::overlay::Overlay;
use crate::stream::{Acked, Nacked, REMOVAL_GRACE, UnknownTypes};
use crate::subscription;
use exchange::Exchange;
use partial::Partial;
pub use whole::AckedState;
use whole::Whole;

/// The outputs of a state-of-the-world stream.
pub type SotwOutput = crate::stream::StreamOutput<SotwResponse>;

/// What a request means for the stream.
#[derive(Debug)]
enum RequestOutcome {
    Acked(Acked),
    Nacked(Nacked),
    /// It is neither ACK nor NACK, and may need a response.
    None,
    /// It gets no response.
    Stale,
}

/// One state-of-the-world stream.
#[derive(Debug)]
pub struct SotwStream {
    runtimes: Partial,
    extension_configs: Partial,
    secrets: Partial,
    clusters: Whole,
    endpoints: Partial,
    listeners: Whole,
    routes: Partial,
    /// The resource set of the client; `None` until one is published.
    target: Option<ResourceSet>,
    unknown_types: UnknownTypes,
    last_nonce: u64,
    /// The end of the [`REMOVAL_GRACE`], if it is running.
    grace_ends: Option<Instant>,
}

impl SotwStream {
    /// Creates a stream. `nacked` holds the versions that the client NACKed on earlier streams,
    /// which are not sent again. `acked_states` holds the states that they last ACKed
    /// ([`SotwStream::acked_state`]).
    pub fn new(
        nacked: &BTreeMap<(ResourceType, Arc<str>), Version>,
        mut acked_states: BTreeMap<ResourceType, AckedState>,
    ) -> Self {
        let mut stream = Self {
            runtimes: Partial::new(ResourceType::Runtime),
            extension_configs: Partial::new(ResourceType::ExtensionConfig),
            secrets: Partial::new(ResourceType::Secret),
            clusters: Whole::new(
                ResourceType::Cluster,
                acked_states.remove(&ResourceType::Cluster),
            ),
            endpoints: Partial::new(ResourceType::Endpoint),
            listeners: Whole::new(
                ResourceType::Listener,
                acked_states.remove(&ResourceType::Listener),
            ),
            routes: Partial::new(ResourceType::Route),
            target: None,
            unknown_types: UnknownTypes::default(),
            last_nonce: 0,
            grace_ends: None,
        };
        for ((resource_type, name), version) in nacked {
            let nacked = match resource_type {
                ResourceType::Runtime => &mut stream.runtimes.nacked,
                ResourceType::ExtensionConfig => &mut stream.extension_configs.nacked,
                ResourceType::Secret => &mut stream.secrets.nacked,
                ResourceType::Cluster => &mut stream.clusters.nacked,
                ResourceType::Endpoint => &mut stream.endpoints.nacked,
                ResourceType::Listener => &mut stream.listeners.nacked,
                ResourceType::Route => &mut stream.routes.nacked,
            };
            nacked.insert(Arc::clone(name), *version);
        }
        stream
    }

    /// Handles a request.
    pub fn on_request(&mut self, request: &SotwRequest, now: Instant) -> Vec<SotwOutput> {
        let Some(resource_type) = ResourceType::from_url(&request.type_url) else {
            // An unsupported type: the variant cannot express that.
            let known = self.unknown_types.insert(&request.type_url, 0);
            return known.err().map(SotwOutput::Close).into_iter().collect();
        };
        if self.exchanges().iter().all(|(_, exchange)| !exchange.subscription.has_begun) {
            self.grace_ends = Some(now + REMOVAL_GRACE);
        }
        let target = self.target.as_ref();
        let answer = match resource_type {
            ResourceType::Runtime => self.runtimes.on_request(request, target),
            ResourceType::ExtensionConfig => self.extension_configs.on_request(request, target),
            ResourceType::Secret => self.secrets.on_request(request, target),
            ResourceType::Cluster => self.clusters.on_request(request, target),
            ResourceType::Endpoint => self.endpoints.on_request(request, target),
            ResourceType::Listener => self.listeners.on_request(request, target),
            ResourceType::Route => self.routes.on_request(request, target),
        };
        let is_stale = matches!(answer, RequestOutcome::Stale);
        let mut outputs = Vec::new();
        match answer {
            RequestOutcome::Acked(ack) => outputs.push(SotwOutput::Acked(ack)),
            RequestOutcome::Nacked(nacked) => {
                if nacked.may_change_references() {
                    self.grace_ends = Some(now + REMOVAL_GRACE);
                }
                outputs.push(SotwOutput::Nacked(nacked));
                if let Some(target) = self.target.clone() {
                    self.forget_nacks_outside(&target);
                }
            }
            RequestOutcome::None | RequestOutcome::Stale => {}
        }
        if self.size() > subscription::MAX_SIZE {
            outputs.push(SotwOutput::Close("the client subscribes to too many names"));
            return outputs;
        }
        if !is_stale {
            self.advance(now, &mut outputs);
        }
        outputs
    }

    /// Replaces the resource set of the client.
    pub fn on_set(&mut self, mut set: ResourceSet, now: Instant) -> Vec<SotwOutput> {
        self.forget_nacks_outside(&set);
        let none = ResourceSet::default();
        let old = self.target.as_ref().unwrap_or(&none);
        // A removed cluster stays with the client for a while, and the client may request its
        // endpoints only now. Their absence cannot be expressed, so the last ones are sent.
        for name in set.changed_since(old, ResourceType::Endpoint) {
            let is_left = !set.contains(ResourceType::Endpoint, &name)
                && !set.contains(ResourceType::Cluster, &name)
                && self.clusters.may_have(&name);
            if let Some(endpoints) = old.of(ResourceType::Endpoint).get(&name).filter(|_| is_left) {
                set.insert(Arc::clone(endpoints));
            }
        }
        for (resource_type, partial) in [
            (ResourceType::Runtime, &mut self.runtimes),
            (ResourceType::ExtensionConfig, &mut self.extension_configs),
            (ResourceType::Secret, &mut self.secrets),
            (ResourceType::Endpoint, &mut self.endpoints),
            (ResourceType::Route, &mut self.routes),
        ] {
            partial.changed(set.changed_since(old, resource_type));
            partial.allow_repeat();
        }
        self.target = Some(set);
        let mut outputs = Vec::new();
        self.advance(now, &mut outputs);
        outputs
    }

    /// Advances the time. Call it at [`SotwStream::deadline`].
    pub fn on_timeout(&mut self, now: Instant) -> Vec<SotwOutput> {
        let mut outputs = Vec::new();
        for (resource_type, exchange) in self.exchanges_mut() {
            if exchange.expire(now) {
                outputs.push(SotwOutput::Late(resource_type));
            }
        }
        self.advance(now, &mut outputs);
        outputs
    }

    /// Sends a resource again although the client NACKed its version.
    pub(crate) fn on_retry(
        &mut self,
        resource_type: ResourceType,
        name: &Arc<str>,
        now: Instant,
    ) -> Vec<SotwOutput> {
        let was_nacked = match resource_type {
            ResourceType::Runtime => self.runtimes.retry(name),
            ResourceType::ExtensionConfig => self.extension_configs.retry(name),
            ResourceType::Secret => self.secrets.retry(name),
            ResourceType::Cluster => self.clusters.retry(name),
            ResourceType::Endpoint => self.endpoints.retry(name),
            ResourceType::Listener => self.listeners.retry(name),
            ResourceType::Route => self.routes.retry(name),
        };
        let mut outputs = Vec::new();
        if was_nacked {
            self.advance(now, &mut outputs);
        }
        outputs
    }

    /// The time at which [`SotwStream::on_timeout`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = self.exchanges().map(|(_, exchange)| exchange.deadline());
        deadlines.into_iter().flatten().chain(self.grace_ends).min()
    }

    /// The versions of a type that the client has ACKed: a copy, of what differs from its set.
    pub(crate) fn acked(&self, resource_type: ResourceType) -> Overlay<Version> {
        match resource_type {
            ResourceType::Runtime => &self.runtimes.acked,
            ResourceType::ExtensionConfig => &self.extension_configs.acked,
            ResourceType::Secret => &self.secrets.acked,
            ResourceType::Cluster => &self.clusters.acked,
            ResourceType::Endpoint => &self.endpoints.acked,
            ResourceType::Listener => &self.listeners.acked,
            ResourceType::Route => &self.routes.acked,
        }
        .clone()
    }

    /// The last ACKed clusters or listeners, for the client's next stream.
    pub fn acked_state(&self, resource_type: ResourceType) -> Option<AckedState> {
        match resource_type {
            ResourceType::Cluster => self.clusters.acked_state(),
            ResourceType::Listener => self.listeners.acked_state(),
            ResourceType::Runtime
            | ResourceType::ExtensionConfig
            | ResourceType::Secret
            | ResourceType::Endpoint
            | ResourceType::Route => None,
        }
    }

    /// Marks the endpoints of these clusters to be sent again with the next set: another stream
    /// pushes changes of the clusters.
    pub(crate) fn resend_endpoints(&mut self, clusters: &BTreeSet<Arc<str>>) {
        for name in clusters {
            self.endpoints.resend(name);
        }
    }

    /// The approximate memory for subscribed names.
    pub(crate) fn size(&self) -> usize {
        let exchanges = self.exchanges();
        let sizes = exchanges.iter().map(|(_, exchange)| exchange.subscription.size());
        sizes.sum::<usize>() + self.unknown_types.size()
    }

    /// Holds back the removal of clusters until `until`.
    pub(crate) fn defer_removals(&mut self, until: Instant) {
        self.grace_ends.get_or_insert(until);
    }

    /// Forgets the NACKs of resources that the set does not have. [`Hub`](crate::Hub) does not report them any
    /// more, so they must not withhold a resource that comes back.
    fn forget_nacks_outside(&mut self, set: &ResourceSet) {
        let nacked = [
            (ResourceType::Runtime, &mut self.runtimes.nacked),
            (ResourceType::ExtensionConfig, &mut self.extension_configs.nacked),
            (ResourceType::Secret, &mut self.secrets.nacked),
            (ResourceType::Cluster, &mut self.clusters.nacked),
            (ResourceType::Endpoint, &mut self.endpoints.nacked),
            (ResourceType::Listener, &mut self.listeners.nacked),
            (ResourceType::Route, &mut self.routes.nacked),
        ];
        for (resource_type, nacked) in nacked {
            nacked.retain(|name, _| set.contains(resource_type, name));
        }
    }

    fn exchanges(&self) -> [(ResourceType, &Exchange); 7] {
        [
            (ResourceType::Runtime, &self.runtimes.exchange),
            (ResourceType::ExtensionConfig, &self.extension_configs.exchange),
            (ResourceType::Secret, &self.secrets.exchange),
            (ResourceType::Cluster, &self.clusters.exchange),
            (ResourceType::Endpoint, &self.endpoints.exchange),
            (ResourceType::Listener, &self.listeners.exchange),
            (ResourceType::Route, &self.routes.exchange),
        ]
    }

    fn exchanges_mut(&mut self) -> [(ResourceType, &mut Exchange); 7] {
        [
            (ResourceType::Runtime, &mut self.runtimes.exchange),
            (ResourceType::ExtensionConfig, &mut self.extension_configs.exchange),
            (ResourceType::Secret, &mut self.secrets.exchange),
            (ResourceType::Cluster, &mut self.clusters.exchange),
            (ResourceType::Endpoint, &mut self.endpoints.exchange),
            (ResourceType::Listener, &mut self.listeners.exchange),
            (ResourceType::Route, &mut self.routes.exchange),
        ]
    }
}
