//! One state-of-the-world stream, as a state machine: requests, sets and time in, responses and news
//! out. It has the same face as [`crate::delta`], and keeps the same promises.
//!
//! What is other than there: a request has all names each time, and one version for everything. A
//! response about clusters or listeners has all of them (`whole`), one about endpoints, routes or
//! secrets has some (`partial`). That something is not there, or has gone, cannot be said of the latter.

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

/// What a state-of-the-world stream gives to the world around it.
pub type SotwOutput = crate::stream::StreamOutput<SotwResponse>;

/// What comes of a request.
#[derive(Debug)]
enum RequestOutcome {
    Acked(Acked),
    Nacked(Nacked),
    /// It is no answer, and may be one to send.
    None,
    /// It is not to be answered.
    Stale,
}

/// One state-of-the-world stream.
#[derive(Debug)]
pub struct SotwStream {
    secrets: Partial,
    clusters: Whole,
    endpoints: Partial,
    listeners: Whole,
    routes: Partial,
    /// What the client is to have; `None` until it is known.
    target: Option<ResourceSet>,
    unknown_types: UnknownTypes,
    last_nonce: u64,
    /// When the [`REMOVAL_GRACE`] ends; `None` where there is none.
    grace_ends: Option<Instant>,
}

impl SotwStream {
    /// A new stream. `nacked` is what this client refused on earlier streams: it is not sent again.
    /// `acked_states` is what they left in force ([`SotwStream::acked_states`]).
    pub fn new(
        nacked: &BTreeMap<(ResourceType, Arc<str>), Version>,
        mut acked_states: BTreeMap<ResourceType, AckedState>,
    ) -> Self {
        let mut stream = Self {
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

    /// Takes a request.
    pub fn on_request(&mut self, request: &SotwRequest, now: Instant) -> Vec<SotwOutput> {
        let Some(resource_type) = ResourceType::from_url(&request.type_url) else {
            // A type that we do not serve: there is no way to say so.
            let known = self.unknown_types.insert(&request.type_url, &[]);
            return known.err().map(SotwOutput::Close).into_iter().collect();
        };
        if self.exchanges().iter().all(|(_, exchange)| !exchange.subscription.has_begun) {
            self.grace_ends = Some(now + REMOVAL_GRACE);
        }
        let target = self.target.as_ref();
        let answer = match resource_type {
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
                if nacked.is_of_what_refers() {
                    self.grace_ends = Some(now + REMOVAL_GRACE);
                }
                outputs.push(SotwOutput::Nacked(nacked));
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

    /// Takes what the client is to have from now on.
    pub fn on_set(&mut self, mut set: ResourceSet, now: Instant) -> Vec<SotwOutput> {
        let none = ResourceSet::default();
        let old = self.target.as_ref().unwrap_or(&none);
        // A cluster that has gone stays with the client for a while, and perhaps it is only now that
        // it asks for the endpoints. That there are none cannot be said, so it is given the last.
        for name in set.changed_since(old, ResourceType::Endpoint) {
            let is_left = !set.contains(ResourceType::Endpoint, &name)
                && !set.contains(ResourceType::Cluster, &name)
                && self.clusters.may_have(&name);
            if let Some(endpoints) = old.of(ResourceType::Endpoint).get(&name).filter(|_| is_left) {
                set.insert(Arc::clone(endpoints));
            }
        }
        for (resource_type, partial) in [
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

    /// Takes note that time has passed. To be called at [`SotwStream::deadline`].
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

    /// When [`SotwStream::on_timeout`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = self.exchanges().map(|(_, exchange)| exchange.deadline());
        deadlines.into_iter().flatten().chain(self.grace_ends).min()
    }

    /// What the client has taken, of a type: a copy that shares its structure.
    pub(crate) fn acked(&self, resource_type: ResourceType) -> Overlay<Version> {
        match resource_type {
            ResourceType::Secret => &self.secrets.acked,
            ResourceType::Cluster => &self.clusters.acked,
            ResourceType::Endpoint => &self.endpoints.acked,
            ResourceType::Listener => &self.listeners.acked,
            ResourceType::Route => &self.routes.acked,
        }
        .clone()
    }

    /// What the client has in force, of clusters or listeners, for its next stream.
    pub fn acked_state(&self, resource_type: ResourceType) -> Option<AckedState> {
        match resource_type {
            ResourceType::Cluster => self.clusters.acked_state(),
            ResourceType::Listener => self.listeners.acked_state(),
            ResourceType::Secret | ResourceType::Endpoint | ResourceType::Route => None,
        }
    }

    /// Wants the endpoints of these clusters sent again, with the next set: on another stream the
    /// client is told that the clusters have changed.
    pub(crate) fn resend_endpoints(&mut self, clusters: &BTreeSet<Arc<str>>) {
        for name in clusters {
            self.endpoints.resend(name);
        }
    }

    /// What the names that the client wants take in memory, about.
    pub(crate) fn size(&self) -> usize {
        let exchanges = self.exchanges();
        let sizes = exchanges.iter().map(|(_, exchange)| exchange.subscription.size());
        sizes.sum::<usize>() + self.unknown_types.size()
    }

    /// Lets no cluster go before `until`.
    pub(crate) fn defer_removals(&mut self, until: Instant) {
        self.grace_ends.get_or_insert(until);
    }

    fn exchanges(&self) -> [(ResourceType, &Exchange); 5] {
        [
            (ResourceType::Secret, &self.secrets.exchange),
            (ResourceType::Cluster, &self.clusters.exchange),
            (ResourceType::Endpoint, &self.endpoints.exchange),
            (ResourceType::Listener, &self.listeners.exchange),
            (ResourceType::Route, &self.routes.exchange),
        ]
    }

    fn exchanges_mut(&mut self) -> [(ResourceType, &mut Exchange); 5] {
        [
            (ResourceType::Secret, &mut self.secrets.exchange),
            (ResourceType::Cluster, &mut self.clusters.exchange),
            (ResourceType::Endpoint, &mut self.endpoints.exchange),
            (ResourceType::Listener, &mut self.listeners.exchange),
            (ResourceType::Route, &mut self.routes.exchange),
        ]
    }
}
