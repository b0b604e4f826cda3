//! The NACK tracker: keeps each NACK, and decides what the proxy and others get instead (invariant 7).
//!
//! A client that NACKs a version keeps the one before; that version is not pushed to it again, and no other client is
//! concerned. There are two exceptions. Where the resource carries authorization, the version before must not stay
//! active: a fallback replaces it that allows no more than policy allows now. And a version that every recipient NACKs
//! is quarantined: it is withheld from a few clients that come later, so that a minority never decides for the fleet
//! (docs/decisions/0050).

mod fallbacks;
mod last_good;
mod moved;
mod quarantine;
mod report;
mod retries;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::Snapshot;
use ironmesh_xds_compile::origin::{Origin, origins};
use ironmesh_xds_compile::{Compiled, ResourceRole};
use ironmesh_xds_server::{ClientChange, ClientKey};
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType, Version};
use tokio::time::Instant;

use super::clients::{ClientConfig, Clients};
use crate::peers::NackedVersionNote;
use fallbacks::Fallbacks;
use last_good::LastGood;
use moved::Moved;
use quarantine::QuarantinedVersions;
pub(crate) use report::{Fallback, InactiveResources, NackReport};
use retries::Retries;

/// The type and name of a resource.
type ResourceKey = (ResourceType, Arc<str>);

/// Parts of Envoy's NACK messages whose reason is local to its machine: other proxies would ACK the resource.
const LOCAL_REASONS: [&str; 4] = [
    "Address already in use",
    "Cannot assign requested address",
    "Permission denied",
    "cannot bind",
];

/// The NACKs of all clients, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct NackTracker {
    by_client: BTreeMap<ClientKey, ClientNacks>,
    last_good: LastGood,
    fallbacks: Fallbacks,
    /// The clients from which each version is withheld.
    withheld: BTreeMap<(ResourceKey, Version), BTreeSet<ClientKey>>,
    quarantined: QuarantinedVersions,
    /// The versions that the clients here NACK, for peers.
    nacked_versions: Vec<NackedVersionNote>,
    /// The NACKs of clients that were connected to a peer, until they are compiled to the same versions here.
    moved: Moved,
    /// The retries of resources that were NACKed for a local reason.
    pub(super) retries: Retries,
    /// Whether the sets of clients with a NACK or a withheld version may have changed.
    needs_publish: bool,
}

/// The NACKs of one client.
#[derive(Debug, Default)]
struct ClientNacks {
    /// The count of its process starts: a new process has NACKed nothing yet.
    beginnings: u64,
    names: BTreeMap<ResourceKey, TrackedNack>,
}

/// The NACK of one resource by one client, for as long as policy compiles to the same version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TrackedNack {
    /// The compiled version.
    ideal: Version,
    /// The message of the NACK.
    message: String,
    /// Whether this resource is at fault for certain, not one that was pushed with it.
    is_certain: bool,
    /// Whether other clients may have the same version.
    is_shared: bool,
    /// The policy objects from which it was compiled.
    origins: Vec<Origin>,
    /// All versions that the client NACKed: the compiled one, and fallbacks.
    versions: BTreeSet<Version>,
    /// Whether the client has an earlier version to keep.
    keeps_earlier: bool,
}

impl NackTracker {
    /// The clients whose sets may have changed since the last call because of other clients' answers: all with a NACK
    /// or a withheld version, or none.
    pub(super) fn take_affected(&mut self) -> BTreeSet<ClientKey> {
        if !std::mem::take(&mut self.needs_publish) {
            return BTreeSet::new();
        }
        self.by_client.keys().chain(self.withheld.values().flatten()).cloned().collect()
    }

    /// Notes that a client has disconnected. Its NACKs are kept for its return.
    pub(super) fn disconnected(&mut self, client: &str) {
        self.release_withheld(client);
        self.retries.forget(client);
        self.moved.remove(client);
    }

    /// Forgets a client that will not return.
    pub(super) fn forget(&mut self, client: &str) {
        self.by_client.remove(client);
        self.moved.remove(client);
    }

    /// Forgets last good versions that no client needs. The NACKs of disconnected clients stay: on their return they
    /// get what they had.
    pub(super) fn prune(&mut self, clients: &Clients) {
        let tracked: BTreeSet<_> =
            self.by_client.values().flat_map(|own| own.names.keys()).collect();
        // A kept resource may refer to clusters that policy dropped.
        let may_be_named = |name: &ResourceKey| {
            let is_cluster = matches!(name.0, ResourceType::Cluster | ResourceType::Endpoint);
            is_cluster && !tracked.is_empty()
        };
        self.last_good.prune(clients, |name| tracked.contains(name) || may_be_named(name));
        self.needs_publish = true;
    }

