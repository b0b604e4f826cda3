//! What differs between two looks at endpoints, in lines: pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ironmesh_admin::{EndpointList, EndpointRow};
use ironmesh_catalog::{Provider, ProxyId, ServiceName};

use super::table::{doubt, health, place, standing, wrong_with};

/// An endpoint, by what it is known again by; one that is a proxy that joined, by that proxy, since several
/// may be on one machine.
type Key<'a> = (&'a ServiceName, IpAddr, Option<u16>, Option<ProxyId>);

/// What is told of an endpoint: provider, health, locality, weight, and how it stands.
type Facts = [String; 5];

/// What has come, gone and changed: of providers first, then of services, then of endpoints.
pub(super) fn changes(before: &EndpointList, after: &EndpointList) -> Vec<String> {
    let mut lines =
        differences(&providers(before), &providers(after), |provider, old, new| match (old, new) {
            (_, Some(wrong)) => wrong.clone(),
            (_, None) => format!("{provider} answers"),
        });
    lines.extend(differences(&doubts(before), &doubts(after), |(service, provider), _, new| {
        match new {
            Some(doubt) => format!("{service} {provider} {doubt}"),
            None => format!("{service} {provider} is believed"),
        }
    }));
    lines.extend(differences(
        &rows(before),
        &rows(after),
        |(service, address, port, _), old, new| {
            let place = place(*address, *port);
            match (old, new) {
                (Some(old), Some(new)) => format!("{service} {place} {}", difference(old, new)),
                (None, Some(new)) => format!("{service} {place} new: {}", new.join(", ")),
                (_, None) => format!("{service} {place} gone"),
            }
        },
    ));
    lines
}

/// A line for each key whose value is not the same.
fn differences<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    line: impl Fn(&K, Option<&V>, Option<&V>) -> String,
) -> Vec<String> {
    let gone = before.iter().filter(|(key, _)| !after.contains_key(key));
    let gone = gone.map(|(key, old)| line(key, Some(old), None));
    let news = after.iter().filter(|(key, new)| before.get(key) != Some(new));
    gone.chain(news.map(|(key, new)| line(key, before.get(key), Some(new)))).collect()
}

/// What is wrong with providers.
fn providers(list: &EndpointList) -> BTreeMap<Provider, String> {
    list.providers.iter().filter_map(|one| Some((one.provider, wrong_with(one)?))).collect()
}

/// What is doubted of services.
fn doubts(list: &EndpointList) -> BTreeMap<(&ServiceName, Provider), String> {
    let sources = list
        .services
        .iter()
        .flat_map(|service| service.sources.iter().map(move |source| (&service.service, source)));
    let doubted = sources.filter_map(|(service, source)| {
        Some(((service, source.provider), doubt(source.held.as_ref()?)))
    });
    doubted.collect()
}

/// What is told of each endpoint.
fn rows(list: &EndpointList) -> BTreeMap<Key<'_>, Facts> {
    let rows = list
        .services
        .iter()
        .flat_map(|service| service.endpoints.iter().map(move |row| (&service.service, row)));
    let key = |service, row: &EndpointRow| {
        let proxy = row.proxy.filter(|_| row.provider == Provider::Registered);
        (service, row.address, row.port, proxy)
    };
    rows.map(|(service, row)| (key(service, row), facts(row))).collect()
}

fn facts(row: &EndpointRow) -> Facts {
    let locality = match row.locality.to_string() {
        empty if empty.is_empty() => "no locality".to_owned(),
        known => known,
    };
    let weight = format!("weight {}", row.weight);
    [row.provider.to_string(), health(row), locality, weight, standing(row)]
}

/// Those of the facts that are others than before.
fn difference(old: &Facts, new: &Facts) -> String {
    let others = old.iter().zip(new).filter(|(old, new)| old != new);
    let others: Vec<_> = others.map(|(old, new)| format!("{old} → {new}")).collect();
    others.join(", ")
}

#[cfg(test)]
mod tests;
