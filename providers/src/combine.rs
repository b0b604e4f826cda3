//! Several providers of one service: all that they find is the service's, and where two speak of the same
//! endpoint the one that comes first in [`Provider`] is right.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{Endpoint, EndpointPlace, Provider};

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
    let mut taken: Vec<Endpoint> = Vec::new();
    let mut by_place: BTreeMap<EndpointPlace, usize> = BTreeMap::new();
    let mut conflicts = Vec::new();
    // Behind which proxies others have found something: those that they name, and those at addresses of
    // which they name none.
    let (mut proxies, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for endpoint in found {
        if endpoint.provider == Provider::Registered {
            let is_known = endpoint.proxy.is_some_and(|proxy| proxies.contains(&proxy));
            if !is_known && !addresses.contains(&endpoint.address) {
                taken.push(endpoint);
            }
            continue;
        }
        match endpoint.proxy {
            Some(proxy) => drop(proxies.insert(proxy)),
            None => drop(addresses.insert(endpoint.address)),
        }
        let place = (endpoint.address, endpoint.port.or(target));
        match by_place.get(&place).and_then(|index| taken.get(*index)) {
            None => {
                by_place.insert(place, taken.len());
                taken.push(endpoint);
            }
            Some(first) if first.provider == endpoint.provider => {}
            Some(first) => {
                if !agree(first, &endpoint) {
                    conflicts.push(Conflict { taken: first.clone(), ignored: endpoint });
                }
            }
        }
    }
    (taken, conflicts)
}

/// Whether both say the same of what they both speak of.
fn agree(one: &Endpoint, other: &Endpoint) -> bool {
    (one.weight, one.health, &one.labels) == (other.weight, other.health, &other.labels)
        && (one.proxy.is_none() || other.proxy.is_none() || one.proxy == other.proxy)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ironmesh_catalog::{Health, ProxyId};
    use uuid::Uuid;

    use super::*;

    fn endpoint(provider: Provider, last: u8, port: Option<u16>) -> Endpoint {
        Endpoint { port, ..Endpoint::new(provider, IpAddr::from([10, 0, 0, last])) }
    }

    #[test]
    fn the_first_provider_is_right_and_who_contradicts_it_is_shown() {
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
    fn a_proxy_that_joined_gives_way_to_what_a_provider_knows_of_it() {
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
}
