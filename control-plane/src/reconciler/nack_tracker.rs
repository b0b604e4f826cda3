//! What clients refuse, and what they and others are given instead (invariant 7).
//!
//! A client that refuses a version goes on with the one before; it is not sent that version again, and
//! nobody else is concerned. There are two exceptions. Where the resource says who may call, the one
//! before must not stay in force: a stand-in takes its place that allows no more than is allowed now. And
//! a version that every proxy NACKs which was sent it is withheld from a few that come later: a minority
//! never decides for the fleet (docs/decisions/0050).

mod answers;
mod fallbacks;
mod last_good;
mod report;
mod retries;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::Snapshot;
use ironmesh_xds_compile::Compiled;
use ironmesh_xds_compile::names;
use ironmesh_xds_compile::origin::{Origin, origins};
use ironmesh_xds_server::{ClientChange, ClientKey, Hub};
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType, Version};
use tokio::time::Instant;

use super::clients::{Clients, Given};
use answers::PendingAnswers;
use fallbacks::Fallbacks;
use last_good::LastGood;
pub(crate) use report::{Fallback, InactiveResources, Refusal};
use retries::Retries;

/// What a resource is called.
type Name = (ResourceType, Arc<str>);

/// What Envoy says when the reason is its own machine's, and another would take the same.
const LOCAL_REASONS: [&str; 4] = [
    "Address already in use",
    "Cannot assign requested address",
    "Permission denied",
    "cannot bind",
];

/// How many clients must NACK a version before it is withheld from others: two alone must not be able to.
const ENOUGH: usize = 3;

/// What clients refuse.
#[derive(Debug, Default)]
pub(super) struct NackTracker {
    by_client: BTreeMap<ClientKey, OfClient>,
    last_good: LastGood,
    stand_ins: Fallbacks,
    /// From which clients each version is withheld.
    withheld: BTreeMap<(Name, Version), BTreeSet<ClientKey>>,
    condemned: WithheldVersions,
    doubts: PendingAnswers,
    /// When what was NACKed for reasons of a client's machine is sent again.
    pub(super) retries: Retries,
    /// Whether what clients are given in place of what is refused may be another now.
    is_stirred: bool,
}

/// The withheld versions.
type WithheldVersions = BTreeMap<(Name, Version), NackedByAll>;

/// A version that every client NACKs which was sent it.
#[derive(Debug)]
struct NackedByAll {
    /// The words of one client.
    first: TrackedNack,
    /// How many clients NACK it.
    clients: usize,
}

/// What a client refuses.
#[derive(Debug, Default)]
struct OfClient {
    /// Which process of it: another has refused nothing yet.
    beginnings: u64,
    names: BTreeMap<Name, TrackedNack>,
}

/// What a client refuses of one resource, for as long as policy asks for the same version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TrackedNack {
    /// The version that policy asks for.
    ideal: Version,
    /// Why it is refused.
    message: String,
    /// Whether this one is to blame, and not something else that came with it.
    is_certain: bool,
    /// The policy behind it.
    origins: Vec<Origin>,
    /// All versions that it refuses: that one, and stand-ins.
    versions: BTreeSet<Version>,
    /// Whether the client had an earlier version to go on with.
    keeps_earlier: bool,
}

impl NackTracker {
    /// Those whose sets may be others, since the last call, for what others have answered or had: all
    /// who refuse something or from whom something is withheld, or nobody.
    pub(super) fn take_concerned(&mut self) -> BTreeSet<ClientKey> {
        if !std::mem::take(&mut self.is_stirred) {
            return BTreeSet::new();
        }
        self.by_client.keys().chain(self.withheld.values().flatten()).cloned().collect()
    }

    /// A client has gone. It is remembered what it refuses, for when it is back.
    pub(super) fn left(&mut self, client: &str) {
        self.send_all(client);
        self.retries.forget(client);
    }

    /// A client will not come back.
    pub(super) fn forget(&mut self, client: &str) {
        self.by_client.remove(client);
    }

    /// Forgets what was good once of what nobody is to have any more. What a client refuses stays, also
    /// while it is away: when it is back it is to be given what it had.
    pub(super) fn prune(&mut self, clients: &Clients) {
        let refused: BTreeSet<_> =
            self.by_client.values().flat_map(|own| own.names.keys()).collect();
        // What stays in force instead may lead to clusters that have gone.
        let may_be_named = |name: &Name| {
            let is_cluster = matches!(name.0, ResourceType::Cluster | ResourceType::Endpoint);
            is_cluster && !refused.is_empty()
        };
        self.last_good.prune(clients, |name| refused.contains(name) || may_be_named(name));
        self.is_stirred = true;
    }

