//! Make before break across proxies (invariant 6): servers before callers when adding, callers before
//! servers when removing.
//!
//! What a client is to have is held back in part, for moments. A caller is not told of a service port
//! that nobody serves yet, as long as a proxy is about to: its calls would fail. And a proxy goes on
//! serving a port that policy has dropped, and no more than that, as long as a caller has not dropped it.
//! And one whose last application has left goes on leading there for a moment: its callers hear of that at the
//! same time, and what is on its way from them would be led to where nobody listens.
//! No wait is longer than [`PATIENCE`], and none is for a grant that is withdrawn from a port that stays:
//! that is carried out at once. (A port that is dropped is served meanwhile with the grants that it had.)

mod keep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{ProxyId, ServicePort, Snapshot};
use ironmesh_xds_compile::names;
use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::{ResourceSet, ResourceType, Version};
use tokio::time::Instant;

use super::clients::Clients;
use keep::{KeptListener, keep_calling, keep_leading, keep_serving};

/// How long one proxy waits for another.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// How long a server goes on serving a dropped port once all callers have ACKed that it is gone: their worker threads
/// apply that a moment after the ACK, and requests are on their way.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(2);

/// Who waits for whom, and until when.
#[derive(Debug, Default)]
pub(super) struct Order {
    waits: BTreeMap<ClientKey, BTreeMap<Wait, Patience>>,
    /// What those have for their inbound listener who go on serving a dropped port.
    kept: BTreeMap<ClientKey, KeptListener>,
    /// The versions of the ways to their applications of those who go on leading to one that has left: the one
    /// that they are to have, and the one that they have.
    left: BTreeMap<ClientKey, BTreeMap<Arc<str>, (Version, Version)>>,
}

/// What a client waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// That somebody serves the port.
    Served(ServicePort),
    /// That nobody calls the port any more.
    Unused(ServicePort),
    /// That the last requests for the port have arrived.
    InFlight(ServicePort),
    /// That callers have heard that no application is there any more. (Nobody asks them one by one, for there
    /// may be thousands: their time is over when patience is.)
    Left(ServicePort),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Until(Instant),
    Lost,
}

impl Patience {
    /// Whether it is lost now.
    fn ends(&self, now: Instant) -> bool {
        matches!(self, Self::Until(deadline) if *deadline <= now)
    }
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
    /// The clients of whom something may be over that they wait for.
    pub(super) fn due(&self, known: Known<'_>) -> BTreeSet<ClientKey> {
        // Many wait for one port, which is looked at once.
        let mut coming: BTreeMap<&ServicePort, bool> = BTreeMap::new();
        let mut due = BTreeSet::new();
        for (client, waits) in &self.waits {
            for (wait, patience) in waits {
                let is_due = match wait {
                    Wait::Served(port) => {
                        patience.ends(known.now)
                            || !*coming.entry(port).or_insert_with(|| is_coming(port, known))
                    }
                    Wait::Unused(_) => true,
                    Wait::InFlight(_) | Wait::Left(_) => patience.ends(known.now),
                };
                if is_due {
                    due.insert(Arc::clone(client));
                    break;
                }
            }
        }
        due
    }

