//! `[[service]]`: a logical name with ports.

pub(super) mod external;
mod health;
mod ports;
mod subsets;
mod upstreams;

use std::ops::RangeInclusive;
use std::time::Duration;

use ironmesh_catalog::{
    EndpointSource, EscapedSlashes, Service, ServiceAccount, ServiceName, Visibility,
};

use super::endpoints;
use super::part::{Id, Part};
use crate::duration;
use crate::mode;
use crate::table::{FindingReported, Table, Value};

/// The least timeout: with a shorter one, callers would mostly reconnect.
const CONNECTION_DURATION: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600);

/// Reads one service, and its subsets, into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let account = table.optional("service_account", Value::name);
    let ports = table.optional("ports", ports::read).map(Option::unwrap_or_default);
    let mode = table.optional("mode", mode::read);
    let visibility =
        table.optional("visibility", |value| value.word("visibility", &Visibility::ALL));
    let escaped_slashes = table
        .optional("escaped_slashes", |value| value.word("escaped_slashes", &EscapedSlashes::ALL));
    let known_ports = ports.as_deref().ok();
    let name = id.as_ref().ok().map(|id| &id.name);
    let endpoints = table.optional("endpoints", |value| endpoints::read(value, name, known_ports));
    let external = external::read(&mut table, &endpoints, known_ports);
    let namespace = id.as_ref().ok().map(|id| &id.namespace);
    let is_external = matches!(external, Ok(Some(_)));
    let drained = table.optional("state", |value| {
        let drained = value.word("state", &Service::STATES)?;
        if drained && is_external { Err(external::reject_drained(value)) } else { Ok(drained) }
    });
    let max_connection_duration = table.optional("max_connection_duration", |value| {
        let duration = duration::read(value, &CONNECTION_DURATION)?;
        if is_external { Err(external::without_sidecar(value)) } else { Ok(duration) }
    });
    let health = table.optional("health", |value| {
        let health = health::read(value, known_ports)?;
        if is_external { Err(health::reject_health(value)) } else { Ok(health) }
    });
    let subsets = table.optional("subsets", |value| {
        let subsets = subsets::read(value, namespace, part);
        if is_external { Err(subsets::reject_subsets(value)) } else { Ok(subsets) }
    });
    let mut references = Vec::new();
    let upstreams = table.optional("upstreams", |value| {
        let upstreams = upstreams::read(value, namespace, known_ports, &mut references)?;
        if is_external { Err(external::without_sidecar(value)) } else { Ok(upstreams) }
    });
    part.references.append(&mut references);
    if let Ok(id) = id {
        let account = account.map(|account| {
            let account = account.unwrap_or_else(|| id.name.clone());
            ServiceAccount::new(id.namespace.clone(), account)
        });
        match &account {
            Ok(account) => {
                part.accounts.insert(account.clone());
            }
            Err(FindingReported) => {
                part.may_be_defined.insert(id.name.to_string());
            }
        }
        let subsets = subsets.ok().flatten().unwrap_or_default();
        let name = |id: &Id| ServiceName::new(id.namespace.clone(), id.name.clone());
        let read = || {
            let mut ports = ports?;
            ports.sort_by_key(|port| port.number);
            let external = external?;
            let otherwise = match external {
                Some(_) => EndpointSource::Hostname,
                None => EndpointSource::registered(),
            };
            Ok(Service {
                name: name(&id),
                account: account?,
                ports,
                endpoints: endpoints?.unwrap_or(otherwise),
                mode: mode?,
                visibility: visibility?.unwrap_or_default(),
                escaped_slashes: escaped_slashes?.unwrap_or_default(),
                max_connection_duration: max_connection_duration?,
                health: health?,
                drained: drained?.unwrap_or(false),
                external,
                subsets: subsets.iter().map(|(id, _)| name(id)).collect(),
                upstreams: upstreams?.unwrap_or_default(),
                spot: id.spot.clone(),
            })
        };
        let service = read();
        for (subset, labels) in subsets {
            let one = service.as_ref().map_err(|reported| *reported).and_then(|whole| {
                let endpoints = EndpointSource::Subset { of: whole.name.clone(), labels: labels? };
                let (name, spot) = (name(&subset), subset.spot.clone());
                // No proxy is enrolled for a subset.
                let (subsets, upstreams) = (Vec::new(), Vec::new());
                Ok(Service { name, endpoints, subsets, upstreams, spot, ..whole.clone() })
            });
            part.services.push(&subset, one);
        }
        part.services.push(&id, service);
    }
    table.finish();
}