    /// The counts of clients with NACKs and of last good versions.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.by_client.len(), self.last_good.len())
    }

    /// Notes that `new` replaces `old` for a client: the old versions that it ACKed become the last good ones. `has`
    /// tests whether it ACKed a version.
    pub(super) fn replaced(
        &mut self,
        old: &ClientConfig,
        new: &Compiled,
        has: impl Fn(ResourceType, &str, Version) -> bool,
    ) {
        let before = &old.compiled.resources;
        for resource_type in ResourceType::ALL {
            for name in new.resources.changed_since(before, resource_type) {
                let before = before.of(resource_type).get(&name).filter(|old| is_shared(old));
                if let Some(before) = before.filter(|b| has(resource_type, &name, b.version())) {
                    self.last_good.remember(old.account.as_ref(), before);
                    self.needs_publish = true;
                }
            }
        }
    }

    /// Updates the NACKs of a client from its answers; `has` tests whether it ACKed a version. Returns whether any
    /// changed. Each NACK is logged once.
    pub(super) fn track(
        &mut self,
        client: &ClientKey,
        news: &ClientChange,
        has: impl Fn(ResourceType, &str, Version) -> bool,
        config: &ClientConfig,
        snapshot: &Snapshot,
    ) -> bool {
        if news.nacks.is_empty() && !self.by_client.contains_key(client) {
            return false;
        }
        let ideal = &config.compiled.resources;
        let own = self.by_client.entry(Arc::clone(client)).or_default();
        let known = &mut own.names;
        let before = known.len();
        if own.beginnings != news.process_starts {
            own.beginnings = news.process_starts;
            known.clear();
        }
        // A version that policy no longer compiles to, or that the client has ACKed, is NACKed no longer.
        known.retain(|(resource_type, name), tracked| {
            let wanted = ideal.of(*resource_type).get(name).map(|resource| resource.version());
            wanted == Some(tracked.ideal) && !has(*resource_type, name, tracked.ideal)
        });
        let mut is_news = known.len() != before;
        for (name, nack) in &news.nacks {
            let wanted = ideal.of(name.0).get(&name.1);
            if let Some(tracked) = known.get_mut(name) {
                is_news |= tracked.versions.insert(nack.version);
                // A retry may fail for a different reason.
                if nack.version == tracked.ideal && nack.message != tracked.message {
                    tracked.message.clone_from(&nack.message);
                    is_news = true;
                }
            } else if let Some(wanted) = wanted.filter(|one| one.version() == nack.version) {
                let origins = origins(snapshot, &config.proxy, name.0, &name.1, &nack.message);
                let tracked = TrackedNack {
                    ideal: nack.version,
                    message: nack.message.clone(),
                    is_certain: nack.is_certain,
                    is_shared: is_shared(wanted),
                    origins,
                    versions: BTreeSet::from([nack.version]),
                    keeps_earlier: nack.keeps_earlier,
                };
                log(client, name, &tracked);
                known.insert(name.clone(), tracked);
                is_news = true;
            }
            // Policy no longer compiles to any other version.
        }
        let local = known.iter().filter(|(_, tracked)| is_local(&tracked.message));
        let local = local.map(|(name, tracked)| (name.clone(), tracked.ideal)).collect();
        self.retries.follow(client, news.process_starts, local, Instant::now());
        if known.is_empty() {
            self.by_client.remove(client);
        }
        is_news
    }

    /// The set to publish to a client: the compiled one with fallbacks, and the resources that are inactive in it.
    pub(super) fn effective_set(
        &mut self,
        client: &ClientKey,
        config: &ClientConfig,
        before: Option<&ResourceSet>,
    ) -> (ResourceSet, InactiveResources) {
        self.release_withheld(client);
        let (ideal, account) = (&config.compiled.resources, config.account.as_ref());
        let (mut set, mut inactive_resources) = (ideal.clone(), InactiveResources::default());
        let own = self.by_client.get(client).map(|own| &own.names);
        for (name, tracked) in own.into_iter().flatten() {
            let resource = ideal.of(name.0).get(&name.1);
            // A new compiled version is tried.
            let Some(resource) = resource.filter(|one| one.version() == tracked.ideal) else {
                continue;
            };
            let last_good = self.last_good.of(account, resource);
            let fallback = self.fallbacks.of(resource, last_good, &tracked.versions);
            inactive_resources.nacked.push(nack_report(name, tracked, fallback.as_ref()));
            match (fallback, last_good) {
                (Some((fallback, _)), _) => set.insert(fallback),
                (None, Some(kept)) => {
                    keep_referenced(kept, &mut set, &|of, name| {
                        let published = before.and_then(|before| before.of(of).get(name));
                        published.or_else(|| self.last_good.named(account, of, name))
                    });
                    // (A new process has no earlier version.)
                    if !tracked.keeps_earlier {
                        set.insert(Arc::clone(kept));
                    }
                }
                (None, None) => {}
            }
        }
        for ((name, version), by_others) in &self.quarantined {
            let is_own = own.is_some_and(|own| own.contains_key(name));
            let Some(resource) = ideal.of(name.0).get(&name.1) else { continue };
            if is_own || resource.version() != *version {
                continue;
            }
            // Those that NACK it stay the majority: one more client gets it, and may ACK it.
            let version_of = (name.clone(), *version);
            let others = self.withheld.get(&version_of).map_or(0, BTreeSet::len);
            if others + by_others.withheld_at_peers + 1 >= by_others.clients {
                continue;
            }
            self.withheld.entry(version_of).or_default().insert(Arc::clone(client));
            let last_good = self.last_good.of(account, resource);
            let fallback = self.fallbacks.of(resource, last_good, &BTreeSet::from([*version]));
            inactive_resources.withheld.push(nack_report(
                name,
                &by_others.first,
                fallback.as_ref(),
            ));
            match (fallback, last_good) {
                (Some((fallback, _)), _) => set.insert(fallback),
                (None, Some(last_good)) => {
                    keep_referenced(last_good, &mut set, &|of, name| {
                        self.last_good.named(account, of, name)
                    });
                    set.insert(Arc::clone(last_good));
                }
                (None, None) => set.remove(name.0, &name.1),
            }
        }
        (set, inactive_resources)
    }

    /// Withholds nothing from a client any more.
    fn release_withheld(&mut self, client: &str) {
        for clients in self.withheld.values_mut() {
            clients.remove(client);
        }
        self.withheld.retain(|_, clients| !clients.is_empty());
    }
}

