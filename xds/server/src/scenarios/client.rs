//! A model of a client: it subscribes, ACKs or NACKs pushes, and remembers its resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{
    self, Cluster, Endpoint, ExtensionConfig, Listener, Route, Runtime, Secret,
};
use ironmesh_xds_wire::{Resource, ResourceSet, Version};
use tokio::time::Instant;

use super::wanted::Wanted;
use crate::scenarios::dialect::{Dialect, Push};
use crate::stream::REMOVAL_GRACE;

mod observation;

/// The types in the order in which Envoy requests them.
pub(crate) const ENVOYS_ORDER: [ResourceType; 7] =
    [Runtime, Cluster, Endpoint, Secret, Listener, ExtensionConfig, Route];

pub(crate) type ResourceKey = (ResourceType, Arc<str>);

pub(crate) struct Client<V: Dialect> {
    pub(crate) stream: V,
    pub(crate) now: Instant,
    /// The newest ACKed version of each of its resources.
    pub(crate) has: BTreeMap<ResourceKey, Arc<Resource>>,
    /// Its subscriptions, by type.
    pub(crate) wanted: BTreeMap<ResourceType, Wanted>,
    /// Unanswered pushes, oldest first.
    pub(crate) open: Vec<Push>,
    /// The set that was published last.
    published: ResourceSet,
    /// The versions that the server has attributed its NACKs to.
    pub(crate) nacked: BTreeMap<ResourceKey, Version>,
    /// The same, including names of which it has ACKed another version since.
    pub(crate) ever_nacked: BTreeMap<ResourceKey, Version>,
    /// In the state of the world: the versions ACKed last.
    pub(crate) versions: BTreeMap<ResourceType, Version>,
    /// The nonces read last on this stream.
    pub(crate) nonces_read: BTreeMap<ResourceType, u64>,
    /// All pushes on this stream, unless a test has taken them.
    pub(crate) log: Vec<Push>,
    pushes: Vec<String>,
    ack_reports: Vec<String>,
    nonces: BTreeSet<u64>,
}

impl<V: Dialect> Client<V> {
    pub(crate) fn new() -> Self {
        Self {
            stream: V::fresh(),
            now: Instant::now(),
            has: BTreeMap::new(),
            wanted: BTreeMap::new(),
            open: Vec::new(),
            published: ResourceSet::default(),
            nacked: BTreeMap::new(),
            ever_nacked: BTreeMap::new(),
            versions: BTreeMap::new(),
            nonces_read: BTreeMap::new(),
            log: Vec::new(),
            pushes: Vec::new(),
            ack_reports: Vec::new(),
            nonces: BTreeSet::new(),
        }
    }

    /// Creates a client that has subscribed to all of `set` as Envoy does, and has ACKed it.
    pub(crate) fn settled(set: &ResourceSet) -> Self {
        let mut client = Self::new();
        client.publish(set);
        client.subscribe_to(set);
        client.ack_all();
        client.pass(REMOVAL_GRACE);
        client.pushes.clear();
        client.ack_reports.clear();
        client
    }

    /// Subscribes to all of `set` as Envoy does: wildcards for clusters and listeners, names
    /// otherwise.
    pub(crate) fn subscribe_to(&mut self, set: &ResourceSet) {
        for of in ENVOYS_ORDER {
            // Envoy requests these types only if its bootstrap or a listener names one.
            if matches!(of, Runtime | ExtensionConfig) && set.of(of).is_empty() {
                continue;
            }
            let names: Vec<_> = set.of(of).keys().map(|name| &**name).collect();
            self.subscribe(of, if of.allows_wildcard() { &[] } else { &names });
        }
    }

    /// Loses the stream, and opens a new one at the same server. Unanswered pushes are lost.
    pub(crate) fn reconnect(&mut self) {
        self.stream = V::again(self);
        self.forget_stream();
    }

    /// The same at a server that knows nothing of the client.
    pub(crate) fn reconnect_elsewhere(&mut self) {
        self.stream = V::fresh();
        self.nacked.clear();
        self.ever_nacked.clear();
        self.forget_stream();
    }

    fn forget_stream(&mut self) {
        self.open.clear();
        self.log.clear();
        self.pushes.clear();
        self.ack_reports.clear();
        self.nonces.clear();
        self.nonces_read.clear();
    }

    /// Requests a type on a new stream, if it did on the earlier one: with the subscriptions and
    /// versions of that.
    pub(crate) fn resume(&mut self, of: ResourceType) {
        if !self.wanted.contains_key(&of) {
            return;
        }
        let request = V::resume_request(self, of);
        self.request(&request);
    }

    /// Subscribes to further names.
    pub(crate) fn subscribe(&mut self, of: ResourceType, names: &[&str]) {
        self.change(of, names, &[]);
    }

    /// Unsubscribes from names.
    pub(crate) fn unsubscribe(&mut self, of: ResourceType, names: &[&str]) {
        self.change(of, &[], names);
    }

