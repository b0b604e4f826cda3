//! A simulated Envoy: its subscriptions, ACKs and NACKs, in the order of a real one. A state machine without sockets and
//! clocks.
//!
//! On a fresh start it subscribes to all clusters, then to the endpoints and secrets that they name, and ACKs the
//! clusters. When these are warm, it subscribes to all listeners, and to their routes and secrets. On a resumed stream it
//! subscribes to all types at once, in delta with initial versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::ResourceType;

use crate::library::{Library, ResourceContent};
use crate::messages::{Request, Response, Variant};

/// The time that Envoy needs to apply a response.
#[derive(Debug, Clone, Copy)]
pub struct AckDelay {
    /// The time for each response.
    pub response: Duration,
    /// The additional time for each endpoint.
    pub endpoint: Duration,
}

impl Default for AckDelay {
    /// The times of Envoy 1.40.
    fn default() -> Self {
        Self { response: Duration::from_micros(1200), endpoint: Duration::from_micros(10) }
    }
}

/// The resources of one client, by type and name.
pub type Holdings = BTreeMap<ResourceType, BTreeMap<Arc<str>, Arc<ResourceContent>>>;

/// A request to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) request: Request,
    /// The time that Envoy works before it.
    pub(crate) delay: Duration,
}

/// The reaction to a response.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    pub(crate) outgoing: Vec<Outgoing>,
    /// The number of resources and removed names in the response.
    pub(crate) resources: usize,
    /// The content of the watched resource, if the response has it.
    pub(crate) watched: Option<u128>,
}

/// The fault of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unexpected {
    /// It cannot be decoded.
    Malformed,
    /// Its type is unknown.
    Type(String),
}

/// The state of one simulated Envoy.
#[derive(Debug)]
pub(crate) struct SimulatedEnvoy {
    variant: Variant,
    delay: AckDelay,
    library: Arc<Library>,
    types: BTreeMap<ResourceType, TypeState>,
    /// Clusters that arrived after the first configuration and have no endpoints yet. Until these arrive, Envoy does not
    /// ACK clusters.
    warming: BTreeSet<Arc<str>>,
    /// The ACK of clusters that waits for warming.
    held: Option<Outgoing>,
}

#[derive(Debug, Default)]
struct TypeState {
    /// Whether the client has subscribed to the type.
    is_open: bool,
    is_answered: bool,
    /// The subscribed names; empty for the wildcard.
    subscribed: BTreeSet<Arc<str>>,
    resources: BTreeMap<Arc<str>, Arc<ResourceContent>>,
    version_info: String,
    nonce: String,
}

impl SimulatedEnvoy {
    pub(crate) fn new(variant: Variant, delay: AckDelay, library: Arc<Library>) -> Self {
        let types = ResourceType::ALL.map(|t| (t, TypeState::default())).into();
        Self { variant, delay, library, types, warming: BTreeSet::new(), held: None }
    }

