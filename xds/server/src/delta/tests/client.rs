//! A client as Envoy is one: it subscribes, takes or refuses what it is sent, and remembers what it
//! has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{
    DeltaRequest, DeltaResponse, ErrorDetail, ResourceSet, ResourceType, Version,
};
use tokio::time::Instant;

use crate::delta::{DeltaStream, Output};
use crate::stream::{REMOVAL_GRACE, Refused};

pub(super) struct Client {
    pub(super) stream: DeltaStream,
    pub(super) now: Instant,
    /// What it has taken: the newest version of each.
    pub(super) has: BTreeMap<(ResourceType, Arc<str>), Version>,
    /// What it has not answered yet, oldest first.
    pub(super) open: Vec<(ResourceType, DeltaResponse)>,
    /// What it knows to be refused, by the final words of the server.
    pub(super) refused: BTreeMap<(ResourceType, Arc<str>), Version>,
    /// All that came on this stream, as long as nobody takes it out.
    pub(super) log: Vec<(ResourceType, DeltaResponse)>,
    saw: Vec<String>,
    nonces: BTreeSet<u64>,
}

impl Client {
    pub(super) fn new() -> Self {
        Self {
            stream: DeltaStream::new(&BTreeMap::new()),
            now: Instant::now(),
            has: BTreeMap::new(),
            open: Vec::new(),
            refused: BTreeMap::new(),
            log: Vec::new(),
            saw: Vec::new(),
            nonces: BTreeSet::new(),
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

    /// The stream is lost, and a new one opened. What is not answered yet is not taken.
    pub(super) fn reconnect(&mut self) {
        self.stream = DeltaStream::new(&self.refused);
        self.open.clear();
        self.log.clear();
        self.saw.clear();
        self.nonces.clear();
    }

    /// The first request of a type on a new stream: `names`, and the versions of what it has.
    pub(super) fn ask_again(&mut self, resource_type: ResourceType, names: &[&str]) {
        let has = self.has.iter().filter(|((of, _), _)| *of == resource_type);
        self.request(&DeltaRequest {
            initial_versions: has.map(|((_, n), v)| (n.to_string(), v.to_string())).collect(),
            ..subscribe(resource_type, names)
        });
    }

    pub(super) fn ask(&mut self, resource_type: ResourceType, names: &[&str]) {
        self.request(&subscribe(resource_type, names));
    }

    pub(super) fn drop_names(&mut self, resource_type: ResourceType, names: &[&str]) {
        self.has.retain(|(of, name), _| *of != resource_type || !names.contains(&&**name));
        let unsubscribe = names.iter().map(|&name| name.to_owned()).collect();
        self.request(&DeltaRequest { unsubscribe, ..subscribe(resource_type, &[]) });
    }

    pub(super) fn request(&mut self, request: &DeltaRequest) {
        let outputs = self.stream.on_request(request, self.now);
        self.see(outputs);
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
            assert!(
                self.stream.deadline() != Some(self.now),
                "it asks to be woken again and again"
            );
            self.now = deadline;
            let outputs = self.stream.on_timeout(self.now);
            self.see(outputs);
        }
        self.now = end;
    }

    /// Takes the oldest push of a type.
    pub(super) fn take(&mut self, resource_type: ResourceType) {
        let response = self.oldest(resource_type);
        for resource in &response.resources {
            let key = (resource_type, Arc::clone(resource.name()));
            self.refused.remove(&key);
            self.has.insert(key, resource.version());
        }
        for name in &response.removed {
            self.has.remove(&(resource_type, Arc::clone(name)));
        }
        self.request(&answer(resource_type, response.nonce, None));
    }

    /// Takes whatever comes, until nothing comes any more.
    pub(super) fn take_all(&mut self) {
        for _ in 0..1000 {
            let Some((resource_type, _)) = self.open.first() else { return };
            self.take(*resource_type);
        }
        panic!("pushes without end: {:?}", self.open);
    }

    /// Refuses the oldest push of a type, as a whole.
    pub(super) fn refuse(&mut self, resource_type: ResourceType, why: &str) {
        let response = self.oldest(resource_type);
        self.request(&answer(resource_type, response.nonce, Some(why)));
    }

    /// What has come since the last look, and what the server made of our answers.
    pub(super) fn saw(&mut self) -> Vec<String> {
        std::mem::take(&mut self.saw)
    }

    fn oldest(&mut self, resource_type: ResourceType) -> DeltaResponse {
        let at = self.open.iter().position(|(of, _)| *of == resource_type);
        let at = at.unwrap_or_else(|| panic!("no push of {resource_type} waits for an answer"));
        self.open.remove(at).1
    }

    fn see(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(response) => self.receive(response),
                Output::Acked(_) => {}
                Output::Nacked(Refused { resource_type, resources, error, is_final }) => {
                    let what = short(resource_type);
                    let names: Vec<_> = resources.iter().map(|(name, _)| &**name).collect();
                    let verdict = if is_final { "refused" } else { "in doubt" };
                    self.saw.push(format!(
                        "{what} {verdict}: {} ({})",
                        names.join(" "),
                        error.message
                    ));
                    if is_final {
                        let refused = resources.into_iter().map(|(n, v)| ((resource_type, n), v));
                        self.refused.extend(refused);
                    }
                }
                Output::Late(resource_type) => {
                    self.saw.push(format!("{} late", short(resource_type)));
                }
                Output::Close(reason) => self.saw.push(format!("closed: {reason}")),
            }
        }
    }

    fn receive(&mut self, response: DeltaResponse) {
        // R9.
        assert!(response.nonce > 0 && self.nonces.insert(response.nonce), "nonces are unique");
        let added: BTreeSet<_> = response.resources.iter().map(|r| r.name()).collect();
        let removed: BTreeSet<_> = response.removed.iter().collect();
        // R44, R46.
        assert_eq!(added.len(), response.resources.len(), "a name twice: {response:?}");
        assert_eq!(removed.len(), response.removed.len(), "a name twice: {response:?}");
        assert!(added.is_disjoint(&removed), "both there and removed: {response:?}");

        let resource_type = ResourceType::from_url(&response.type_url);
        let mut line = resource_type.map_or("unknown", short).to_owned();
        line.extend(added.iter().flat_map(|name| [" +", name]));
        line.extend(removed.iter().flat_map(|name| [" -", name]));
        self.saw.push(line);
        let Some(resource_type) = resource_type else { return };
        // R6.
        assert!(response.resources.iter().all(|r| r.resource_type() == resource_type));
        for resource in &response.resources {
            let refused = self.refused.get(&(resource_type, Arc::clone(resource.name())));
            // R19.
            assert_ne!(refused, Some(&resource.version()), "sent what was refused: {resource:?}");
        }
        self.log.push((resource_type, response.clone()));
        self.open.push((resource_type, response));
    }
}

pub(super) fn subscribe(resource_type: ResourceType, names: &[&str]) -> DeltaRequest {
    DeltaRequest {
        type_url: resource_type.url().to_owned(),
        subscribe: names.iter().map(|&name| name.to_owned()).collect(),
        ..DeltaRequest::default()
    }
}

pub(super) fn answer(resource_type: ResourceType, nonce: u64, error: Option<&str>) -> DeltaRequest {
    DeltaRequest {
        nonce: nonce.to_string(),
        error: error.map(|why| ErrorDetail { code: 13, message: why.to_owned() }),
        ..subscribe(resource_type, &[])
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
