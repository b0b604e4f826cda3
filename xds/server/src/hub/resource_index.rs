//! The resource index: how many clients have each queried resource, and to how many each version is published.
//!
//! The publisher repeats few questions for many servers and in many passes, for example whether any other client still
//! has the cluster of a port. The first query of a resource makes an entry by one scan of all clients. Then each change
//! of a client updates the entries that it concerns, and a query only reads counts. [`Hub::take_changed`], which each
//! pass calls once, drops the entries without a query since the call before. Without an entry, a change costs nothing.
//!
//! It owns the counts, and alone changes what they count: the ACKed versions, the published set and the unreported
//! clusters of a client. An index of all resources would cost memory for each client and resource, although settled
//! clients share their maps (docs/decisions/0085).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::HashMap;
use ironmesh_xds_wire::{ResourceSet, ResourceType, Version, iter_changed_names};

use super::{Client, ClientKey, Clients, Hub};
use crate::counters::Counters;
use crate::overlay::Overlay;

/// The queried resources, by type and name. No type is without entries.
#[derive(Debug, Default)]
pub(super) struct ResourceIndex(BTreeMap<ResourceType, HashMap<Arc<str>, Entry>>);

/// The counts of one queried resource.
#[derive(Debug, Default)]
struct Entry {
    /// How many clients have ACKed each version last.
    acked: VersionCounts,
    /// How many clients may have it, in any version.
    may_have: usize,
    /// To how many connected clients each version is published.
    published: VersionCounts,
    /// Whether a query has used it since [`ResourceIndex::drop_unqueried`].
    is_queried: bool,
}

#[derive(Debug, Default, PartialEq)]
struct VersionCounts(BTreeMap<Version, usize>);

/// What one client has of a resource.
#[derive(Debug)]
struct Holding {
    acked: Option<Version>,
    may_have: bool,
    published: Option<Version>,
}

impl Hub {
    /// Whether any client has ACKed this version of this resource.
    pub fn any_client_has(
        &self,
        resource_type: ResourceType,
        name: &str,
        version: Version,
    ) -> bool {
        self.query(resource_type, name, |entry, _| entry.acked.of(version) > 0)
    }

    /// The number of clients that may have a resource of this name, in any version.
    pub fn clients_that_may_have(&self, resource_type: ResourceType, name: &str) -> usize {
        self.query(resource_type, name, |entry, _| entry.may_have)
    }

    /// Whether any client except one may have a resource of this name, in any version.
    pub fn other_client_may_have(
        &self,
        resource_type: ResourceType,
        name: &str,
        except: &str,
    ) -> bool {
        self.query(resource_type, name, |entry, holding| match entry.may_have {
            0 => false,
            1 => !holding(except).is_some_and(|own| own.may_have),
            _ => true,
        })
    }

    /// Whether the published set of a connected client, except these, contains this version of this resource.
    pub fn is_published_to_others(
        &self,
        resource_type: ResourceType,
        name: &str,
        version: Version,
        except: &BTreeSet<&ClientKey>,
    ) -> bool {
        self.query(resource_type, name, |entry, holding| {
            let of_client = |client: &&&ClientKey| {
                holding(client).is_some_and(|own| own.published == Some(version))
            };
            let all = entry.published.of(version);
            all > except.len() || all > except.iter().filter(of_client).count()
        })
    }

    /// Answers from the entry of a resource, and from what single clients have of it.
    fn query<R>(
        &self,
        of: ResourceType,
        name: &str,
        answer: impl FnOnce(&Entry, &dyn Fn(&str) -> Option<Holding>) -> R,
    ) -> R {
        let Clients { by_key, index, .. } = &mut *self.clients.lock();
        let entries = index.0.entry(of).or_default();
        let entry = entries.entry(Arc::from(name)).or_insert_with(|| {
            self.counters.examined(by_key.len());
            by_key.values().map(|client| Holding::of(client, of, name)).collect()
        });
        entry.is_queried = true;
        answer(entry, &|client| {
            self.counters.examined(1);
            by_key.get(client).map(|client| Holding::of(client, of, name))
        })
    }
}

impl ResourceIndex {
    /// Publishes a set to a client.
    pub(super) fn publish(&mut self, client: &mut Client, set: ResourceSet, counters: &Counters) {
        let mut concerned = Vec::new();
        if !self.0.is_empty() {
            let before = client.set.borrow().clone().unwrap_or_default();
            let of_type = |of| self.among(of, || iter_changed_names(before.of(of), set.of(of)));
            concerned.extend(ResourceType::ALL.into_iter().flat_map(of_type));
        }
        self.update(client, &concerned, counters, |client| client.set_published(set));
    }

