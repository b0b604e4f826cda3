//! A proxy's resources, and the invariants that must hold for them at all times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{
    self, Cluster, Endpoint, ExtensionConfig, Listener, Route, Runtime, Secret,
};
use ironmesh_xds_wire::{Resource, Version};
use tonic::Status;

use super::Variant;
use crate::contents::{Content, ResourceKey, key};
use ironmesh_tests::random::SeededRandom;

/// Numbers from this one on are bad content: proxies with a NACK scope NACK it.
pub(crate) const BAD: u32 = 1_000_000;

/// The removals of a response.
pub(super) enum Removed {
    /// Every resource of the type that is not in the response.
    AllElse,
    /// The resources with these names.
    Names(Vec<String>),
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The active resources.
    pub(crate) has: BTreeMap<ResourceKey, Arc<Resource>>,
    /// The NACKed versions, until another version of the resource is ACKed.
    pub(crate) nacked: BTreeMap<ResourceKey, Version>,
    /// The clusters that wait for their endpoints.
    pub(crate) warming: BTreeSet<String>,
    /// The last ACKed version of each type, in the state-of-the-world variant.
    pub(super) versions: BTreeMap<ResourceType, String>,
    /// Whether one version stands for all resources of a type, as in the state-of-the-world
    /// variant.
    pub(super) says_one_version: bool,
    /// Whether its server cannot know its resources: one version says too little unless the server
    /// would send it now or had an ACK of it. Then a removed resource cannot be kept until no
    /// reference is left.
    pub(crate) is_unknown_to_server: bool,
    /// Whether it has ACKed something since its server knew its state.
    is_unconfirmed: bool,
    /// The server of its last stream.
    last_server: Option<&'static str>,
    /// The server of its open stream.
    pub(crate) connected_to: Option<&'static str>,
    /// The status of its last stream.
    pub(crate) last_end: Option<Status>,
    /// The number of its streams.
    pub(crate) streams: usize,
    /// The number of responses read.
    pub(crate) responses: usize,
    /// The resources that responses added and removed, oldest first. Tests clear it to see later
    /// ones.
    pub(crate) log: Vec<String>,
    /// Whether it NACKs bad content, and what it rejects with it.
    pub(crate) nack_scope: Option<NackScope>,
    /// Every resource that this process or its predecessors NACKed.
    ever_nacked: BTreeSet<ResourceKey>,
}

/// What a NACK rejects, where Envoy can reject a part of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NackScope {
    BadOnly,
    WholeResponse,
}

impl State {
    /// Starts a new process: it is empty, and NACKs what its predecessor NACKed.
    pub(crate) fn begin(&mut self) {
        let before = std::mem::take(self);
        *self = Self {
            says_one_version: before.says_one_version,
            streams: before.streams,
            responses: before.responses,
            nack_scope: before.nack_scope,
            ever_nacked: before.ever_nacked,
            ..Self::default()
        };
    }

    pub(crate) fn of(variant: Variant) -> Self {
        Self { says_one_version: variant == Variant::Sotw, ..Self::default() }
    }

    pub(super) fn connected(&mut self, server: &'static str) {
        self.connected_to = Some(server);
        self.is_unknown_to_server |=
            self.last_server.replace(server).is_some_and(|last| last != server);
        self.streams += 1;
    }

    pub(super) fn disconnected(&mut self, end: Option<Status>) {
        self.connected_to = None;
        self.is_unknown_to_server |= self.is_unconfirmed;
        if !self.says_one_version {
            // Endpoints that came before a change of their cluster are not resent on a new stream,
            // because the proxy has them. Warming goes on without them after 15 s.
            let has = |name: &String| self.has.contains_key(&(Endpoint, name.clone()));
            self.warming.retain(|name| !has(name));
        }
        self.last_end = end;
    }

    pub(crate) fn is_bad(&self, resource: &Resource) -> bool {
        self.nack_scope.is_some() && Content::of(resource).number >= BAD
    }