    /// How much is remembered: of how many clients, and how many resources.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.by_client.len(), self.last_good.len())
    }

    /// Takes note of what a client is to have now in place of what it had: of what it has taken, the
    /// last good versions are remembered.
    /// `has` says what.
    pub(super) fn replaced(
        &mut self,
        old: &Given,
        new: &Compiled,
        has: impl Fn(ResourceType, &str, Version) -> bool,
    ) {
        let before = &old.compiled.resources;
        for resource_type in ResourceType::ALL {
            for name in new.resources.changed_since(before, resource_type) {
                if !is_shared(resource_type, &name) {
                    continue;
                }
                let before = before.of(resource_type).get(&name);
                if let Some(before) = before.filter(|b| has(resource_type, &name, b.version())) {
                    self.last_good.taken(old.account.as_ref(), before);
                    self.is_stirred = true;
                }
            }
        }
    }

    /// Takes note of what a client refuses, given what it is to have; `has` says what of it it has taken.
    /// Says whether there is news. Each refusal is logged once.
    pub(super) fn note(
        &mut self,
        client: &ClientKey,
        news: &ClientChange,
        has: impl Fn(ResourceType, &str, Version) -> bool,
        given: &Given,
        snapshot: &Snapshot,
    ) -> bool {
        if news.nacks.is_empty() && !self.by_client.contains_key(client) {
            return false;
        }
        let ideal = &given.compiled.resources;
        let own = self.by_client.entry(Arc::clone(client)).or_default();
        let known = &mut own.names;
        let before = known.len();
        if own.beginnings != news.process_starts {
            own.beginnings = news.process_starts;
            known.clear();
        }
        // What policy asks for no longer, or what it has taken after all, it does not refuse.
        known.retain(|(resource_type, name), refused| {
            let wanted = ideal.of(*resource_type).get(name).map(|resource| resource.version());
            wanted == Some(refused.ideal) && !has(*resource_type, name, refused.ideal)
        });
        let mut is_news = known.len() != before;
        for (name, nack) in &news.nacks {
            let wanted = ideal.of(name.0).get(&name.1).map(|resource| resource.version());
            if let Some(refused) = known.get_mut(name) {
                is_news |= refused.versions.insert(nack.version);
                // After a retry the reason may be another one.
                if nack.version == refused.ideal && nack.message != refused.message {
                    refused.message.clone_from(&nack.message);
                    is_news = true;
                }
            } else if wanted == Some(nack.version) {
                let origins = origins(snapshot, &given.proxy, name.0, &name.1, &nack.message);
                let refused = TrackedNack {
                    ideal: nack.version,
                    message: nack.message.clone(),
                    is_certain: nack.is_certain,
                    origins,
                    versions: BTreeSet::from([nack.version]),
                    keeps_earlier: nack.keeps_earlier,
                };
                log(client, name, &refused);
                known.insert(name.clone(), refused);
                is_news = true;
            }
            // Any other version is one that policy asks for no longer.
        }
        let local = known.iter().filter(|(_, refused)| is_local(&refused.message));
        let local = local.map(|(name, refused)| (name.clone(), refused.ideal)).collect();
        self.retries.follow(client, news.process_starts, local, Instant::now());
        if known.is_empty() {
            self.by_client.remove(client);
        }
        is_news
    }

    /// What a client is given of what it is to have, and what of that is not in force.
    pub(super) fn settle(
        &mut self,
        client: &ClientKey,
        given: &Given,
        before: Option<&ResourceSet>,
    ) -> (ResourceSet, InactiveResources) {
        self.send_all(client);
        let (ideal, account) = (&given.compiled.resources, given.account.as_ref());
        let (mut set, mut not_in_force) = (ideal.clone(), InactiveResources::default());
        let own = self.by_client.get(client).map(|own| &own.names);
        for (name, refused) in own.into_iter().flatten() {
            let resource = ideal.of(name.0).get(&name.1);
            // When policy asks for another version, that one is tried.
            let Some(resource) = resource.filter(|one| one.version() == refused.ideal) else {
                continue;
            };
            let last_good = self.last_good.of(account, resource);
            let stand_in = self.stand_ins.of(resource, last_good, &refused.versions);
            not_in_force.refused.push(view(name, refused, stand_in.as_ref()));
            match (stand_in, last_good) {
                (Some((stand_in, _)), _) => set.insert(stand_in),
                (None, Some(stays)) => {
                    let given = before.into_iter().flat_map(|before| {
                        let types = [ResourceType::Cluster, ResourceType::Endpoint];
                        types.into_iter().flat_map(|of| before.of(of).values())
                    });
                    let known = given.chain(self.last_good.clusters(account));
                    keep_what_it_names(stays, &mut set, known);
                    // (A new process has no earlier version.)
                    if !refused.keeps_earlier {
                        set.insert(Arc::clone(stays));
                    }
                }
                (None, None) => {}
            }
        }
        for ((name, version), by_others) in &self.condemned {
            let is_own = own.is_some_and(|own| own.contains_key(name));
            let Some(resource) = ideal.of(name.0).get(&name.1) else { continue };
            if is_own || resource.version() != *version {
                continue;
            }
            // Those that NACK it stay the majority: one more client is sent it, and may ACK it.
            let version_of = (name.clone(), *version);
            let others = self.withheld.get(&version_of).map_or(0, BTreeSet::len);
            if others + 1 >= by_others.clients {
                continue;
            }
            self.withheld.entry(version_of).or_default().insert(Arc::clone(client));
            let last_good = self.last_good.of(account, resource);
            let stand_in = self.stand_ins.of(resource, last_good, &BTreeSet::from([*version]));
            not_in_force.withheld.push(view(name, &by_others.first, stand_in.as_ref()));
            match (stand_in, last_good) {
                (Some((stand_in, _)), _) => set.insert(stand_in),
                (None, Some(last_good)) => {
                    keep_what_it_names(last_good, &mut set, self.last_good.clusters(account));
                    set.insert(Arc::clone(last_good));
                }
                (None, None) => set.remove(name.0, &name.1),
            }
        }
        (set, not_in_force)
    }

    /// Withholds nothing from a client.
    fn send_all(&mut self, client: &str) {
        for clients in self.withheld.values_mut() {
            clients.remove(client);
        }
        self.withheld.retain(|_, clients| !clients.is_empty());
    }

    /// Finds the versions that every client NACKs which was sent them: no client has ACKed them, none has
    /// still to answer, and at least [`ENOUGH`] connected clients NACK them, for certain and for a reason
    /// that is not their machine's own. `touched` are the clients to which something has happened since
    /// the last call.
    pub(super) fn judge(&mut self, hub: &Hub, touched: &BTreeSet<ClientKey>) {
        let mut refusing: BTreeMap<(&Name, Version), Vec<(&ClientKey, &TrackedNack)>> =
            BTreeMap::new();
        for (client, own) in &self.by_client {
            // What a client NACKed before it left says nothing of those that come after it.
            if hub.published(client).is_none() {
                continue;
            }
            for (name, refused) in &own.names {
                let is_local = is_local(&refused.message);
                if refused.is_certain && !is_local && is_shared(name.0, &name.1) {
                    refusing.entry((name, refused.ideal)).or_default().push((client, refused));
                }
            }
        }
        let mut condemned = WithheldVersions::new();
        let mut doubts = PendingAnswers::default();
        for ((name, version), refusing) in refusing {
            let Some((_, first)) = refusing.first().filter(|_| refusing.len() >= ENOUGH) else {
                continue;
            };
            let version_of = (name.clone(), version);
            let known = (&self.doubts, touched, hub);
            let clients: BTreeSet<_> = refusing.iter().map(|(client, _)| *client).collect();
            if !doubts.is_undecided(&version_of, &clients, known)
                && !doubts.is_acked(&version_of, known)
            {
                let (first, clients) = (TrackedNack::clone(first), clients.len());
                condemned.insert(version_of, NackedByAll { first, clients });
            }
        }
        let words = |all: &WithheldVersions| {
            all.iter().map(|(version, by_all)| (version.clone(), by_all.first.clone())).collect()
        };
        let (before, after): (Vec<_>, Vec<_>) = (words(&self.condemned), words(&condemned));
        self.is_stirred |= before != after;
        (self.condemned, self.doubts) = (condemned, doubts);
    }
}

