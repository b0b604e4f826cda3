//! What is behind an address that callers dial, put together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;

use crate::endpoint::{Application, Endpoint, Health, MeshEndpoint, Transport};
use crate::locality::Locality;

/// Endpoints, each by what tells it from the others. Of two that are the same one, what the earlier provider
/// says holds.
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

    /// All of them as one, that is dialled at `address`.
    pub(super) fn together(&self, address: SocketAddr) -> MeshEndpoint {
        let all = || self.0.values().copied();
        let health = all().map(|one| one.health).min().unwrap_or_default();
        // Those that take nothing now have no share in what comes, unless all are such.
        let counts = |one: &&Endpoint| health != Health::Healthy || one.health == Health::Healthy;
        let weights = all().filter(counts).map(|one| one.weight);
        let locality = all().map(|one| &one.locality).find(|locality| !locality.is_empty());
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
    /// The applications behind a proxy, by the ports on which they listen.
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
    /// Each by itself, as it is called in plaintext.
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

/// Where a service port is dialled, each address once.
#[derive(Debug, Default)]
pub(super) struct Hosts(BTreeMap<SocketAddr, MeshEndpoint>);

impl Hosts {
    /// Takes one more. At one mesh address is one proxy, also where it joined again: it counts once, as the
    /// better of what is known of it. Nobody speaks plaintext to a mesh port.
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
    /// The same: in `place`, where nobody knows more of it.
    pub(super) fn or_in(self, place: &Locality) -> Self {
        let locality = if self.locality.is_empty() { place.clone() } else { self.locality };
        Self { locality, ..self }
    }
}

fn better(one: MeshEndpoint, other: MeshEndpoint) -> MeshEndpoint {
    let rank = |one: &MeshEndpoint| (one.transport, one.health, Reverse(one.weight));
    let (better, other) = if rank(&other) < rank(&one) { (other, one) } else { (one, other) };
    let locality =
        if better.locality.is_empty() { other.locality } else { better.locality.clone() };
    MeshEndpoint { locality, ..better }
}
