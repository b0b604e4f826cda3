//! One delta stream, as a state machine: requests, sets and time in, responses and news out.
//!
//! Rules are cited as in the xDS protocol document. The ones that decide whether Envoy works at all:
//! an added or changed cluster is always followed by its endpoints, unprompted (Envoy would warm for
//! 15 s); every first request of a type is answered, if need be by nothing; what a client has from an
//! earlier stream is not sent again; and an ACK is waited for to set the pace, or by what names a cluster
//! that is not there.
//!
//! There is no queue of old states. A type remembers which names may differ from the newest set, at
//! most one push per type is under way, and what has changed meanwhile goes with the next.

mod order;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), expect(dead_code, reason = "the tests use all of it"))]
#[expect(clippy::indexing_slicing, reason = "for tests: a panic is a failed test")]
mod tests;
mod type_stream;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::{DeltaRequest, DeltaResponse, ResourceSet, ResourceType, Version};
use tokio::time::Instant;

use crate::overlay::Overlay;
use crate::stream::{Acked, FULL_RESPONSE, REMOVAL_GRACE, UnknownTypes};
use crate::subscription;
use type_stream::{NAME_PREFIX, Reply, TypeStream};

/// What a delta stream gives to the world around it.
pub type DeltaOutput = crate::stream::StreamOutput<DeltaResponse>;

/// One delta stream.
#[derive(Debug)]
pub struct DeltaStream {
    types: BTreeMap<ResourceType, TypeStream>,
    /// What the client is to have; `None` until it is known.
    target: Option<ResourceSet>,
    unknown_types: UnknownTypes,
    last_nonce: u64,
    /// When the [`REMOVAL_GRACE`] ends; `None` where there is none.
    grace_ends: Option<Instant>,
}

impl DeltaStream {
    /// A new stream. `nacked` is what this client refused on earlier streams: it is not sent again.
    pub fn new(nacked: &BTreeMap<(ResourceType, Arc<str>), Version>) -> Self {
        let mut types: BTreeMap<_, _> =
            ResourceType::ALL.into_iter().map(|t| (t, TypeStream::new(t))).collect();
        for ((resource_type, name), version) in nacked {
            if let Some(stream) = types.get_mut(resource_type) {
                stream.nacked.insert(Arc::clone(name), *version);
            }
        }
        Self {
            types,
            target: None,
            unknown_types: UnknownTypes::default(),
            last_nonce: 0,
            grace_ends: None,
        }
    }

    /// Takes a request.
    pub fn on_request(&mut self, request: &DeltaRequest, now: Instant) -> Vec<DeltaOutput> {
        let Some(resource_type) = ResourceType::from_url(&request.type_url) else {
            return self.on_unknown_type(request);
        };
        if subscription::size_of(request.initial_versions.keys()) > subscription::MAX_SIZE {
            return vec![DeltaOutput::Close("the client brings along too many names")];
        }
        let mut outputs = Vec::new();
        if self.types.values().all(|stream| !stream.subscription.has_begun) {
            self.grace_ends = Some(now + REMOVAL_GRACE);
        }
        if let Some(stream) = self.types.get_mut(&resource_type) {
            // A nonce that is not of a push under way answers nothing; the subscriptions in the
            // request count all the same.
            match stream.on_reply(request) {
                Some(Reply::Acked(ack)) => outputs.push(DeltaOutput::Acked(ack)),
                Some(Reply::Nacked(nacked)) => {
                    if nacked.is_of_what_refers() {
                        self.grace_ends = Some(now + REMOVAL_GRACE);
                    }
                    outputs.push(DeltaOutput::Nacked(nacked));
                }
                None => {}
            }
            if stream.on_subscriptions(request, self.target.as_ref()) {
                outputs.push(DeltaOutput::Acked(Acked { resource_type, names: Vec::new() }));
            }
        }
        if self.size() > subscription::MAX_SIZE {
            outputs.push(DeltaOutput::Close("the client subscribes to too many names"));
            return outputs;
        }
        self.advance(now, &mut outputs);
        outputs
    }

