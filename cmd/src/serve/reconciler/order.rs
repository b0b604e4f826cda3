//! Make before break across proxies (invariant 6): servers before callers when adding, callers before
//! servers when removing.
//!
//! What a client is to have is held back in part, for moments. A caller is not told of a service port
//! that nobody serves yet, as long as a proxy is about to: its calls would fail. And a proxy goes on
//! serving a port that policy has dropped, as long as a caller has not dropped it. No wait is longer than
//! [`PATIENCE`], and none is for a withdrawn grant: that is carried out at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{ServicePort, Snapshot};
use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::{ResourceSet, ResourceType};
use tokio::time::Instant;

use super::clients::Clients;

/// How long one proxy waits for another.
const PATIENCE: Duration = Duration::from_secs(15);

/// Who waits for whom, and until when.
#[derive(Debug, Default)]
pub(super) struct Order {
    waits: BTreeMap<(ClientKey, Wait), Patience>,
}

/// What a client waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// That somebody serves the port.
    Served(ServicePort),
    /// That nobody calls the port any more.
    Unused(ServicePort),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Until(Instant),
    Lost,
}

/// What is known when somebody may have to wait.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) clients: &'a Clients,
    pub(super) hub: &'a Hub,
    pub(super) now: Instant,
}

impl Order {
    /// The clients that wait, or have lost their patience.
    pub(super) fn waiting(&self) -> BTreeSet<ClientKey> {
        self.waits.keys().map(|(client, _)| Arc::clone(client)).collect()
    }

    /// When the next wait ends; none if nobody waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let until = |patience: &Patience| match patience {
            Patience::Until(deadline) => Some(*deadline),
            Patience::Lost => None,
        };
        self.waits.values().filter_map(until).min()
    }

    /// A client has gone.
    pub(super) fn forget(&mut self, client: &str) {
        self.waits.retain(|(waiting, _), _| **waiting != *client);
    }

    /// What `client` is given of what it is `wanted` to have, after what it was given before.
    pub(super) fn hold(
        &mut self,
        client: &ClientKey,
        wanted: ResourceSet,
        before: &ResourceSet,
        known: Known<'_>,
    ) -> ResourceSet {
        let served = to_be_served(&wanted, before, known).into_iter().map(Wait::Served);
        let unused = to_be_unused(client, &wanted, before, known).into_iter().map(Wait::Unused);
        let waits: BTreeSet<_> = served.chain(unused).collect();
        self.waits.retain(|(waiting, wait), _| waiting != client || waits.contains(wait));
        let (mut to_come, mut given) = (Vec::new(), wanted);
        for wait in waits {
            if !self.has_patience(client, &wait, known.now) {
                continue;
            }
            match wait {
                Wait::Served(port) => to_come.push(port.to_string()),
                Wait::Unused(port) => keep_serving(&port, &mut given, before),
            }
        }
        if !to_come.is_empty() {
            keep_calling(&to_come, &mut given, before);
        }
        given
    }

    fn has_patience(&mut self, client: &ClientKey, wait: &Wait, now: Instant) -> bool {
        let key = (Arc::clone(client), wait.clone());
        let patience = self.waits.entry(key).or_insert(Patience::Until(now + PATIENCE));
        match *patience {
            Patience::Until(deadline) if now < deadline => true,
            Patience::Until(_) => {
                *patience = Patience::Lost;
                match wait {
                    Wait::Served(port) => {
                        tracing::warn!(%client, %port, "nobody serves the port yet; it is told of it all the same");
                    }
                    Wait::Unused(port) => {
                        tracing::warn!(%client, %port, "somebody has not dropped the port yet; it is served no longer all the same");
                    }
                }
                false
            }
            Patience::Lost => false,
        }
    }
}