    /// Does both in one request: a name in both lists ends as subscribed.
    pub(crate) fn change(&mut self, of: ResourceType, added: &[&str], dropped: &[&str]) {
        let request = V::change(self, of, added, dropped);
        self.forget_unwanted();
        self.request(&request);
    }

    /// Sends an ACK or NACK of a response.
    pub(crate) fn answer(&mut self, of: ResourceType, nonce: &str, error: Option<&str>) {
        let request = V::change(self, of, &[], &[]);
        self.request(&V::answering(request, nonce, error));
    }

    pub(crate) fn request(&mut self, request: &V::Request) {
        let outputs = self.stream.on_request(request, self.now);
        self.observe(outputs);
    }

    /// The server publishes `set` to the client.
    pub(crate) fn publish(&mut self, set: &ResourceSet) {
        self.published = set.clone();
        self.nacked.retain(|(of, name), _| set.contains(*of, name));
        let outputs = self.stream.on_set(set.clone(), self.now);
        self.observe(outputs);
    }

    /// Lets time pass, and wakes the stream at its deadlines.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(deadline) = self.stream.deadline().filter(|deadline| *deadline <= end) {
            self.now = deadline;
            let outputs = self.stream.on_timeout(self.now);
            self.observe(outputs);
            let next = self.stream.deadline();
            assert_ne!(next, Some(self.now), "its deadline does not advance");
        }
        self.now = end;
    }

    /// ACKs the oldest push of a type.
    pub(crate) fn ack(&mut self, of: ResourceType) {
        let push = self.read_oldest(of);
        self.has.retain(|(has, name), _| *has != of || !push.removes(name));
        for resource in &push.resources {
            let key = (of, Arc::clone(resource.name()));
            let had = self.has.insert(key.clone(), Arc::clone(resource));
            if !V::keeps_nack(had.as_ref(), resource) {
                self.nacked.remove(&key);
            }
        }
        self.versions.extend(push.version.map(|version| (of, version)));
        self.forget_unwanted();
        self.answer(of, &push.nonce.to_string(), None);
    }

    /// ACKs all pushes, until no more arrive.
    pub(crate) fn ack_all(&mut self) {
        for _ in 0..1000 {
            let Some(push) = self.open.first() else { return };
            self.ack(push.of);
        }
        panic!("pushes without end: {:?}", self.open);
    }

    /// The publisher requests a retry of a NACKed resource.
    pub(crate) fn retry(&mut self, of: ResourceType, name: &str) {
        self.nacked.remove(&(of, Arc::from(name)));
        let outputs = self.stream.on_retry(of, &Arc::from(name), self.now);
        self.observe(outputs);
    }

    /// NACKs the oldest push of a type as a whole.
    pub(crate) fn nack(&mut self, of: ResourceType, why: &str) {
        let push = self.read_oldest(of);
        self.answer(of, &push.nonce.to_string(), Some(why));
    }

    /// NACKs the oldest push of a type, and applies all of it that is not bad, as Envoy does after
    /// semantic errors.
    pub(crate) fn nack_in_part(&mut self, of: ResourceType, is_bad: impl Fn(&Resource) -> bool) {
        let push = self.open.iter().find(|push| push.of == of).unwrap().clone();
        self.has.retain(|(has, name), _| *has != of || !push.removes(name));
        for resource in push.resources.iter().filter(|resource| !is_bad(resource)) {
            let key = (of, Arc::clone(resource.name()));
            let had = self.has.insert(key.clone(), Arc::clone(resource));
            // Once a state with this version is ACKed, a whole state may contain again what was
            // NACKed before.
            if V::either(false, true) && !V::keeps_nack(had.as_ref(), resource) {
                self.nacked.remove(&key);
            }
        }
        self.forget_unwanted();
        self.nack(of, "in part");
    }

    /// Whether it is subscribed to `name`.
    pub(crate) fn covers(&self, of: ResourceType, name: &str) -> bool {
        self.wanted.get(&of).is_some_and(|wanted| wanted.covers(name))
    }

    /// Takes the lines about pushes and NACKs since the last call. A push lists the resources that
    /// are new to the client (+), and those that it removes (-).
    pub(crate) fn take_pushes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pushes)
    }

    /// Takes the lines about the server's ACK reports since the last call.
    pub(crate) fn take_ack_reports(&mut self) -> Vec<String> {
        std::mem::take(&mut self.ack_reports)
    }

    fn read_oldest(&mut self, of: ResourceType) -> Push {
        let at = self.open.iter().position(|push| push.of == of);
        let at = at.unwrap_or_else(|| panic!("no push of {of} waits for an answer"));
        let push = self.open.remove(at);
        self.nonces_read.insert(of, push.nonce);
        push
    }

    pub(crate) fn forget_unwanted(&mut self) {
        let wanted = &self.wanted;
        self.has.retain(|(of, name), _| wanted.get(of).is_some_and(|wanted| wanted.covers(name)));
    }
}
