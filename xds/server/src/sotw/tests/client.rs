//! A client as Envoy is one: it asks for all its names each time, takes or refuses what it is sent, and
//! remembers what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{
    ErrorDetail, Resource, ResourceSet, ResourceType, SotwRequest, SotwResponse, Version,
};
use tokio::time::Instant;

use crate::sotw::{Output, SotwStream};
use crate::stream::{REMOVAL_GRACE, Refused};

pub(super) struct Client {
    pub(super) stream: SotwStream,
    pub(super) now: Instant,
    /// What it has taken.
    pub(super) has: BTreeMap<(ResourceType, Arc<str>), Arc<Resource>>,
    /// What it wants, of the types that it has asked for on this stream.
    pub(super) names: BTreeMap<ResourceType, Vec<String>>,
    /// What it has not answered yet, oldest first.
    pub(super) open: Vec<SotwResponse>,
    /// What it knows to be refused, by the final words of the server.
    pub(super) refused: BTreeMap<(ResourceType, Arc<str>), Version>,
    /// The same, also of names of which it has taken another version since.
    pub(super) ever_refused: BTreeMap<(ResourceType, Arc<str>), Version>,
    /// The versions that it has taken last.
    pub(super) versions: BTreeMap<ResourceType, String>,
    /// All that came on this stream, as long as nobody takes it out.
    pub(super) log: Vec<SotwResponse>,
    saw: Vec<String>,
    nonces: BTreeSet<u64>,
    /// The nonces that it has read last.
    read: BTreeMap<ResourceType, u64>,
}

impl Client {
    pub(super) fn new() -> Self {
        Self {
            stream: SotwStream::new(&BTreeMap::new(), BTreeMap::new()),
            now: Instant::now(),
            has: BTreeMap::new(),
            names: BTreeMap::new(),
            open: Vec::new(),
            refused: BTreeMap::new(),
            ever_refused: BTreeMap::new(),
            versions: BTreeMap::new(),
            log: Vec::new(),
            saw: Vec::new(),
            nonces: BTreeSet::new(),
            read: BTreeMap::new(),
        }
    }

    /// A client that was given `set`, has subscribed to all of it as Envoy does, and has taken it.
    pub(super) fn settled(set: &ResourceSet) -> Self {
        let mut client = Self::new();
        client.give(set);
        client.subscribe_to(set);
        client.take_all();
        client.pass(REMOVAL_GRACE);
        client.saw.clear();
        client
    }

    /// Subscribes to all of `set` as Envoy does: wildcards for clusters and listeners, names otherwise.
    pub(super) fn subscribe_to(&mut self, set: &ResourceSet) {
        for resource_type in [Cluster, Endpoint, Secret, Listener, Route] {
            let names: Vec<_> = set.of(resource_type).keys().map(|name| &**name).collect();
            let names = if resource_type.allows_wildcard() { &[][..] } else { &names };
            self.ask(resource_type, names);
        }
    }

    /// The stream is lost, and a new one opened at the same server. What is not answered yet is not
    /// taken.
    pub(super) fn reconnect(&mut self) {
        let kept = [Cluster, Listener].into_iter();
        let kept: BTreeMap<_, _> =
            kept.filter_map(|of| Some((of, self.stream.in_force(of)?))).collect();
        for of in [Cluster, Listener] {
            // An answer that came too late the server has not heard. To a client that comes with a
            // version that it does not know, it sends all, also what was refused.
            let version = self.versions.get(&of).map_or("", |version| version);
            if kept.get(&of).is_none_or(|kept| kept.version != version) {
                self.refused.retain(|(refused, _), _| *refused != of);
                self.ever_refused.retain(|(refused, _), _| *refused != of);
            }
        }
        self.stream = SotwStream::new(&self.refused, kept);
        self.forget_stream();
    }

    /// The same at a server that knows nothing of it.
    pub(super) fn reconnect_elsewhere(&mut self) {
        self.stream = SotwStream::new(&BTreeMap::new(), BTreeMap::new());
        self.refused.clear();
        self.ever_refused.clear();
        self.forget_stream();
    }

    fn forget_stream(&mut self) {
        self.open.clear();
        self.log.clear();
        self.saw.clear();
        self.nonces.clear();
        self.read.clear();
        self.names.clear();
    }

    /// Wants these names of a type, and no others.
    pub(super) fn ask(&mut self, resource_type: ResourceType, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        self.names.insert(resource_type, names);
        self.ask_again(resource_type);
    }

    /// Says once more what it wants, as Envoy does when it warms a cluster anew.
    pub(super) fn ask_again(&mut self, resource_type: ResourceType) {
        let request = self.request_of(resource_type);
        self.request(&request);
    }

    pub(super) fn request(&mut self, request: &SotwRequest) {
        let outputs = self.stream.on_request(request, self.now);
        self.see(outputs);
    }

    /// What it would say now.
    pub(super) fn request_of(&self, resource_type: ResourceType) -> SotwRequest {
        SotwRequest {
            type_url: resource_type.url().to_owned(),
            names: self.names.get(&resource_type).cloned().unwrap_or_default(),
            version_info: self.versions.get(&resource_type).cloned().unwrap_or_default(),
            nonce: self.read.get(&resource_type).map(u64::to_string).unwrap_or_default(),
            ..SotwRequest::default()
        }
    }

    /// The server wants it to have `set`.
    pub(super) fn give(&mut self, set: &ResourceSet) {
        let outputs = self.stream.on_set(set.clone(), self.now);
        self.see(outputs);
    }

