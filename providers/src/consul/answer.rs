//! Conversion of Consul's answers into endpoints. Pure.
//!
//! Each entry is read on its own: an unusable one becomes a [`Problem`], and the last known
//! endpoint of the instance stays. Unknown fields are ignored, because each version of Consul adds
//! some.

use std::net::IpAddr;
use std::sync::Arc;

use ironmesh_catalog::{Endpoint, Health, Labels, Locality, Provider, reserved_ports};
use serde_json::Value;

use super::error::RequestError;
use super::options::LocalityKeys;
use crate::Problem;

mod distinct;
mod wire;

pub(super) use distinct::distinct;
use wire::{Entry, Node, Service};

/// The meta key that holds the id of the instance's proxy.
const PROXY: &str = "ironmesh-proxy";
/// Meta keys and tags with this prefix are for the mesh, and are no labels.
const RESERVED: &str = "ironmesh-";
/// The largest number of problems of one answer.
const MAX_PROBLEMS: usize = 20;

/// The context in which entries are read.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    /// The name of the tagged address to use.
    pub(super) tagged_address: Option<&'a str>,
    pub(super) locality: &'a LocalityKeys,
    /// The last known endpoints.
    pub(super) before: &'a [Endpoint],
}

/// Reads an answer of `/v1/health/service/…`. It fails only if the answer is not a list.
pub(super) fn endpoints(
    body: &[u8],
    reading: &Reading<'_>,
) -> Result<(Vec<Endpoint>, Vec<Problem>), RequestError> {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    // Nearly always all entries are valid, and one pass is enough.
    if let Ok(entries) = serde_json::from_slice::<Vec<Entry>>(body) {
        for entry in entries {
            let name = entry.instance();
            take(Some(entry), &name, reading, &mut found, &mut problems);
        }
    } else {
        let malformed = |error: serde_json::Error| RequestError::Malformed(error.to_string());
        for (n, value) in
            serde_json::from_slice::<Vec<Value>>(body).map_err(malformed)?.into_iter().enumerate()
        {
            let name = wire::instance_of(&value).unwrap_or_else(|| format!("entry {n}"));
            match serde_json::from_value(value) {
                Ok(entry) => take(Some(entry), &name, reading, &mut found, &mut problems),
                Err(error) => {
                    let reason = format!("Consul's entry cannot be read: {error}");
                    problems.push(Problem { instance: name.clone(), reason });
                    take(None, &name, reading, &mut found, &mut problems);
                }
            }
        }
    }
    let endpoints = distinct(found, &mut problems);
    problems.truncate(MAX_PROBLEMS);
    Ok((endpoints, problems))
}

/// Adds the endpoint of an entry, or the last known one if the entry is unusable.
fn take(
    entry: Option<Entry>,
    name: &str,
    reading: &Reading<'_>,
    found: &mut Vec<Endpoint>,
    problems: &mut Vec<Problem>,
) {
    let read = entry.and_then(|entry| match endpoint(&entry, name, reading) {
        Ok(endpoint) => Some(endpoint),
        Err(reason) => {
            problems.push(Problem { instance: name.to_owned(), reason });
            None
        }
    });
    let before = || reading.before.iter().find(|known| known.instance.as_deref() == Some(name));
    found.extend(read.or_else(|| before().cloned()));
}

fn endpoint(entry: &Entry, name: &str, reading: &Reading<'_>) -> Result<Endpoint, String> {
    let (address, port) = address(entry, reading.tagged_address)?;
    let proxy = match entry.service.meta.as_ref().and_then(|meta| meta.get(PROXY)) {
        None => None,
        Some(key) => Some(key.parse().map_err(|_| {
            format!("its meta `{PROXY}` is `{key}`, which is no UUID; `ironmesh proxy list` shows those of proxies")
        })?),
    };
    let (health, weight) = health(entry);
    Ok(Endpoint {
        port: Some(port),
        weight,
        proxy,
        labels: labels(&entry.service),
        health,
        probed: is_probed(entry),
        locality: locality(&entry.service, &entry.node, reading.locality),
        instance: Some(name.into()),
        ..Endpoint::new(Provider::Consul, address)
    })
}