/// The ports that a caller is newly to be told of, or is to lose all endpoints of, and that nobody serves
/// yet though a proxy is about to.
fn to_be_served(
    wanted: &ResourceSet,
    before: &ResourceSet,
    known: Known<'_>,
) -> BTreeSet<ServicePort> {
    let clusters = wanted.changed_since(before, ResourceType::Cluster).into_iter();
    let clusters = clusters.filter(|name| !before.contains(ResourceType::Cluster, name));
    let endpoints = wanted.changed_since(before, ResourceType::Endpoint).into_iter();
    let names = clusters.chain(endpoints);
    let names = names.filter(|name| wanted.contains(ResourceType::Cluster, name));
    let ports = names.filter_map(|name| name.parse::<ServicePort>().ok());
    let is_coming = |port: &ServicePort| {
        let endpoints = known.snapshot.endpoints.get(port);
        endpoints.is_none_or(|endpoints| endpoints.is_empty())
            && known.clients.are_to_serve(port, known.snapshot)
    };
    ports.filter(is_coming).collect()
}

/// The ports that a server is to serve no longer because policy has dropped them, and that somebody may
/// still call. (One that nobody may call any more is closed at once.)
fn to_be_unused(
    client: &ClientKey,
    wanted: &ResourceSet,
    before: &ResourceSet,
    known: Known<'_>,
) -> BTreeSet<ServicePort> {
    let names = wanted.changed_since(before, ResourceType::Cluster).into_iter();
    let is_gone = |name: &Arc<str>| !wanted.contains(ResourceType::Cluster, name);
    let ports = names
        .filter(is_gone)
        .filter_map(|name| name.strip_suffix("|local")?.parse::<ServicePort>().ok());
    let is_in_use = |port: &ServicePort| {
        let service = known.snapshot.service(&port.service);
        service.is_none_or(|service| service.port(port.port).is_none())
            && known.hub.anyone_names(ResourceType::Cluster, &port.to_string(), client)
    };
    ports.filter(is_in_use).collect()
}

/// Keeps what a proxy serves a port with.
fn keep_serving(port: &ServicePort, given: &mut ResourceSet, before: &ResourceSet) {
    let mut keep = |resource_type, name: &str| {
        if let Some(resource) = before.of(resource_type).get(name) {
            given.insert(Arc::clone(resource));
        }
    };
    keep(ResourceType::Cluster, &format!("{port}|local"));
    keep(ResourceType::Route, &format!("inbound|{port}"));
    keep(ResourceType::Listener, "inbound");
    for name in before.of(ResourceType::Secret).keys() {
        // Of newer secrets the newer stay.
        if !given.contains(ResourceType::Secret, name)
            && let Some(resource) = before.of(ResourceType::Secret).get(name)
        {
            given.insert(Arc::clone(resource));
        }
    }
}

/// Keeps a caller's ways as they were where the new ones lead to ports that are to come.
fn keep_calling(to_come: &[String], given: &mut ResourceSet, before: &ResourceSet) {
    let wanted = given.clone();
    for name in to_come {
        for resource_type in [ResourceType::Cluster, ResourceType::Endpoint] {
            match before.of(resource_type).get(name.as_str()) {
                // It has been served till now, by somebody who is about to again.
                Some(old) => given.insert(Arc::clone(old)),
                None => given.remove(resource_type, name),
            }
        }
    }
    let is_new = |name: &&String| !before.contains(ResourceType::Cluster, name);
    let to_come: Vec<_> = to_come.iter().filter(is_new).collect();
    for resource_type in [ResourceType::Route, ResourceType::Listener] {
        for name in wanted.changed_since(before, resource_type) {
            let new = wanted.of(resource_type).get(&name);
            let leads_there = new.is_some_and(|new| to_come.iter().any(|port| new.mentions(port)));
            if !leads_there || name.starts_with("inbound") {
                continue;
            }
            match before.of(resource_type).get(&name) {
                Some(old) => given.insert(Arc::clone(old)),
                None => given.remove(resource_type, &name),
            }
        }
    }
    // What the old ways lead to must stay as well.
    for resource_type in [ResourceType::Cluster, ResourceType::Endpoint] {
        for name in wanted.changed_since(before, resource_type) {
            let is_outbound = !name.ends_with("|local");
            if let (true, false, Some(old)) = (
                is_outbound,
                wanted.contains(resource_type, &name),
                before.of(resource_type).get(&name),
            ) {
                given.insert(Arc::clone(old));
            }
        }
    }
}
