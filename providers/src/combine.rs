//! Combines the endpoints that several providers report for one service.
//!
//! For the same address and port, the first provider in the order of [`Provider`] wins. Endpoints
//! that registered by a tag come after those that policy queries: a registrant cannot replace what
//! a trusted provider reports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ironmesh_catalog::{Endpoint, EndpointPlace, Provider, ProxyId};
use uuid::Uuid;

/// Two providers that contradict each other about one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The endpoint that the mesh uses.
    pub used: Endpoint,
    /// The contradicting report, which has no effect.
    pub ignored: Endpoint,
}

/// Combines the endpoints of all providers. `found` has the order of [`Provider`]. `target` is the
/// port of endpoints without a port, if the service has one port.
///
/// The endpoint of an enrolled proxy is dropped if another provider reports an endpoint of that
/// proxy: only the provider knows its port and health.
pub(crate) fn combine(
    found: impl IntoIterator<Item = Endpoint>,
    target: Option<u16>,
) -> (Vec<Endpoint>, Vec<Conflict>) {
    let found: Vec<_> = found.into_iter().collect();
    let enrolled = found.iter().filter(|one| one.provider == Provider::Registered);
    let stated: BTreeSet<_> = enrolled.filter_map(|one| one.machine).collect();
    let mut used: Vec<Endpoint> = Vec::new();
    let mut by_place: BTreeMap<EndpointPlace, usize> = BTreeMap::new();
    let mut conflicts = Vec::new();
    let mut known = FoundTargets::default();
    let mut excluded = Vec::new();
    for endpoint in found {
        // An excluded endpoint replaces no other, and no enrolled proxy gives way to it.
        if endpoint.exclusion.is_some() {
            excluded.push(endpoint);
            continue;
        }
        if endpoint.provider == Provider::Registered {
            if !known.covers(&endpoint) {
                used.push(endpoint);
            }
            continue;
        }
        known.add(&endpoint, &stated);
        let place = (endpoint.address, endpoint.port.or(target));
        match by_place.get(&place) {
            None => {
                by_place.insert(place, used.len());
                used.push(endpoint);
            }
            Some(index) => {
                let Some(first) = used.get_mut(*index) else { continue };
                // The labels of a static list always have precedence.
                let is_listed = first.provider == Provider::Static;
                if !is_listed && !endpoint.selected_by_tag && first.provider != endpoint.provider {
                    let report = (endpoint.provider, endpoint.labels.clone());
                    first.other_labels =
                        first.other_labels.iter().cloned().chain([report]).collect();
                }
                let is_same_source = first.provider == endpoint.provider
                    && first.selected_by_tag == endpoint.selected_by_tag;
                if !is_same_source && !agree(first, &endpoint) {
                    conflicts.push(Conflict { used: first.clone(), ignored: endpoint });
                }
            }
        }
    }
    used.extend(excluded);
    (used, conflicts)
}

/// The proxies to which reported endpoints belong, by the same rules as
/// the endpoint classifier.
#[derive(Default)]
struct FoundTargets {
    /// The proxies that endpoints name.
    proxies: BTreeSet<ProxyId>,
    /// The machines that endpoints name, if a proxy stated that it runs there.
    machines: BTreeSet<Uuid>,
    /// The addresses of endpoints that name neither a proxy nor a machine.
    addresses: BTreeSet<IpAddr>,
    /// The addresses of endpoints on machines on which no proxy stated to run.
    unstated: BTreeSet<IpAddr>,
}

impl FoundTargets {
    /// Adds a reported endpoint. `stated` are the machines on which proxies stated to run.
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

    /// Whether a reported endpoint belongs to this enrolled proxy.
    fn covers(&self, enrolled: &Endpoint) -> bool {
        let is_there = match enrolled.machine {
            Some(machine) => self.machines.contains(&machine),
            None => self.unstated.contains(&enrolled.address),
        };
        is_there
            || enrolled.proxy.is_some_and(|proxy| self.proxies.contains(&proxy))
            || self.addresses.contains(&enrolled.address)
    }
}

