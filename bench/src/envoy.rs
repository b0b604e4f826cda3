//! A simulated Envoy: what it asks for, takes and answers, in the sequence of a real one. A state
//! machine without sockets and clocks.
//!
//! On a fresh start it asks for all clusters; then for the endpoints and secrets that they name, and
//! takes the clusters; with these there, for all listeners, their routes and secrets. On a later
//! stream it asks for all at once, and in delta says what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::ResourceType;

use crate::library::{Known, Library};
use crate::messages::{Request, Response, Variant};

/// How long Envoy takes to apply a response, and an endpoint of it.
#[derive(Debug, Clone, Copy)]
pub struct AckDelay {
    /// Whatever it is.
    pub response: Duration,
    /// For each endpoint besides.
    pub endpoint: Duration,
}

impl Default for AckDelay {
    /// As measured with Envoy 1.40.
    fn default() -> Self {
        Self { response: Duration::from_micros(1200), endpoint: Duration::from_micros(10) }
    }
}

/// What one client has, by type and name.
pub type Holdings = BTreeMap<ResourceType, BTreeMap<Arc<str>, Arc<Known>>>;

/// A request that is to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) request: Request,
    /// How long Envoy works before.
    pub(crate) delay: Duration,
}

/// What a response led to.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    pub(crate) outgoing: Vec<Outgoing>,
    /// How many resources it had, and names that are gone.
    pub(crate) resources: usize,
    /// The content of the resource that is watched, where the response has it.
    pub(crate) watched: Option<u128>,
}

/// What is wrong with a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unexpected {
    /// It cannot be read.
    Malformed,
    /// Nobody asked for this type.
    Type(String),
}

/// One client.
#[derive(Debug)]
pub(crate) struct SimulatedEnvoy {
    variant: Variant,
    delay: AckDelay,
    library: Arc<Library>,
    types: BTreeMap<ResourceType, TypeState>,
    /// Clusters that came after the first configuration, without their endpoints yet: until these
    /// come Envoy takes no cluster.
    warming: BTreeSet<Arc<str>>,
    held: Option<Outgoing>,
}

#[derive(Debug, Default)]
struct TypeState {
    /// Whether it was ever asked for.
    is_open: bool,
    is_answered: bool,
    /// The names that it asked for; none where it wants all.
    subscribed: BTreeSet<Arc<str>>,
    resources: BTreeMap<Arc<str>, Arc<Known>>,
    version_info: String,
    nonce: String,
}

impl SimulatedEnvoy {
    pub(crate) fn new(variant: Variant, delay: AckDelay, library: Arc<Library>) -> Self {
        let types = ResourceType::ALL.map(|t| (t, TypeState::default())).into();
        Self { variant, delay, library, types, warming: BTreeSet::new(), held: None }
    }

    /// Forgets all, as a process that begins.
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
        // The order in which Envoy asks: clusters, endpoints, secrets, listeners, routes.
        outgoing.sort_by_key(|one| ORDER.iter().position(|t| t.url() == one.request.type_url));
        outgoing
    }

    /// Whether it has all that it asked for.
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

    /// Takes a response; or refuses it, with these words.
    pub(crate) fn on_response(
        &mut self,
        message: &[u8],
        watched: Option<&str>,
        refusal: Option<&str>,
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
        if refusal.is_none() {
            let mut changed = Vec::with_capacity(response.entries.len());
            for entry in &response.entries {
                let known = self.library.know(resource_type, entry);
                let known = known.map_err(|_| Unexpected::Malformed)?;
                delay += self.delay.endpoint * known.references.endpoints;
                if watched == Some(entry.name) && resource_type == ResourceType::Endpoint {
                    reaction.watched = Some(known.content);
                }
                changed.push(known);
            }
            release = self.take(resource_type, &response, changed);
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
            refusal: refusal.map(ToOwned::to_owned),
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
        reaction.outgoing.extend(self.ask_for_listeners());
        Ok(reaction)
    }

    /// Puts what came in the place of what there was. Returns the answer about clusters that was held
    /// back for what came now.
    fn take(
        &mut self,
        resource_type: ResourceType,
        response: &Response<'_>,
        changed: Vec<Arc<Known>>,
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
            // What nobody asked for any more may be under way still.
            if !resource_type.allows_wildcard() && !state.subscribed.contains(&known.name) {
                continue;
            }
            if resource_type == ResourceType::Endpoint {
                self.warming.remove(&known.name);
            }
            let old = state.resources.insert(Arc::clone(&known.name), Arc::clone(&known));
            let is_news = old.is_none_or(|old| old.content != known.content);
            if resource_type == ResourceType::Cluster && is_running && is_news {
                let endpoints = known.references.names.iter();
                let endpoints = endpoints.filter(|(t, _)| *t == ResourceType::Endpoint);
                self.warming.extend(endpoints.map(|(_, name)| Arc::clone(name)));
            }
        }
        if self.warming.is_empty() { self.held.take() } else { None }
    }

    /// Asks for what clusters and listeners name, and no more for what they do not.
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

    /// Asks for the listeners as soon as all clusters are warm.
    fn ask_for_listeners(&mut self) -> Option<Outgoing> {
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