    /// Forgets all resources, as a new process.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.variant, self.delay, Arc::clone(&self.library));
    }

    pub(crate) fn holdings(&self) -> Holdings {
        self.types.iter().map(|(t, state)| (*t, state.resources.clone())).collect()
    }

    /// The first requests of a stream.
    pub(crate) fn open(&mut self) -> Vec<Outgoing> {
        self.warming.clear();
        self.held = None;
        self.state(ResourceType::Cluster).is_open = true;
        let variant = self.variant;
        let mut outgoing = Vec::new();
        for (resource_type, state) in self.types.iter_mut().filter(|(_, state)| state.is_open) {
            let names = state.subscribed.iter().map(|name| (**name).to_owned()).collect();
            let mut request = Request { names, ..Request::new(*resource_type) };
            state.nonce.clear();
            match variant {
                Variant::Delta => {
                    let versions = state.resources.iter();
                    request.initial_versions = versions
                        .map(|(name, known)| (Arc::clone(name), Arc::clone(&known.version)))
                        .collect();
                }
                Variant::Sotw => {
                    request.version_info.clone_from(&state.version_info);
                }
            }
            outgoing.push(Outgoing { request, delay: Duration::ZERO });
        }
        // Envoy's order: clusters, endpoints, secrets, listeners, routes.
        outgoing.sort_by_key(|one| ORDER.iter().position(|t| t.url() == one.request.type_url));
        outgoing
    }

    /// Whether it has all subscribed resources.
    pub(crate) fn is_configured(&self) -> bool {
        self.warming.is_empty()
            && self.types.iter().all(|(resource_type, state)| {
                if resource_type.allows_wildcard() {
                    state.is_answered
                } else {
                    state.resources.len() == state.subscribed.len()
                }
            })
    }

    /// Applies and ACKs a response; or NACKs it with this message.
    pub(crate) fn on_response(
        &mut self,
        message: &[u8],
        watched: Option<&str>,
        nack_message: Option<&str>,
    ) -> Result<Reaction, Unexpected> {
        let response = Response::read(self.variant, message).map_err(|_| Unexpected::Malformed)?;
        let resource_type = ResourceType::from_url(response.type_url)
            .ok_or_else(|| Unexpected::Type(response.type_url.to_owned()))?;
        let mut reaction = Reaction {
            resources: response.entries.len() + response.removed.len(),
            ..Reaction::default()
        };
        let mut delay = self.delay.response;
        self.state(resource_type).is_answered = true;
        response.nonce.clone_into(&mut self.state(resource_type).nonce);
        let mut release = None;
        if nack_message.is_none() {
            let mut changed = Vec::with_capacity(response.entries.len());
            for entry in &response.entries {
                let known = self.library.content(resource_type, entry);
                let known = known.map_err(|_| Unexpected::Malformed)?;
                delay += self.delay.endpoint * known.references.endpoints;
                if watched == Some(entry.name) && resource_type == ResourceType::Endpoint {
                    reaction.watched = Some(known.content);
                }
                changed.push(known);
            }
            release = self.apply(resource_type, &response, changed);
            if matches!(resource_type, ResourceType::Cluster | ResourceType::Listener) {
                reaction.outgoing.extend(self.subscribe());
            }
        }
        let variant = self.variant;
        let state = self.state(resource_type);
        let names = state.subscribed.iter().map(|name| (**name).to_owned());
        let request = Request {
            nonce: response.nonce.to_owned(),
            version_info: state.version_info.clone(),
            nack_message: nack_message.map(ToOwned::to_owned),
            ..Request::new(resource_type)
        };
        let request = match variant {
            Variant::Delta => request,
            Variant::Sotw => Request { names: names.collect(), ..request },
        };
        let answer = Outgoing { request, delay };
        if resource_type == ResourceType::Cluster && !self.warming.is_empty() {
            self.held = Some(answer);
        } else {
            reaction.outgoing.push(answer);
        }
        reaction.outgoing.extend(release);
        reaction.outgoing.extend(self.request_listeners());
        Ok(reaction)
    }

    /// Applies a response. Returns the held-back ACK of clusters if this response completed their warming.
    fn apply(
        &mut self,
        resource_type: ResourceType,
        response: &Response<'_>,
        changed: Vec<Arc<ResourceContent>>,
    ) -> Option<Outgoing> {
        let is_running = self.state(ResourceType::Listener).is_answered;
        let is_whole = self.variant == Variant::Sotw && resource_type.allows_wildcard();
        let state = self.types.entry(resource_type).or_default();
        response.version_info.clone_into(&mut state.version_info);
        if is_whole {
            let names: BTreeSet<_> = changed.iter().map(|known| &*known.name).collect();
            state.resources.retain(|name, _| names.contains(&**name));
        }
        for name in &response.removed {
            state.resources.remove(*name);
        }
        for known in changed {
            // A resource may still arrive after the client unsubscribed from it.
            if !resource_type.allows_wildcard() && !state.subscribed.contains(&known.name) {
                continue;
            }
            if resource_type == ResourceType::Endpoint {
                self.warming.remove(&known.name);
            }
            let old = state.resources.insert(Arc::clone(&known.name), Arc::clone(&known));
            let is_changed = old.is_none_or(|old| old.content != known.content);
            if resource_type == ResourceType::Cluster && is_running && is_changed {
                let endpoints = known.references.names.iter();
                let endpoints = endpoints.filter(|(t, _)| *t == ResourceType::Endpoint);
                self.warming.extend(endpoints.map(|(_, name)| Arc::clone(name)));
            }
        }
        if self.warming.is_empty() { self.held.take() } else { None }
    }

    /// Subscribes to the names in clusters and listeners, and unsubscribes from all others.
    fn subscribe(&mut self) -> Vec<Outgoing> {
        let mut wanted: BTreeMap<ResourceType, BTreeSet<Arc<str>>> = BTreeMap::new();
        for resource_type in [ResourceType::Cluster, ResourceType::Listener] {
            for known in self.state(resource_type).resources.values() {
                for (t, name) in &known.references.names {
                    wanted.entry(*t).or_default().insert(Arc::clone(name));
                }
            }
        }
        let mut outgoing = Vec::new();
        for resource_type in [ResourceType::Endpoint, ResourceType::Secret, ResourceType::Route] {
            let wanted = wanted.remove(&resource_type).unwrap_or_default();
            let variant = self.variant;
            let state = self.state(resource_type);
            if wanted == state.subscribed {
                continue;
            }
            let text = |name: &Arc<str>| (**name).to_owned();
            let mut request = Request::new(resource_type);
            match variant {
                Variant::Delta => {
                    request.names = wanted.difference(&state.subscribed).map(text).collect();
                    request.unsubscribe = state.subscribed.difference(&wanted).map(text).collect();
                }
                Variant::Sotw => {
                    request.names = wanted.iter().map(text).collect();
                    request.version_info.clone_from(&state.version_info);
                    request.nonce.clone_from(&state.nonce);
                }
            }
            state.resources.retain(|name, _| wanted.contains(name));
            state.subscribed = wanted;
            state.is_open = true;
            outgoing.push(Outgoing { request, delay: Duration::ZERO });
        }
        let endpoints = &self.types.entry(ResourceType::Endpoint).or_default().subscribed;
        self.warming.retain(|name| endpoints.contains(name));
        outgoing
    }

    /// Subscribes to listeners as soon as all clusters are warm.
    fn request_listeners(&mut self) -> Option<Outgoing> {
        let is_warm = [ResourceType::Endpoint, ResourceType::Secret].into_iter().all(|t| {
            let state = self.state(t);
            state.resources.len() == state.subscribed.len()
        });
        let listeners = self.state(ResourceType::Listener);
        if !is_warm || listeners.is_open {
            return None;
        }
        listeners.is_open = true;
        let request = Request::new(ResourceType::Listener);
        Some(Outgoing { request, delay: Duration::ZERO })
    }

    fn state(&mut self, resource_type: ResourceType) -> &mut TypeState {
        self.types.entry(resource_type).or_default()
    }
}

const ORDER: [ResourceType; 5] = [
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Secret,
    ResourceType::Listener,
    ResourceType::Route,
];

#[cfg(test)]
mod tests;