/// Returns the tagged address if the instance has it, otherwise the address of the instance,
/// otherwise that of its node.
fn address(entry: &Entry, tagged: Option<&str>) -> Result<(IpAddr, u16), String> {
    let Entry { node, service, .. } = entry;
    let chosen = tagged.and_then(|name| service.tagged_addresses.as_ref()?.get(name));
    let of_node = tagged.and_then(|name| node.tagged_addresses.as_ref()?.get(name));
    let own = service.address.as_deref().filter(|address| !address.is_empty());
    let (address, port) = match (chosen, own) {
        (Some(chosen), _) => (chosen.address.as_str(), chosen.port),
        (None, Some(own)) => (own, None),
        (None, None) => (of_node.unwrap_or(&node.address).as_str(), None),
    };
    let port = port.filter(|port| *port != 0).or(service.port).unwrap_or(0);
    let parsed: IpAddr = address.parse().map_err(|_| {
        format!("its address `{address}` is no IP address, and names are not looked up; register it with one")
    })?;
    // An IPv4-mapped IPv6 address is the same host as the IPv4 address.
    let address = parsed.to_canonical();
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!(
            "its address `{address}` is not that of one machine; register it with the address where it is reached"
        ));
    }
    match u16::try_from(port) {
        // Its proxy would connect to itself, and callers of the mesh to its admin interface.
        Ok(port) if reserved_ports::PROXY_PORTS.contains(&port) => Err(format!(
            "its port {port} is one of the proxy's own on each machine; let it listen on another"
        )),
        Ok(port) if port != 0 => Ok((address, port)),
        _ => Err(format!("its port is {port}; register it with the port where it listens")),
    }
}

/// Returns the health and weight of an instance: the worst of its own checks and those of its node.
/// Maintenance is a critical check of its own, which announces that the instance leaves.
fn health(entry: &Entry) -> (Health, u32) {
    let checks = entry.checks.as_deref().unwrap_or_default();
    let is = |status: &'static str| move |check: &&wire::Check| check.status == status;
    let is_maintenance = |check: &wire::Check| {
        check.id == "_node_maintenance" || check.id.starts_with("_service_maintenance:")
    };
    let weights = entry.service.weights.as_ref();
    let weight =
        |weight: Option<i64>| u32::try_from(weight.unwrap_or(1).max(1)).unwrap_or(u32::MAX);
    let passing = weight(weights.and_then(|weights| weights.passing));
    let warning = weight(weights.and_then(|weights| weights.warning));
    let critical = |check: &&wire::Check| !is("passing")(check) && !is("warning")(check);
    if checks.iter().any(|check| critical(&check) && is_maintenance(check)) {
        (Health::Draining, passing)
    } else if checks.iter().any(|check| critical(&check)) {
        (Health::Unhealthy, passing)
    } else if checks.iter().any(|check| is("warning")(&check)) {
        (Health::Healthy, warning)
    } else {
        (Health::Healthy, passing)
    }
}

/// Whether a check probes the instance itself. Consul's own check of the node covers the agent, and
/// not the application.
fn is_probed(entry: &Entry) -> bool {
    let is_own = |check: &wire::Check| check.id == "serfHealth" || check.id == "_node_maintenance";
    entry.checks.iter().flatten().any(|check| !is_own(check))
}

/// Returns the labels: each meta entry and each tag. Meta has precedence.
fn labels(service: &Service) -> Labels {
    let tags =
        service.tags.iter().flatten().map(|tag| tag.split_once('=').unwrap_or((tag, "true")));
    let meta = service.meta.iter().flatten().map(|(name, word)| (&**name, &**word));
    // Of equal names, the last wins.
    tags.chain(meta).filter(|(name, _)| !name.starts_with(RESERVED)).collect()
}

/// Returns the locality that Consul itself has (newer versions), otherwise that of the node's meta.
fn locality(service: &Service, node: &Node, keys: &LocalityKeys) -> Locality {
    let meta = |key: &Arc<str>| -> Arc<str> {
        let word = node.meta.as_ref().and_then(|meta| meta.get(&**key));
        word.map_or_else(Arc::default, |word| word.as_str().into())
    };
    let sub_zone = meta(&keys.sub_zone);
    match service.locality.as_ref().or(node.locality.as_ref()) {
        Some(own) => Locality {
            region: own.region.as_str().into(),
            zone: own.zone.as_str().into(),
            sub_zone,
        },
        None => Locality { region: meta(&keys.region), zone: meta(&keys.zone), sub_zone },
    }
}

#[cfg(test)]
mod tests;
