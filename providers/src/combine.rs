//! Several providers of one service: all that they find is the service's, and where two speak of the same
//! endpoint the one that comes first in [`Provider`] is right. Endpoints that joined by a tag come after
//! those that policy requests: a registrant does not replace what a trusted provider reports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ironmesh_catalog::{Endpoint, EndpointPlace, Provider, ProxyId};
use uuid::Uuid;

/// Two providers that say different things of the same endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The endpoint as it is taken.
    pub taken: Endpoint,
    /// What another provider says of it, which counts for nothing.
    pub ignored: Endpoint,
}

/// What providers have found, together. `found` is in the order of [`Provider`]; `target` is the port of
/// endpoints that say none, where the service has one port.
///
/// A proxy that joined gives way to an endpoint of which another provider says where it is and how it
/// fares, if it stands in front of it.
pub(crate) fn combine(
    found: impl IntoIterator<Item = Endpoint>,
    target: Option<u16>,
) -> (Vec<Endpoint>, Vec<Conflict>) {
    let found: Vec<_> = found.into_iter().collect();
    let joined = found.iter().filter(|one| one.provider == Provider::Registered);
    let stated: BTreeSet<_> = joined.filter_map(|one| one.machine).collect();
    let mut taken: Vec<Endpoint> = Vec::new();
    let mut by_place: BTreeMap<EndpointPlace, usize> = BTreeMap::new();
    let mut conflicts = Vec::new();
    let mut known = Known::default();
    let mut excluded = Vec::new();
    for endpoint in found {
        // It takes no place from another, and no proxy gives way to it.
        if endpoint.exclusion.is_some() {
            excluded.push(endpoint);
            continue;
        }
        if endpoint.provider == Provider::Registered {
            if !known.is_behind(&endpoint) {
                taken.push(endpoint);
            }
            continue;
        }
        known.add(&endpoint, &stated);
        let place = (endpoint.address, endpoint.port.or(target));
        match by_place.get(&place) {
            None => {
                by_place.insert(place, taken.len());
                taken.push(endpoint);
            }
            Some(index) => {
                let Some(first) = taken.get_mut(*index) else { continue };
                // The labels of a list in policy always have precedence.
                let is_listed = first.provider == Provider::Static;
                if !is_listed && !endpoint.joined_by_tag && first.provider != endpoint.provider {
                    let report = (endpoint.provider, endpoint.labels.clone());
                    first.other_labels =
                        first.other_labels.iter().cloned().chain([report]).collect();
                }
                let is_same_source = first.provider == endpoint.provider
                    && first.joined_by_tag == endpoint.joined_by_tag;
                if !is_same_source && !agree(first, &endpoint) {
                    conflicts.push(Conflict { taken: first.clone(), ignored: endpoint });
                }
            }
        }
    }
    taken.extend(excluded);
    (taken, conflicts)
}

/// Behind which proxies others have found something, by the rules by which these are in front of it.
#[derive(Default)]
struct Known {
    /// The proxies that they name.
    proxies: BTreeSet<ProxyId>,
    /// The machines that they name, if a proxy has said that it is there.
    machines: BTreeSet<Uuid>,
    /// The addresses of what they name no proxy and no machine for.
    addresses: BTreeSet<IpAddr>,
    /// The addresses of machines that they name, where no proxy has said that it is there.
    unstated: BTreeSet<IpAddr>,
}

impl Known {
    /// Takes what another has found. `stated` are the machines on which proxies have said that they are.
    fn add(&mut self, endpoint: &Endpoint, stated: &BTreeSet<Uuid>) {
        match (endpoint.proxy, endpoint.machine) {
            (Some(proxy), _) => drop(self.proxies.insert(proxy)),
            (None, Some(machine)) if stated.contains(&machine) => {
                self.machines.insert(machine);
            }
            (None, Some(_)) => drop(self.unstated.insert(endpoint.address)),
            (None, None) => drop(self.addresses.insert(endpoint.address)),
        }
    }

    /// Whether something was found behind the proxy that joined.
    fn is_behind(&self, joined: &Endpoint) -> bool {
        let is_there = match joined.machine {
            Some(machine) => self.machines.contains(&machine),
            None => self.unstated.contains(&joined.address),
        };
        is_there
            || joined.proxy.is_some_and(|proxy| self.proxies.contains(&proxy))
            || self.addresses.contains(&joined.address)
    }
}

