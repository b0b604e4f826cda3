//! The delta stream, as a state machine: requests, sets and time in, responses and reports out.
//!
//! Rules are cited from the xDS protocol document. Four of them decide whether Envoy works at all.
//! Endpoints always follow an added or changed cluster, without a request, because Envoy would warm
//! for 15 s. Every first request of a type gets a response, even an empty one. What a client has
//! from an earlier stream is not sent again. Only the pace of pushes, and resources that refer to a
//! missing cluster, wait for an ACK.
//!
//! There is no queue of old states. Each type remembers which names may differ from the newest set,
//! and has at most one push in flight. Changes meanwhile go out with the next push.

mod order;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), expect(dead_code, reason = "the tests use all of it"))]
#[expect(clippy::indexing_slicing, reason = "for tests: a panic is a failed test")]
mod tests;
mod type_stream;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use ironmesh_xds_wire::{
    ByType, DeltaRequest, DeltaResponse, NameList, ResourceSet, ResourceType, Version,
};
use tokio::time::Instant;

use crate::overlay::Overlay;
use crate::stream::{Acked, FULL_RESPONSE, REMOVAL_GRACE, UnknownTypes};
use crate::subscription;
use type_stream::{NAME_PREFIX, Reply, TypeStream};

/// The outputs of a delta stream.
pub type DeltaOutput = crate::stream::StreamOutput<DeltaResponse>;

/// The size up to which the names of a request that waits for the first set may repeat: that of
/// some ten thousand names, a fraction of the limit.
const UNCHECKED_SIZE: usize = subscription::MAX_SIZE / 16;

/// One delta stream.
#[derive(Debug)]
pub struct DeltaStream {
    /// (In a box: a future that moves it has room for each place of the move.)
    types: Box<ByType<TypeStream>>,
    /// The resource set of the client; `None` until one is published.
    target: Option<ResourceSet>,
    /// The requests that came before the first set, and their approximate memory. They are compared
    /// with it as a whole, which is far cheaper than to store their names one by one before.
    pending_requests: Vec<(ResourceType, DeltaRequest)>,
    pending_size: usize,
    unknown_types: UnknownTypes,
    last_nonce: u64,
    /// The end of the [`REMOVAL_GRACE`], if it is running.
    grace_ends: Option<Instant>,
}

impl DeltaStream {
    /// Creates a stream. `nacked` holds the versions that the client NACKed on earlier streams,
    /// which are not sent again.
    pub fn new(nacked: &BTreeMap<(ResourceType, Arc<str>), Version>) -> Self {
        let mut types = Box::new(ByType::new(TypeStream::new));
        for ((resource_type, name), version) in nacked {
            types.of_mut(*resource_type).nacked.insert(Arc::clone(name), *version);
        }
        Self {
            types,
            target: None,
            pending_requests: Vec::new(),
            pending_size: 0,
            unknown_types: UnknownTypes::default(),
            last_nonce: 0,
            grace_ends: None,
        }
    }

    /// Handles a request.
    pub fn on_request(&mut self, request: &DeltaRequest, now: Instant) -> Vec<DeltaOutput> {
        let Some(resource_type) = ResourceType::from_url(&request.type_url) else {
            return self.on_unknown_type(request);
        };
        if subscription::size_of_names_in(&request.initial_versions) > subscription::MAX_SIZE {
            return vec![DeltaOutput::Close("the client reports too many initial versions")];
        }
        if self.pending_requests.is_empty()
            && self.types.values().all(|of| !of.subscription.has_begun)
        {
            self.grace_ends = Some(now + REMOVAL_GRACE);
        }
        let mut outputs = Vec::new();
        if let Some(target) = self.target.take() {
            self.apply(resource_type, request, &target, now, &mut outputs);
            self.target = Some(target);
        } else {
            let mut request = subscriptions(request);
            if self.pending_requests.iter().any(|(of, _)| *of == resource_type) {
                // They count in the first request of a type only.
                request.initial_versions = Arc::default();
            }
            self.pending_size += pending_size(&request);
            self.pending_requests.push((resource_type, request));
        }
        if self.size() > subscription::MAX_SIZE {
            outputs.push(DeltaOutput::Close("the client subscribes to too many names"));
            return outputs;
        }
        self.advance(now, &mut outputs);
        outputs
    }

    /// Applies a request to the state of its type.
    fn apply(
        &mut self,
        resource_type: ResourceType,
        request: &DeltaRequest,
        target: &ResourceSet,
        now: Instant,
        outputs: &mut Vec<DeltaOutput>,
    ) {
        let stream = self.types.of_mut(resource_type);
        // A nonce of no push in flight is neither ACK nor NACK. The request's subscriptions count
        // all the same.
        match stream.on_reply(request) {
            Some(Reply::Acked(ack)) => outputs.push(DeltaOutput::Acked(ack)),
            Some(Reply::Nacked(nacked)) => {
                if nacked.may_change_references() {
                    self.grace_ends = Some(now + REMOVAL_GRACE);
                }
                outputs.push(DeltaOutput::Nacked(nacked));
                stream.forget_nacks_outside(target);
            }
            None => {}
        }
        if stream.on_subscriptions(request, target) {
            outputs.push(DeltaOutput::Acked(Acked { resource_type, names: Vec::new() }));
        }
        stream.share(target);
    }