    /// The names of a type that its resources refer to.
    pub(crate) fn wants(&self, of: ResourceType) -> BTreeSet<String> {
        let names = |of: ResourceType| {
            let has = self.has.iter().filter(move |((one, _), _)| *one == of);
            has.map(|((_, name), resource)| (name.clone(), resource))
        };
        match of {
            Runtime | ExtensionConfig | Cluster | Listener => BTreeSet::new(),
            Endpoint => names(Cluster).map(|(name, _)| name).collect(),
            Route | Secret => names(Cluster)
                .chain(names(Listener))
                .flat_map(|(_, resource)| Content::of(resource).refers_to)
                .filter_map(|(to, name)| (to == of).then_some(name))
                .collect(),
        }
    }

    /// Marks the state as known to its server.
    pub(crate) fn confirmed(&mut self) {
        (self.is_unknown_to_server, self.is_unconfirmed) = (false, false);
    }

    /// Applies a response, or returns the error of a NACK.
    pub(super) fn receive(
        &mut self,
        of: ResourceType,
        resources: Vec<Arc<Resource>>,
        gone: Removed,
    ) -> Result<(), String> {
        self.responses += 1;
        self.is_unconfirmed = true;
        let names = resources.iter().map(|resource| format!("{of} +{}", resource.name()));
        self.log.extend(names);
        if let Removed::Names(gone) = &gone {
            self.log.extend(gone.iter().map(|name| format!("{of} -{name}")));
        }
        let (bad, good): (Vec<_>, Vec<_>) =
            resources.into_iter().partition(|resource| self.is_bad(resource));
        for resource in &bad {
            self.nacked.insert(key(resource), resource.version());
            self.ever_nacked.insert(key(resource));
        }
        let takes_part = of.allows_wildcard() && self.nack_scope == Some(NackScope::BadOnly);
        if bad.is_empty() || takes_part {
            self.apply(of, good, &bad, gone);
        }
        self.check();
        if bad.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = bad.iter().map(|resource| &**resource.name()).collect();
        Err(format!("{} {} bad", names.join(", "), if names.len() == 1 { "is" } else { "are" }))
    }

    fn apply(
        &mut self,
        of: ResourceType,
        resources: Vec<Arc<Resource>>,
        bad: &[Arc<Resource>],
        gone: Removed,
    ) {
        let gone: Vec<ResourceKey> = match gone {
            Removed::Names(names) => names.into_iter().map(|name| (of, name)).collect(),
            Removed::AllElse => {
                let there: BTreeSet<_> = resources.iter().chain(bad).map(|r| key(r)).collect();
                let has = self.has.keys().filter(|key| key.0 == of && !there.contains(key));
                has.cloned().collect()
            }
        };
        for key in gone {
            self.has.remove(&key);
            self.nacked.remove(&key);
            self.warming.remove(&key.1);
        }
        for resource in resources {
            let key = key(&resource);
            let name = key.1.clone();
            self.nacked.remove(&key);
            let before = self.has.insert(key, Arc::clone(&resource));
            match of {
                Cluster if before.as_ref() != Some(&resource) => {
                    self.warming.insert(name);
                }
                Endpoint => {
                    self.warming.remove(&name);
                }
                _ => {}
            }
        }
        self.forget_unwanted();
    }

    /// Removes resources without references to them.
    fn forget_unwanted(&mut self) {
        let wanted = ResourceType::ALL.map(|of| (of, self.wants(of)));
        let wanted = BTreeMap::from(wanted);
        self.has.retain(|(of, name), _| of.allows_wildcard() || wanted[of].contains(name));
    }

    /// Make before break: active resources refer to clusters that exist. Exceptions are clusters
    /// that it was sent and NACKed, and references in previous versions of NACKed resources.
    fn check(&self) {
        if self.is_unknown_to_server && self.says_one_version {
            return;
        }
        for (holder, resource) in &self.has {
            if self.nacked.contains_key(holder) {
                continue;
            }
            for to in Content::of(resource).refers_to {
                let is_there = to.0 != Cluster || self.has.contains_key(&to);
                let log = || self.log[self.log.len().saturating_sub(40)..].join("\n");
                assert!(
                    is_there || self.ever_nacked.contains(&to),
                    "{} {} refers to {} {}, which is not there. What came last:\n{}",
                    holder.0,
                    holder.1,
                    to.0,
                    to.1,
                    log()
                );
            }
        }
    }
}

/// A random NACK scope, or none.
pub(crate) fn random_nack_scope(random: &mut SeededRandom) -> Option<NackScope> {
    *random.choose(&[None, Some(NackScope::BadOnly), Some(NackScope::WholeResponse)])
}