/// Whether both reports have equal values.
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
        let (used, conflicts) = combine([listed.clone(), same.clone(), other.clone()], Some(8080));
        assert_eq!(used, [listed.clone(), other]);
        assert_eq!(conflicts, []);
        let sick = Endpoint { health: Health::Unhealthy, ..same };
        let (used, conflicts) = combine([listed.clone(), sick.clone()], Some(8080));
        assert_eq!(used, std::slice::from_ref(&listed));
        assert_eq!(conflicts, [Conflict { used: listed, ignored: sick }]);
    }

    #[test]
    fn provider_endpoint_replaces_that_of_its_enrolled_proxy() {
        let proxy = |number| Some(ProxyId(Uuid::from_u128(number)));
        let enrolled = |last, number| Endpoint {
            proxy: proxy(number),
            ..endpoint(Provider::Registered, last, None)
        };
        let at_its_address = endpoint(Provider::Consul, 1, Some(8080));
        let by_its_key =
            Endpoint { proxy: proxy(2), ..endpoint(Provider::Consul, 200, Some(8080)) };
        let of_another = Endpoint { proxy: proxy(9), ..endpoint(Provider::Consul, 3, Some(8080)) };
        let known = [at_its_address, by_its_key, of_another];
        let proxies = [enrolled(1, 1), enrolled(2, 2), enrolled(3, 3)];
        let (used, conflicts) = combine(known.iter().chain(&proxies).cloned(), Some(8080));
        assert_eq!(used, [known.as_slice(), &proxies[2..]].concat());
        assert_eq!(conflicts, []);
    }

    #[test]
    fn machine_endpoint_replaces_that_of_its_enrolled_proxy() {
        let machine = |number| Some(Uuid::from_u128(number));
        let enrolled = |last, number| Endpoint {
            proxy: Some(ProxyId(Uuid::from_u128(u128::from(last)))),
            machine: number,
            ..endpoint(Provider::Registered, last, None)
        };
        let found = |last, number| Endpoint {
            machine: machine(number),
            ..endpoint(Provider::Azure, last, Some(8080))
        };
        // The first endpoint is on the machine of proxy 1, wherever that is. No proxy stated to run
        // on the second machine, and proxy 2 at its address stated no machine. Proxy 3 at the
        // address of the third is on another machine.
        let known = [found(200, 1), found(2, 2), found(3, 3)];
        let proxies = [
            enrolled(1, machine(1)),
            enrolled(2, None),
            enrolled(3, machine(9)),
            enrolled(4, machine(3)),
        ];
        let (used, conflicts) = combine(known.iter().chain(&proxies).cloned(), Some(8080));
        assert_eq!(used, [known.as_slice(), &proxies[2..3]].concat());
        assert_eq!(conflicts, []);
        // Proxy 5 stated to run on the first machine, so proxy 1 at its address is a different one.
        let (used, _) = combine([found(1, 1), enrolled(1, None), enrolled(5, machine(1))], None);
        assert_eq!(used, [found(1, 1), enrolled(1, None)]);
    }

    #[test]
    fn combined_endpoint_keeps_all_labels_but_tag_registered_ones() {
        let labels = |word: &str| Labels::from_iter([("role", word)]);
        let by = |provider, role| Endpoint { labels: labels(role), ..endpoint(provider, 1, None) };
        let tagged = Endpoint { selected_by_tag: true, ..by(Provider::Consul, "thief") };
        let found = [by(Provider::Consul, "web"), by(Provider::Azure, "batch"), tagged];
        let (used, conflicts) = combine(found, None);
        assert_eq!((used.len(), conflicts.len()), (1, 2));
        assert_eq!(used[0].labels, labels("web"));
        assert_eq!(*used[0].other_labels, [(Provider::Azure, labels("batch"))]);
    }
}
