//! Removes duplicate endpoints: an address and port that is reported twice would be one host with
//! the weight of the first.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ironmesh_catalog::Endpoint;

use crate::Problem;

/// Keeps one endpoint of each instance, and of each address and port: one that did not register by
/// a tag, otherwise the healthiest, otherwise the first by instance. The result is sorted by
/// address and port; each removed endpoint is a problem.
pub(in crate::consul) fn distinct(
    mut found: Vec<Endpoint>,
    problems: &mut Vec<Problem>,
) -> Vec<Endpoint> {
    // A tag cannot displace an endpoint that policy queries. Then the best comes first; the rest of
    // the order makes the result deterministic.
    found.sort_by(|one, other| {
        let order = |endpoint: &Endpoint| {
            let Endpoint { selected_by_tag, health, instance, address, port, .. } = endpoint;
            (*selected_by_tag, *health, instance.clone(), *address, *port)
        };
        order(one).cmp(&order(other))
    });
    let mut kept: Vec<Endpoint> = Vec::new();
    let mut by_instance: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let mut by_place: BTreeMap<(IpAddr, Option<u16>), usize> = BTreeMap::new();
    for endpoint in found {
        let place = (endpoint.address, endpoint.port);
        let twin = endpoint.instance.as_ref().and_then(|instance| by_instance.get(instance));
        let reason = if let Some(twin) = twin.and_then(|n| kept.get(*n)) {
            // The same instance in the answers to two queries is no problem.
            let at = place_of(twin);
            (*twin != endpoint).then(|| {
                format!(
                    "Consul reports it twice: at {at}, which is used, and at {}",
                    place_of(&endpoint)
                )
            })
        } else if let Some(other) = by_place.get(&place).and_then(|n| kept.get(*n)) {
            let other = other.instance.as_deref().unwrap_or_default();
            Some(format!(
                "it has the same address and port {} as `{other}`, which is used",
                place_of(&endpoint)
            ))
        } else {
            by_place.insert(place, kept.len());
            by_instance.extend(endpoint.instance.clone().map(|instance| (instance, kept.len())));
            kept.push(endpoint);
            continue;
        };
        let instance = endpoint.instance.as_deref().unwrap_or_default().to_owned();
        problems.extend(reason.map(|reason| Problem { instance, reason }));
    }
    kept.sort_by_key(|endpoint| (endpoint.address, endpoint.port));
    kept
}

fn place_of(endpoint: &Endpoint) -> String {
    match endpoint.port {
        Some(port) => SocketAddr::new(endpoint.address, port).to_string(),
        None => endpoint.address.to_string(),
    }
}
