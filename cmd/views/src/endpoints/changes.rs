//! The differences between two endpoint lists, as lines. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ironmesh_api::{EndpointList, EndpointRow};
use ironmesh_catalog::{Provider, ProxyId, ServiceName};

use super::table::{endpoint_status, held_removal, provider_problem, socket_text};

/// The identity of an endpoint between two lists. A registered endpoint includes its proxy, since several proxies
/// may run on one machine.
type EndpointKey<'a> = (&'a ServiceName, IpAddr, Option<u16>, Option<ProxyId>);

/// The compared texts of an endpoint: provider, health, locality, weight and status.
type Columns = [String; 5];

/// The lines for all differences: first of providers, then of held-back removals, then of endpoints.
pub fn changes(before: &EndpointList, after: &EndpointList) -> Vec<String> {
    let mut lines =
        differences(&providers(before), &providers(after), |provider, old, new| match (old, new) {
            (_, Some(problem)) => problem.clone(),
            (_, None) => format!("{provider} answers"),
        });
    lines.extend(differences(
        &held(before),
        &held(after),
        |(service, provider), _, new| match new {
            Some(removal) => format!("{service} {provider} {removal}"),
            None => format!("{service} {provider} holds no removal back"),
        },
    ));
    lines.extend(differences(
        &rows(before),
        &rows(after),
        |(service, address, port, _), old, new| {
            let socket = socket_text(*address, *port);
            match (old, new) {
                (Some(old), Some(new)) => format!("{service} {socket} {}", difference(old, new)),
                (None, Some(new)) => format!("{service} {socket} new: {}", new.join(", ")),
                (_, None) => format!("{service} {socket} gone"),
            }
        },
    ));
    lines
}

/// A line for each key whose value differs.
fn differences<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    line: impl Fn(&K, Option<&V>, Option<&V>) -> String,
) -> Vec<String> {
    let gone = before.iter().filter(|(key, _)| !after.contains_key(key));
    let gone = gone.map(|(key, old)| line(key, Some(old), None));
    let changed = after.iter().filter(|(key, new)| before.get(key) != Some(new));
    gone.chain(changed.map(|(key, new)| line(key, before.get(key), Some(new)))).collect()
}

/// The problem of each provider that has one.
fn providers(list: &EndpointList) -> BTreeMap<Provider, String> {
    list.providers.iter().filter_map(|one| Some((one.provider, provider_problem(one)?))).collect()
}

/// The held-back removals, by service and provider.
fn held(list: &EndpointList) -> BTreeMap<(&ServiceName, Provider), String> {
    let sources = list
        .services
        .iter()
        .flat_map(|service| service.sources.iter().map(move |source| (&service.service, source)));
    let held = sources.filter_map(|(service, source)| {
        Some(((service, source.provider), held_removal(source.held.as_ref()?)))
    });
    held.collect()
}

/// The columns of each endpoint.
fn rows(list: &EndpointList) -> BTreeMap<EndpointKey<'_>, Columns> {
    let rows = list
        .services
        .iter()
        .flat_map(|service| service.endpoints.iter().map(move |row| (&service.service, row)));
    let key = |service, row: &EndpointRow| {
        let proxy = row.proxy.filter(|_| row.provider == Provider::Registered);
        (service, row.address, row.port, proxy)
    };
    rows.map(|(service, row)| (key(service, row), columns(row))).collect()
}

fn columns(row: &EndpointRow) -> Columns {
    let locality = match row.locality.to_string() {
        empty if empty.is_empty() => "no locality".to_owned(),
        known => known,
    };
    let weight = format!("weight {}", row.weight);
    [row.provider.to_string(), row.health_text(), locality, weight, endpoint_status(row)]
}

/// The changed columns.
fn difference(old: &Columns, new: &Columns) -> String {
    let changed = old.iter().zip(new).filter(|(old, new)| old != new);
    let changed: Vec<_> = changed.map(|(old, new)| format!("{old} → {new}")).collect();
    changed.join(", ")
}

#[cfg(test)]
mod tests;
