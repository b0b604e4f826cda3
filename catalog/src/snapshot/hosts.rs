//! The endpoints of each address that callers dial, merged.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::endpoint::{Application, Endpoint, Health, MeshEndpoint, Transport};
use crate::locality::Locality;

/// Endpoints by a unique key. For equal keys, the provider with precedence wins.
#[derive(Debug)]
pub(super) struct Distinct<'a, K>(BTreeMap<K, &'a Endpoint>);

impl<K> Default for Distinct<'_, K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'a, K: Ord> Distinct<'a, K> {
    pub(super) fn insert(&mut self, key: K, endpoint: &'a Endpoint) {
        match self.0.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(endpoint);
            }
            Entry::Occupied(mut entry) if endpoint.provider < entry.get().provider => {
                entry.insert(endpoint);
            }
            Entry::Occupied(_) => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them merged into one endpoint at `address`. Those with a key in `failing` are unhealthy, whatever their
    /// provider reports.
    pub(super) fn merged(&self, address: SocketAddr, failing: &BTreeSet<K>) -> MeshEndpoint {
        let all = || {
            self.0.iter().map(|(key, one)| {
                let is_failing = failing.contains(key);
                (one, if is_failing { Health::Unhealthy } else { one.health })
            })
        };
        let health = all().map(|(_, health)| health).min().unwrap_or_default();
        // Only healthy endpoints add weight, unless none is healthy.
        let counts = |one: &Health| health != Health::Healthy || *one == Health::Healthy;
        let weights = all().filter(|(_, one)| counts(one)).map(|(one, _)| one.weight);
        let locality = all().map(|(one, _)| &one.locality).find(|locality| !locality.is_empty());
        MeshEndpoint {
            address,
            transport: Transport::MutualTls,
            weight: weights.fold(0, u32::saturating_add).max(1),
            health,
            locality: locality.cloned().unwrap_or_default(),
        }
    }
}

impl Distinct<'_, u16> {
    /// The applications of a proxy, by the ports on which they listen.
    pub(super) fn applications(&self) -> Vec<Application> {
        let all = self.0.iter();
        let application = |(port, one): (&u16, &&Endpoint)| Application {
            port: *port,
            weight: one.weight,
            health: one.health,
            probed: one.probed,
        };
        all.map(application).collect()
    }
}

impl Distinct<'_, SocketAddr> {
    /// Each endpoint separately, for plaintext.
    pub(super) fn in_plaintext(&self) -> impl Iterator<Item = MeshEndpoint> {
        self.0.iter().map(|(address, one)| MeshEndpoint {
            address: *address,
            transport: Transport::Plaintext,
            weight: one.weight.max(1),
            health: one.health,
            locality: one.locality.clone(),
        })
    }
}

/// The endpoints of a service port, each address once.
#[derive(Debug, Default)]
pub(super) struct Hosts(BTreeMap<SocketAddr, MeshEndpoint>);

impl Hosts {
    /// Adds an endpoint. One mesh address is one proxy, even if it was enrolled again: it counts once, with the better
    /// state. Mutual TLS has precedence over plaintext.
    pub(super) fn insert(&mut self, host: MeshEndpoint) {
        let host = match self.0.remove(&host.address) {
            None => host,
            Some(known) => better(known, host),
        };
        self.0.insert(host.address, host);
    }

    /// All of them, by address.
    pub(super) fn into_sorted(self) -> Vec<MeshEndpoint> {
        self.0.into_values().collect()
    }
}

impl MeshEndpoint {
    /// The same endpoint, with this locality if it has none.
    pub(super) fn or_in(self, default: &Locality) -> Self {
        let locality = if self.locality.is_empty() { default.clone() } else { self.locality };
        Self { locality, ..self }
    }

    /// The same endpoint, without new calls.
    pub(super) fn drained(self) -> Self {
        Self { health: self.health.max(Health::Draining), ..self }
    }
}

fn better(one: MeshEndpoint, other: MeshEndpoint) -> MeshEndpoint {
    let rank = |one: &MeshEndpoint| (one.transport, one.health, Reverse(one.weight));
    let (better, other) = if rank(&other) < rank(&one) { (other, one) } else { (one, other) };
    let locality =
        if better.locality.is_empty() { other.locality } else { better.locality.clone() };
    MeshEndpoint { locality, ..better }
}