    /// Replaces the resource set of the client.
    pub fn on_set(&mut self, set: ResourceSet, now: Instant) -> Vec<DeltaOutput> {
        let mut outputs = Vec::new();
        if let Some(old) = &self.target {
            // Nearly always only one type differs.
            let of = ResourceType::ALL.into_iter();
            for resource_type in of.filter(|of| !old.of(*of).ptr_eq(set.of(*of))) {
                let stream = self.types.of_mut(resource_type);
                stream.dirty.extend(set.changed_since(old, resource_type));
                stream.forget_nacks_outside(&set);
                stream.share(&set);
            }
        } else {
            for resource_type in ResourceType::ALL {
                self.types.of_mut(resource_type).forget_nacks_outside(&set);
            }
            for (resource_type, request) in std::mem::take(&mut self.pending_requests) {
                self.apply(resource_type, &request, &set, now, &mut outputs);
            }
            self.pending_size = 0;
        }
        self.target = Some(set);
        self.advance(now, &mut outputs);
        outputs
    }

    /// Advances the time. Call it at [`DeltaStream::deadline`].
    pub fn on_timeout(&mut self, now: Instant) -> Vec<DeltaOutput> {
        let mut outputs = Vec::new();
        for resource_type in ResourceType::ALL {
            if self.types.of_mut(resource_type).expire(now) {
                outputs.push(DeltaOutput::Late(resource_type));
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
        if self.types.of_mut(resource_type).retry(name) {
            self.advance(now, &mut outputs);
        }
        outputs
    }

    /// The time at which [`DeltaStream::on_timeout`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.types.values().filter_map(TypeStream::deadline).chain(self.grace_ends).min()
    }

    /// The versions of a type that the client has ACKed: a copy, of what differs from its set.
    pub(crate) fn acked(&self, resource_type: ResourceType) -> Overlay<Version> {
        self.types.of(resource_type).acked.clone()
    }

    /// The number of names that the stream stores itself.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.types.values().map(TypeStream::held).sum()
    }

    /// The clusters in pushes without ACK or NACK.
    pub(crate) fn unanswered_clusters(&self) -> BTreeSet<Arc<str>> {
        self.types.of(ResourceType::Cluster).unanswered().cloned().collect()
    }

    /// Marks the endpoints of these clusters to be sent again with the next set: another stream
    /// pushes changes of the clusters.
    pub(crate) fn resend_endpoints(&mut self, clusters: &BTreeSet<Arc<str>>) {
        let endpoints = self.types.of_mut(ResourceType::Endpoint);
        for name in clusters {
            endpoints.resend(name);
        }
    }

    /// The approximate memory for subscribed names and initial versions.
    pub(crate) fn size(&self) -> usize {
        let of_types = self.types.values().map(TypeStream::size).sum::<usize>();
        of_types + self.pending_size + self.unknown_types.size()
    }

    /// Holds back all removals until `until`.
    pub(crate) fn defer_removals(&mut self, until: Instant) {
        self.grace_ends.get_or_insert(until);
    }

    /// Answers a request for an unsupported type: reports each name once as missing.
    fn on_unknown_type(&mut self, request: &DeltaRequest) -> Vec<DeltaOutput> {
        let size_of_names = subscription::size_of_names(&request.subscribe);
        let is_new = match self.unknown_types.insert(&request.type_url, size_of_names) {
            Ok(is_new) => is_new,
            Err(reason) => return vec![DeltaOutput::Close(reason)],
        };
        if self.size() > subscription::MAX_SIZE {
            return vec![DeltaOutput::Close("the client subscribes to too many names")];
        }
        if !is_new && request.subscribe.is_empty() {
            return Vec::new();
        }
        // The stream keeps nothing of these names, so the next part cannot wait for the ACK of this
        // one.
        let (mut parts, mut part, mut size) = (Vec::new(), Vec::<Arc<str>>::new(), 0);
        for name in request.subscribe.iter() {
            if size >= FULL_RESPONSE {
                parts.push(std::mem::take(&mut part));
                size = 0;
            }
            size += name.len() + NAME_PREFIX;
            part.push(name.into());
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

/// The subscriptions of a request. Its node was read before, and it answers no push, since there
/// was none.
fn subscriptions(request: &DeltaRequest) -> DeltaRequest {
    DeltaRequest {
        node: None,
        type_url: request.type_url.clone(),
        subscribe: each_once(&request.subscribe),
        unsubscribe: each_once(&request.unsubscribe),
        initial_versions: Arc::clone(&request.initial_versions),
        nonce: String::new(),
        error: None,
    }
}

/// The approximate memory of a request that waits for the first set.
fn pending_size(request: &DeltaRequest) -> usize {
    size_of::<DeltaRequest>()
        + subscription::size_of_names(&request.subscribe)
        + subscription::size_of_names(&request.unsubscribe)
        + subscription::size_of_versions(&request.initial_versions)
}

/// The names, each once if they are many: a client may repeat one a million times.
fn each_once(names: &NameList) -> NameList {
    if subscription::size_of_names(names) <= UNCHECKED_SIZE {
        return names.clone();
    }
    let mut known = HashSet::new();
    names.iter().filter(|name| known.insert(*name)).collect()
}
