//! What a proxy has, and what must hold of it at all times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{Resource, Version};
use tonic::Status;

use super::Variant;
use crate::contents::{Content, Key, key};
use crate::random::SeededRandom;

/// Contents from this number on are refused by everybody who refuses anything, and by nobody else.
pub(crate) const BAD: u32 = 1_000_000;

/// What a response brings: everything of its type, or changes.
pub(super) enum Removed {
    /// What is not in it has gone.
    AllElse,
    /// These have gone.
    Names(Vec<String>),
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// What it has in force.
    pub(crate) has: BTreeMap<Key, Arc<Resource>>,
    /// What it refused, as long as it has not taken another version of the same.
    pub(crate) nacked: BTreeMap<Key, Version>,
    /// Clusters that wait for their endpoints.
    pub(crate) warming: BTreeSet<String>,
    /// The versions that it has taken last, in the state-of-the-world variant.
    pub(super) versions: BTreeMap<ResourceType, String>,
    /// Whether it says by one version what it has of a type, as in the state-of-the-world variant.
    pub(super) says_one_version: bool,
    /// Whether its server cannot know what it has: one version says too little, where that is not what
    /// the server would send now or had an answer to. Then what has gone cannot be kept until nothing refers to it.
    pub(crate) is_unknown_to_server: bool,
    /// Whether it has taken something since its server is known to know all.
    is_unconfirmed: bool,
    /// The server at which it had a stream last.
    last_server: Option<&'static str>,
    /// The server at which it has a stream.
    pub(crate) connected_to: Option<&'static str>,
    /// How its last stream ended.
    pub(crate) last_end: Option<Status>,
    /// How many streams it has had.
    pub(crate) streams: usize,
    /// How many responses it has read.
    pub(crate) responses: usize,
    /// The resources that were in them, and that they told to be gone, oldest first. Whoever wants to
    /// know what comes clears it.
    pub(crate) log: Vec<String>,
    /// Whether it refuses bad content, and whether it then takes what is good beside it, where Envoy
    /// does so.
    pub(crate) nack_scope: Option<NackScope>,
    /// What was ever refused, by the process of now and those before it.
    ever_nacked: BTreeSet<Key>,
}

/// Whether what is good beside something bad is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NackScope {
    BadOnly,
    WholeResponse,
}

impl State {
    /// A new process has nothing, and refuses what the one before refused.
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
            // Endpoints that came before a change of their cluster do not come again on a new stream,
            // because it has them. After 15 s it goes on without.
            let has = |name: &String| self.has.contains_key(&(Endpoint, name.clone()));
            self.warming.retain(|name| !has(name));
        }
        self.last_end = end;
    }

    pub(crate) fn is_bad(&self, resource: &Resource) -> bool {
        self.nack_scope.is_some() && Content::of(resource).number >= BAD
    }

    /// The names of a type that it wants, because something that it has refers to them.
    pub(crate) fn wants(&self, of: ResourceType) -> BTreeSet<String> {
        let names = |of: ResourceType| {
            let has = self.has.iter().filter(move |((one, _), _)| *one == of);
            has.map(|((_, name), resource)| (name.clone(), resource))
        };
        match of {
            Cluster | Listener => BTreeSet::new(),
            Endpoint => names(Cluster).map(|(name, _)| name).collect(),
            Route | Secret => names(Cluster)
                .chain(names(Listener))
                .flat_map(|(_, resource)| Content::of(resource).refers_to)
                .filter_map(|(to, name)| (to == of).then_some(name))
                .collect(),
        }
    }

    /// Its server knows what it has.
    pub(crate) fn confirmed(&mut self) {
        (self.is_unknown_to_server, self.is_unconfirmed) = (false, false);
    }

    /// Takes a response, or refuses it: then it says why.
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
        let gone: Vec<Key> = match gone {
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

    /// What nothing refers to any more is forgotten.
    fn forget_unwanted(&mut self) {
        let wanted = ResourceType::ALL.map(|of| (of, self.wants(of)));
        let wanted = BTreeMap::from(wanted);
        self.has.retain(|(of, name), _| of.allows_wildcard() || wanted[of].contains(name));
    }

    /// Make before break: what is in force refers to clusters that it has. There are those that it was
    /// offered and refuses; and what it keeps of what it refuses to have changed refers to what has
    /// gone.
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

/// Who refuses what is bad, and how, at random.
pub(crate) fn random_nack_scope(random: &mut SeededRandom) -> Option<NackScope> {
    *random.choose(&[None, Some(NackScope::BadOnly), Some(NackScope::WholeResponse)])
}