/// Whether the message of a NACK names a reason that is local to the client's machine.
pub(super) fn is_local(message: &str) -> bool {
    LOCAL_REASONS.iter().any(|reason| message.contains(reason))
}

/// The report of a NACK, with the fallback that is active instead.
fn nack_report(
    (resource_type, name): &ResourceKey,
    tracked: &TrackedNack,
    fallback: Option<&(Arc<Resource>, Fallback)>,
) -> NackReport {
    NackReport {
        resource_type: *resource_type,
        name: Arc::clone(name),
        version: tracked.ideal,
        message: tracked.message.clone(),
        instead: fallback.map_or(Fallback::LastGood, |(_, instead)| *instead),
        origins: tracked.origins.clone(),
        is_certain: tracked.is_certain,
        keeps_earlier: tracked.keeps_earlier,
        versions: tracked.versions.clone(),
    }
}

/// Keeps the clusters to which a kept resource refers, and their endpoints, as far as `find` knows them.
fn keep_referenced<'a>(
    kept: &Resource,
    set: &mut ResourceSet,
    find: &impl Fn(ResourceType, &str) -> Option<&'a Arc<Resource>>,
) {
    for of in [ResourceType::Cluster, ResourceType::Endpoint] {
        for name in kept.references_to(of) {
            if let Some(resource) = find(of, name).filter(|_| !set.contains(of, name)) {
                set.insert(Arc::clone(resource));
                keep_referenced(resource, set, find);
            }
        }
    }
}

fn log(client: &str, (resource_type, name): &ResourceKey, tracked: &TrackedNack) {
    let policy: Vec<_> = tracked.origins.iter().map(ToString::to_string).collect();
    tracing::error!(
        client,
        %resource_type,
        %name,
        reason = tracked.message,
        policy = policy.join(", "),
        "a proxy NACKed a resource"
    );
}

/// Whether clients share the resource. Listeners and local clusters differ for each client.
fn is_shared(resource: &Resource) -> bool {
    resource.resource_type() != ResourceType::Listener && !ResourceRole::is_own_cluster(resource)
}