    /// Takes what the client is to have from now on.
    pub fn on_set(&mut self, set: ResourceSet, now: Instant) -> Vec<DeltaOutput> {
        let none = ResourceSet::default();
        let old = self.target.as_ref().unwrap_or(&none);
        let mut outputs = Vec::new();
        for (resource_type, stream) in &mut self.types {
            stream.dirty.extend(set.changed_since(old, *resource_type));
            if stream.adopt_initial_versions(&set) {
                let ack = Acked { resource_type: *resource_type, names: Vec::new() };
                outputs.push(DeltaOutput::Acked(ack));
            }
            if self.target.is_none() {
                stream.review_all(&set);
            }
        }
        self.target = Some(set);
        self.advance(now, &mut outputs);
        outputs
    }

    /// Takes note that time has passed. To be called at [`DeltaStream::deadline`].
    pub fn on_timeout(&mut self, now: Instant) -> Vec<DeltaOutput> {
        let mut outputs = Vec::new();
        for (resource_type, stream) in &mut self.types {
            if stream.expire(now) {
                outputs.push(DeltaOutput::Late(*resource_type));
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
    ) -> Vec<DeltaOutput> {
        let mut outputs = Vec::new();
        if self.types.get_mut(&resource_type).is_some_and(|stream| stream.retry(name)) {
            self.advance(now, &mut outputs);
        }
        outputs
    }

    /// When [`DeltaStream::on_timeout`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.types.values().filter_map(TypeStream::deadline).chain(self.grace_ends).min()
    }

    /// What the client has taken, of a type: a copy that shares its structure.
    pub(crate) fn acked(&self, resource_type: ResourceType) -> Overlay<Version> {
        self.types.get(&resource_type).map(|stream| stream.acked.clone()).unwrap_or_default()
    }

    /// How many names it holds by itself.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.types.values().map(TypeStream::held).sum()
    }

    /// Clusters that were pushed and not answered.
    pub(crate) fn unanswered_clusters(&self) -> BTreeSet<Arc<str>> {
        let clusters = self.types.get(&ResourceType::Cluster);
        clusters.into_iter().flat_map(TypeStream::unanswered).cloned().collect()
    }

    /// Wants the endpoints of these clusters sent again, with the next set: on another stream the
    /// client is told that the clusters have changed.
    pub(crate) fn resend_endpoints(&mut self, clusters: &BTreeSet<Arc<str>>) {
        if let Some(endpoints) = self.types.get_mut(&ResourceType::Endpoint) {
            for name in clusters {
                endpoints.resend(name);
            }
        }
    }

    /// What the names that the client wants, and has brought along, take in memory, about.
    pub(crate) fn size(&self) -> usize {
        self.types.values().map(TypeStream::size).sum::<usize>() + self.unknown_types.size()
    }

    /// Removes nothing before `until`.
    pub(crate) fn defer_removals(&mut self, until: Instant) {
        self.grace_ends.get_or_insert(until);
    }

    /// A type that we do not serve: nothing of it is there, which is told once per name.
    fn on_unknown_type(&mut self, request: &DeltaRequest) -> Vec<DeltaOutput> {
        let is_new = match self.unknown_types.insert(&request.type_url, &request.subscribe) {
            Ok(is_new) => is_new,
            Err(reason) => return vec![DeltaOutput::Close(reason)],
        };
        if self.size() > subscription::MAX_SIZE {
            return vec![DeltaOutput::Close("the client subscribes to too many names")];
        }
        if !is_new && request.subscribe.is_empty() {
            return Vec::new();
        }
        // (Nothing is kept of it, so that the next part cannot wait for the ACK of this one.)
        let (mut parts, mut part, mut size) = (Vec::new(), Vec::<Arc<str>>::new(), 0);
        for name in &request.subscribe {
            if size >= FULL_RESPONSE {
                parts.push(std::mem::take(&mut part));
                size = 0;
            }
            size += name.len() + NAME_PREFIX;
            part.push(name.as_str().into());
        }
        parts.push(part);
        let type_url = Cow::from(request.type_url.clone());
        let responses = parts.into_iter().map(|removed| DeltaResponse {
            type_url: type_url.clone(),
            nonce: self.next_nonce(),
            resources: Vec::new(),
            removed,
        });
        responses.map(DeltaOutput::Send).collect()
    }

    fn next_nonce(&mut self) -> u64 {
        self.last_nonce += 1;
        self.last_nonce
    }
}