/// Whether the words of a NACK name a reason of the client's own machine.
pub(super) fn is_local(message: &str) -> bool {
    LOCAL_REASONS.iter().any(|reason| message.contains(reason))
}

/// What is refused of what policy asks for, and what is in force instead.
fn view(
    (resource_type, name): &Name,
    refused: &TrackedNack,
    stand_in: Option<&(Arc<Resource>, Fallback)>,
) -> Refusal {
    Refusal {
        resource_type: *resource_type,
        name: Arc::clone(name),
        version: refused.ideal,
        message: refused.message.clone(),
        instead: stand_in.map_or(Fallback::LastGood, |(_, instead)| *instead),
        origins: refused.origins.clone(),
    }
}

/// Keeps of `known` clusters and endpoints those that are named by what stays in force in a client.
fn keep_what_it_names<'a>(
    stays: &Resource,
    set: &mut ResourceSet,
    known: impl IntoIterator<Item = &'a Arc<Resource>>,
) {
    for resource in known {
        let (of, name) = (resource.resource_type(), resource.name());
        if !set.contains(of, name) && stays.has_text(|text| text == &**name) {
            set.insert(Arc::clone(resource));
        }
    }
}

fn log(client: &str, (resource_type, name): &Name, refused: &TrackedNack) {
    let policy: Vec<_> = refused.origins.iter().map(ToString::to_string).collect();
    tracing::error!(
        client,
        %resource_type,
        %name,
        reason = refused.message,
        policy = policy.join(", "),
        "a proxy NACKed a resource"
    );
}

/// Whether clients share a resource of this name. Listeners, and the clusters that lead to a proxy's own
/// applications, are different things for each.
fn is_shared(resource_type: ResourceType, name: &str) -> bool {
    resource_type != ResourceType::Listener && !names::is_own_cluster(name)
}