    /// Time passes; the stream is woken whenever it asked to be.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(deadline) = self.stream.deadline().filter(|deadline| *deadline <= end) {
            self.now = deadline;
            let outputs = self.stream.on_timeout(self.now);
            self.see(outputs);
            assert_ne!(
                self.stream.deadline(),
                Some(self.now),
                "it asks to be woken again and again"
            );
        }
        self.now = end;
    }

    /// Takes the oldest push of a type.
    pub(super) fn take(&mut self, resource_type: ResourceType) {
        let response = self.read(resource_type);
        let names: BTreeSet<_> = response.resources.iter().map(|r| r.name()).collect();
        let is_whole = resource_type.allows_wildcard();
        self.has.retain(|(of, name), _| *of != resource_type || !is_whole || names.contains(name));
        for resource in &response.resources {
            let key = (resource_type, Arc::clone(resource.name()));
            // What it had already may stand in the place of what it refuses.
            let had = self.has.insert(key.clone(), Arc::clone(resource));
            if had.as_ref() != Some(resource) {
                self.refused.remove(&key);
            }
        }
        self.versions.insert(resource_type, response.version.to_string());
        self.ask_again(resource_type);
    }

    /// Takes whatever comes, until nothing comes any more.
    pub(super) fn take_all(&mut self) {
        for _ in 0..1000 {
            let Some(response) = self.open.first() else { return };
            self.take(response.resource_type);
        }
        panic!("pushes without end: {:?}", self.open);
    }

    /// Refuses the oldest push of a type, as a whole.
    pub(super) fn refuse(&mut self, resource_type: ResourceType, why: &str) {
        self.read(resource_type);
        let error = Some(ErrorDetail { code: 13, message: why.to_owned() });
        self.request(&SotwRequest { error, ..self.request_of(resource_type) });
    }

    /// Refuses the oldest push of a type, and takes all of it but what is bad, as Envoy does where the
    /// mistake is one of meaning.
    pub(super) fn refuse_in_part(
        &mut self,
        resource_type: ResourceType,
        is_bad: impl Fn(&Resource) -> bool,
    ) {
        let at = self.open.iter().position(|open| open.resource_type == resource_type).unwrap();
        let response = self.open[at].clone();
        if resource_type.allows_wildcard() {
            let names: BTreeSet<_> = response.resources.iter().map(|r| r.name()).collect();
            self.has.retain(|(of, name), _| *of != resource_type || names.contains(name));
        }
        for resource in response.resources.iter().filter(|resource| !is_bad(resource)) {
            self.has.insert((resource_type, Arc::clone(resource.name())), Arc::clone(resource));
        }
        self.refuse(resource_type, "in part");
    }

    /// What has come since the last look, and what the server made of our answers.
    pub(super) fn saw(&mut self) -> Vec<String> {
        std::mem::take(&mut self.saw)
    }

    fn read(&mut self, resource_type: ResourceType) -> SotwResponse {
        let at = self.open.iter().position(|open| open.resource_type == resource_type);
        let at = at.unwrap_or_else(|| panic!("no push of {resource_type} waits for an answer"));
        let response = self.open.remove(at);
        self.read.insert(resource_type, response.nonce);
        response
    }

    fn see(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(response) => self.receive(response),
                Output::Acked(_) => {}
                Output::Nacked(Refused { resource_type, resources, error, is_final }) => {
                    let what = short(resource_type);
                    let names: Vec<_> = resources.iter().map(|(name, _)| &**name).collect();
                    let (verdict, names) =
                        (if is_final { "refused" } else { "in doubt" }, names.join(" "));
                    self.saw.push(format!("{what} {verdict}: {names} ({})", error.message));
                    let stream = &self.stream;
                    // Where it is not known what the client has, all are blamed for one.
                    let is_certain = match resource_type {
                        Cluster => stream.clusters.knows_base,
                        Listener => stream.listeners.knows_base,
                        _ => true,
                    };
                    if is_final && is_certain {
                        let refused = resources.into_iter().map(|(n, v)| ((resource_type, n), v));
                        self.refused.extend(refused);
                        let refused = self.refused.iter().map(|(key, v)| (key.clone(), *v));
                        self.ever_refused.extend(refused);
                    }
                }
                Output::Late(resource_type) => {
                    self.saw.push(format!("{} late", short(resource_type)));
                }
                Output::Close(reason) => self.saw.push(format!("closed: {reason}")),
            }
        }
    }

    fn receive(&mut self, response: SotwResponse) {
        // R9.
        assert!(response.nonce > 0 && self.nonces.insert(response.nonce), "nonces are unique");
        let names: BTreeSet<_> = response.resources.iter().map(|r| r.name()).collect();
        // R44.
        assert_eq!(names.len(), response.resources.len(), "a name twice: {response:?}");
        let resource_type = response.resource_type;
        let mut line = short(resource_type).to_owned();
        line.extend(names.iter().flat_map(|name| [" ", name]));
        self.saw.push(line);
        // R6.
        assert!(response.resources.iter().all(|r| r.resource_type() == resource_type));
        for resource in &response.resources {
            let refused = self.refused.get(&(resource_type, Arc::clone(resource.name())));
            // R19.
            assert_ne!(refused, Some(&resource.version()), "sent what was refused: {resource:?}");
        }
        // R41: what is sent is what is there.
        if resource_type.allows_wildcard() {
            assert_eq!(response.version, Version::of_all(&response.resources));
        }
        self.log.push(response.clone());
        self.open.push(response);
    }
}

fn short(resource_type: ResourceType) -> &'static str {
    match resource_type {
        Secret => "SDS",
        Cluster => "CDS",
        Endpoint => "EDS",
        Listener => "LDS",
        Route => "RDS",
    }
}