    /// Stores the versions of a type that a stream of a client has ACKed.
    pub(super) fn ack(
        &mut self,
        client: &mut Client,
        (stream, of): (u64, ResourceType),
        acked: Overlay<Version>,
        counters: &Counters,
    ) {
        let none = Overlay::default();
        let before = client.status.acked.get(&(stream, of)).unwrap_or(&none);
        let concerned = self.among(of, || acked.names_changed_from(before));
        self.update(client, &concerned, counters, |client| {
            client.status.acked.insert((stream, of), acked);
        });
    }

    /// Changes a client in a way that may concern any resource.
    pub(super) fn change(
        &mut self,
        client: &mut Client,
        counters: &Counters,
        change: impl FnOnce(&mut Client),
    ) {
        let all: Vec<_> = self.0.keys().flat_map(|of| self.all(*of)).collect();
        self.update(client, &all, counters, change);
    }

    /// Drops the entries without a query since the last call.
    pub(super) fn drop_unqueried(&mut self) {
        self.0.retain(|_, entries| {
            entries.retain(|_, entry| std::mem::take(&mut entry.is_queried));
            !entries.is_empty()
        });
    }

    /// The queried resources of a type among the changed ones. If more names have changed than are queried, all queried
    /// ones: the difference of two large maps is not read to its end for a few entries.
    fn among<'a, I: Iterator<Item = &'a Arc<str>>>(
        &self,
        of: ResourceType,
        changed: impl FnOnce() -> I,
    ) -> Vec<(ResourceType, Arc<str>)> {
        let Some(entries) = self.0.get(&of) else { return Vec::new() };
        let mut queried = BTreeSet::new();
        for (count, name) in changed().enumerate() {
            if count == entries.len() {
                return self.all(of);
            }
            if entries.contains_key(name) {
                queried.insert(name);
            }
        }
        queried.into_iter().map(|name| (of, Arc::clone(name))).collect()
    }

    /// The queried resources of a type.
    fn all(&self, of: ResourceType) -> Vec<(ResourceType, Arc<str>)> {
        let names = self.0.get(&of).into_iter().flat_map(HashMap::keys);
        names.map(|name| (of, Arc::clone(name))).collect()
    }

    /// Changes a client, and counts anew what it has of the concerned resources, each of which is listed once.
    fn update(
        &mut self,
        client: &mut Client,
        concerned: &[(ResourceType, Arc<str>)],
        counters: &Counters,
        change: impl FnOnce(&mut Client),
    ) {
        counters.examined(concerned.len());
        self.count(client, concerned, Entry::remove);
        change(client);
        self.count(client, concerned, Entry::add);
    }

    fn count(
        &mut self,
        client: &Client,
        concerned: &[(ResourceType, Arc<str>)],
        count: fn(&mut Entry, &Holding),
    ) {
        for (of, name) in concerned {
            if let Some(entry) = self.0.get_mut(of).and_then(|entries| entries.get_mut(name)) {
                count(entry, &Holding::of(client, *of, name));
            }
        }
    }
}

impl Entry {
    fn add(&mut self, holding: &Holding) {
        self.acked.add(holding.acked);
        self.may_have += usize::from(holding.may_have);
        self.published.add(holding.published);
    }

    fn remove(&mut self, holding: &Holding) {
        self.acked.remove(holding.acked);
        self.may_have = self.may_have.saturating_sub(usize::from(holding.may_have));
        self.published.remove(holding.published);
    }
}

impl FromIterator<Holding> for Entry {
    fn from_iter<I: IntoIterator<Item = Holding>>(clients: I) -> Self {
        let mut entry = Self::default();
        for holding in clients {
            entry.add(&holding);
        }
        entry
    }
}

impl VersionCounts {
    fn of(&self, version: Version) -> usize {
        self.0.get(&version).copied().unwrap_or_default()
    }

    fn add(&mut self, version: Option<Version>) {
        if let Some(version) = version {
            *self.0.entry(version).or_default() += 1;
        }
    }

    fn remove(&mut self, version: Option<Version>) {
        let Some(version) = version else { return };
        match self.0.get_mut(&version) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.0.remove(&version);
            }
        }
    }
}

impl Holding {
    /// What a client has of a resource.
    fn of(client: &Client, of: ResourceType, name: &str) -> Self {
        let acked = client.status.acked_version(of, name);
        let is_unreported =
            of == ResourceType::Cluster && client.status.unreported_clusters.is_some();
        // Without a stream, a client has no set.
        let set = client.set.borrow();
        let published = set.as_ref().and_then(|set| set.of(of).get(name));
        Self {
            acked,
            may_have: acked.is_some() || is_unreported,
            published: published.map(|resource| resource.version()),
        }
    }
}

#[cfg(test)]
mod tests;