    /// When the next wait ends; none if nobody waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let until = |patience: &Patience| match patience {
            Patience::Until(deadline) => Some(*deadline),
            Patience::Lost => None,
        };
        self.waits.values().flat_map(BTreeMap::values).filter_map(until).min()
    }

    /// A client has gone.
    pub(super) fn forget(&mut self, client: &str) {
        self.waits.remove(client);
        self.kept.remove(client);
        self.left.remove(client);
    }

    /// The version in which a client is given something that it is to have in this one. They differ for
    /// the inbound listener of one that still serves a dropped port, besides all that it is to serve, and for
    /// the ways to applications that have left.
    pub(super) fn given(
        &self,
        client: &str,
        resource_type: ResourceType,
        name: &str,
        version: Version,
    ) -> Version {
        if resource_type == ResourceType::Cluster {
            let left = self.left.get(client).and_then(|left| left.get(name));
            return left.filter(|(wanted, _)| *wanted == version).map_or(version, |(_, has)| *has);
        }
        let kept = self.kept.get(client).filter(|kept| kept.is_for(resource_type, name, version));
        kept.map_or(version, KeptListener::version)
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
        let dropped = dropped_ports(&wanted, before, known);
        let unused = dropped.into_iter().filter_map(|port| self.drop_wait(client, port, known));
        let unused: Vec<_> = unused.collect();
        let left = to_be_left(client, &wanted, before, known).into_iter().map(Wait::Left);
        let waits: BTreeSet<_> = served.chain(unused).chain(left).collect();
        if let Some(known) = self.waits.get_mut(client) {
            known.retain(|wait, _| waits.contains(wait));
            if known.is_empty() {
                self.waits.remove(client);
            }
        }
        let (mut to_come, mut unused, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut given = wanted;
        for wait in waits {
            if !self.has_patience(client, &wait, known.now) {
                continue;
            }
            match wait {
                Wait::Served(port) => to_come.push(port.to_string()),
                Wait::Unused(port) | Wait::InFlight(port) => unused.push(port),
                Wait::Left(port) => left.push(port),
            }
        }
        self.left.remove(client);
        if !left.is_empty() {
            self.left.insert(Arc::clone(client), keep_leading(&left, &mut given, before));
        }
        let kept = self.kept.remove(client);
        if !unused.is_empty()
            && let Some(kept) = keep_serving(unused, &mut given, before, kept)
        {
            self.kept.insert(Arc::clone(client), kept);
        }
        if !to_come.is_empty() {
            keep_calling(&to_come, &mut given, before);
        }
        given
    }

    /// What a server waits for before it drops a port: callers, and then their last requests. A port that was not
    /// waited for, because no caller had it, is dropped at once; so is one whose callers did not drop it in time.
    fn drop_wait(&self, client: &ClientKey, port: ServicePort, known: Known<'_>) -> Option<Wait> {
        if known.hub.other_client_may_have(ResourceType::Cluster, &port.to_string(), client) {
            return Some(Wait::Unused(port));
        }
        let waits = self.waits.get(client)?;
        let in_flight = Wait::InFlight(port.clone());
        let was_called = matches!(waits.get(&Wait::Unused(port)), Some(Patience::Until(_)));
        (was_called || waits.contains_key(&in_flight)).then_some(in_flight)
    }

    fn has_patience(&mut self, client: &ClientKey, wait: &Wait, now: Instant) -> bool {
        let waits = self.waits.entry(Arc::clone(client)).or_default();
        let time = if matches!(wait, Wait::InFlight(_)) { IN_FLIGHT } else { PATIENCE };
        let patience = waits.entry(wait.clone()).or_insert(Patience::Until(now + time));
        match *patience {
            Patience::Until(deadline) if now < deadline => true,
            Patience::Until(_) => {
                *patience = Patience::Lost;
                match wait {
                    Wait::Served(port) => {
                        tracing::warn!(%client, %port, "no proxy serves the port after 15 s; publishing it anyway");
                    }
                    Wait::Unused(port) => {
                        tracing::warn!(%client, %port, "a caller has not ACKed the removal of the port after 15 s; closing it anyway");
                    }
                    // Most callers have heard of it long ago, and it was their time that was waited for.
                    Wait::InFlight(_) | Wait::Left(_) => {}
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
    ports.filter(|port| is_coming(port, known)).collect()
}

/// Whether no endpoint serves the port yet, and a proxy is about to.
fn is_coming(port: &ServicePort, known: Known<'_>) -> bool {
    let endpoints = known.snapshot.endpoints.get(port);
    endpoints.is_none_or(|endpoints| endpoints.is_empty())
        && known.clients.are_to_serve(port, known.snapshot)
}

/// The ports that a server is to serve no longer because policy has dropped them. (One that nobody may call any more
/// is closed at once.)
fn dropped_ports(
    wanted: &ResourceSet,
    before: &ResourceSet,
    known: Known<'_>,
) -> BTreeSet<ServicePort> {
    let names = wanted.changed_since(before, ResourceType::Cluster).into_iter();
    let is_gone = |name: &Arc<str>| !wanted.contains(ResourceType::Cluster, name);
    let ports = names.filter(is_gone).filter_map(|name| names::port_of_local_cluster(&name));
    let is_dropped = |port: &ServicePort| {
        let service = known.snapshot.service(&port.service);
        service.is_none_or(|service| service.port(port.port).is_none())
    };
    ports.filter(is_dropped).collect()
}

/// The ports of which no application is behind a server any more, that it leads elsewhere for that.
fn to_be_left(
    client: &ClientKey,
    wanted: &ResourceSet,
    before: &ResourceSet,
    known: Known<'_>,
) -> BTreeSet<ServicePort> {
    let Ok(id) = client.parse::<ProxyId>() else { return BTreeSet::new() };
    let names = wanted.changed_since(before, ResourceType::Cluster).into_iter();
    let is_in_both = |name: &Arc<str>| {
        [wanted, before].iter().all(|set| set.contains(ResourceType::Cluster, name))
    };
    let ports = names.filter(is_in_both).filter_map(|name| names::port_of_local_cluster(&name));
    let local = &known.snapshot.local_endpoints;
    ports.filter(|port| !local.contains_key(&(id, port.clone()))).collect()
}