/// Whether both say the same of what they both speak of.
fn agree(one: &Endpoint, other: &Endpoint) -> bool {
    (one.weight, one.health, &one.labels) == (other.weight, other.health, &other.labels)
        && (one.proxy.is_none() || other.proxy.is_none() || one.proxy == other.proxy)
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{Health, Labels};

    use super::*;

    fn endpoint(provider: Provider, last: u8, port: Option<u16>) -> Endpoint {
        Endpoint { port, ..Endpoint::new(provider, IpAddr::from([10, 0, 0, last])) }
    }

    #[test]
    fn first_provider_wins_and_conflicts_are_reported() {
        let listed = endpoint(Provider::Static, 1, None);
        let same = endpoint(Provider::Consul, 1, Some(8080));
        let other = endpoint(Provider::Consul, 1, Some(8081));
        let (taken, conflicts) = combine([listed.clone(), same.clone(), other.clone()], Some(8080));
        assert_eq!(taken, [listed.clone(), other]);
        assert_eq!(conflicts, []);
        let sick = Endpoint { health: Health::Unhealthy, ..same };
        let (taken, conflicts) = combine([listed.clone(), sick.clone()], Some(8080));
        assert_eq!(taken, std::slice::from_ref(&listed));
        assert_eq!(conflicts, [Conflict { taken: listed, ignored: sick }]);
    }

    #[test]
    fn provider_endpoint_replaces_that_of_its_enrolled_proxy() {
        let proxy = |number| Some(ProxyId(Uuid::from_u128(number)));
        let joined = |last, number| Endpoint {
            proxy: proxy(number),
            ..endpoint(Provider::Registered, last, None)
        };
        let at_its_address = endpoint(Provider::Consul, 1, Some(8080));
        let by_its_key =
            Endpoint { proxy: proxy(2), ..endpoint(Provider::Consul, 200, Some(8080)) };
        let of_another = Endpoint { proxy: proxy(9), ..endpoint(Provider::Consul, 3, Some(8080)) };
        let known = [at_its_address, by_its_key, of_another];
        let proxies = [joined(1, 1), joined(2, 2), joined(3, 3)];
        let (taken, conflicts) = combine(known.iter().chain(&proxies).cloned(), Some(8080));
        assert_eq!(taken, [known.as_slice(), &proxies[2..]].concat());
        assert_eq!(conflicts, []);
    }

    #[test]
    fn machine_endpoint_replaces_that_of_its_enrolled_proxy() {
        let machine = |number| Some(Uuid::from_u128(number));
        let joined = |last, number| Endpoint {
            proxy: Some(ProxyId(Uuid::from_u128(u128::from(last)))),
            machine: number,
            ..endpoint(Provider::Registered, last, None)
        };
        let found = |last, number| Endpoint {
            machine: machine(number),
            ..endpoint(Provider::Azure, last, Some(8080))
        };
        // It is on that machine, wherever this is; nobody has said that he is on the second, and who is at
        // its address has not said where he is; who is at the address of the third is on another.
        let known = [found(200, 1), found(2, 2), found(3, 3)];
        let proxies =
            [joined(1, machine(1)), joined(2, None), joined(3, machine(9)), joined(4, machine(3))];
        let (taken, conflicts) = combine(known.iter().chain(&proxies).cloned(), Some(8080));
        assert_eq!(taken, [known.as_slice(), &proxies[2..3]].concat());
        assert_eq!(conflicts, []);
        // Of the first machine somebody has said that he is there: who is at its address is another.
        let (taken, _) = combine([found(1, 1), joined(1, None), joined(5, machine(1))], None);
        assert_eq!(taken, [found(1, 1), joined(1, None)]);
    }

    #[test]
    fn combined_endpoint_keeps_all_labels_but_tag_registered_ones() {
        let labels = |word: &str| Labels::from_iter([("role", word)]);
        let by = |provider, role| Endpoint { labels: labels(role), ..endpoint(provider, 1, None) };
        let tagged = Endpoint { joined_by_tag: true, ..by(Provider::Consul, "thief") };
        let found = [by(Provider::Consul, "web"), by(Provider::Azure, "batch"), tagged];
        let (taken, conflicts) = combine(found, None);
        assert_eq!((taken.len(), conflicts.len()), (1, 2));
        assert_eq!(taken[0].labels, labels("web"));
        assert_eq!(*taken[0].other_labels, [(Provider::Azure, labels("batch"))]);
    }
}
