//! Differences of services and of their effective settings.

use std::collections::BTreeSet;

use ironmesh_catalog::endpoint_source::{EndpointSource, StaticEndpoint};
use ironmesh_catalog::finding::Spot;
use ironmesh_catalog::name::ServiceName;
use ironmesh_catalog::service::{EscapedSlashes, External, Port, Resolution, Service, Visibility};
use ironmesh_catalog::snapshot::Snapshot;
use ironmesh_catalog::upstream_settings::{EffectiveSetting, UpstreamSettings};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Change;

/// An added, removed or changed service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceChange {
    /// Its name.
    pub service: ServiceName,
    /// Whether it is added, removed or changed.
    pub change: Change,
    /// The changes, in words.
    pub details: Vec<String>,
    /// Where policy defines it, or defined it if it is removed.
    pub spot: Spot,
}

pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<ServiceChange> {
    let (old, new) = (&before.specification.services, &after.specification.services);
    let [settings_before, settings_after] =
        [before, after].map(|snapshot| UpstreamSettings::of(&snapshot.specification));
    let mut changes = Vec::new();
    // Compares every service: its mode can change without a change of its own text.
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let (change, service, details) = match (old.get(name), new.get(name)) {
            (None, None) => continue,
            (None, Some(service)) => {
                let mut outline = outline(service);
                outline.extend(setting_changes(&[], &settings_after.effective(service)));
                (Change::Added, service, outline)
            }
            (Some(service), None) => (Change::Removed, service, Vec::new()),
            (Some(old), Some(new)) => {
                let (mode, of_new) = (before.mode_of(old), after.mode_of(new));
                let mode = (mode != of_new).then(|| format!("mode {mode} → {of_new}"));
                let settings = setting_changes(
                    &settings_before.effective(old),
                    &settings_after.effective(new),
                );
                let details: Vec<_> =
                    mode.into_iter().chain(details(old, new)).chain(settings).collect();
                // Only the source location may differ.
                if details.is_empty() {
                    continue;
                }
                (Change::Changed, new, details)
            }
        };
        let (service, spot) = (service.name.clone(), service.spot.clone());
        changes.push(ServiceChange { service, change, details, spot });
    }
    changes
}

/// The description of a new service.
fn outline(service: &Service) -> Vec<String> {
    let mut outline = vec![format!("account {}", service.account)];
    outline.extend(service.ports.iter().map(port));
    outline.extend(service.mode.map(|mode| format!("mode {mode}")));
    if service.visibility != Visibility::default() {
        outline.push(service.visibility.to_string());
    }
    if service.escaped_slashes != EscapedSlashes::default() {
        outline.push(format!("escaped slashes: {}", service.escaped_slashes));
    }
    if service.max_connection_duration.is_some() {
        outline.push(format!("max connection duration: {}", max_duration(service)));
    }
    outline.extend(service.drained.then(|| "drained".to_owned()));
    outline
        .extend(service.external.as_ref().map(|external| format!("external: {}", place(external))));
    outline.extend(service.upstreams.iter().map(|upstream| format!("upstream {upstream}")));
    outline.extend(match &service.endpoints {
        EndpointSource::Subset { of, labels } => Some(format!("the part of {of} with {labels}")),
        _ => None,
    });
    outline
}

fn max_duration(service: &Service) -> String {
    service.max_connection_duration.map_or_else(|| "none".to_owned(), |time| format!("{time:?}"))
}

/// The differences, apart from the mode.
fn details(old: &Service, new: &Service) -> Vec<String> {
    let mut details = Vec::new();
    if old.account != new.account {
        details.push(format!("account {} → {}", old.account, new.account));
    }
    if old.visibility != new.visibility {
        details.push(format!("{} → {}", old.visibility, new.visibility));
    }
    if old.escaped_slashes != new.escaped_slashes {
        details.push(format!("escaped slashes: {} → {}", old.escaped_slashes, new.escaped_slashes));
    }
    if old.max_connection_duration != new.max_connection_duration {
        details.push(format!(
            "max connection duration: {} → {}",
            max_duration(old),
            max_duration(new)
        ));
    }
    if old.drained != new.drained {
        details.push(format!("state {} → {}", state(old), state(new)));
    }
    if old.external != new.external {
        let word = |external: &Option<External>| {
            external
                .as_ref()
                .map_or_else(|| "of the mesh".to_owned(), |one| format!("external: {}", place(one)))
        };
        details.push(format!("{} → {}", word(&old.external), word(&new.external)));
    }
    let numbers: BTreeSet<_> = old.ports.iter().chain(&new.ports).map(|port| port.number).collect();
    for number in numbers {
        match (old.port(number), new.port(number)) {
            (None, Some(new)) => details.push(format!("new {}", port(new))),
            (Some(old), None) => details.push(format!("no more {}", port(old))),
            (Some(old), Some(new)) if old != new => {
                details.push(format!("{} → {}", port(old), port(new)));
            }
            _ => {}
        }
    }
    details.extend(upstreams(old, new));
    if old.endpoints != new.endpoints {
        details.extend(endpoints(&old.endpoints, &new.endpoints));
    }
    details
}

/// The differences of the upstreams, by local port.
fn upstreams(old: &Service, new: &Service) -> Vec<String> {
    let of_port = |service: &Service, port: u16| {
        let found = service.upstreams.iter().find(|one| one.local_port == port);
        found.map(ToString::to_string)
    };
    let both = old.upstreams.iter().chain(&new.upstreams);
    let ports: BTreeSet<_> = both.map(|upstream| upstream.local_port).collect();
    let change = |port| match (of_port(old, port), of_port(new, port)) {
        (None, Some(new)) => Some(format!("new upstream {new}")),
        (Some(old), None) => Some(format!("no more upstream {old}")),
        (Some(old), Some(new)) if old != new => Some(format!("upstream {old} → {new}")),
        _ => None,
    };
    ports.into_iter().filter_map(change).collect()
}

/// The differences of the effective upstream traffic settings of a service.
fn setting_changes(old: &[EffectiveSetting], new: &[EffectiveSetting]) -> Vec<String> {
    let keys: BTreeSet<_> = old.iter().chain(new).map(|one| &one.key).collect();
    let change = |key: &String| {
        // Some settings have several values, such as those about localities.
        let of_key = |settings: &[EffectiveSetting]| -> Vec<EffectiveSetting> {
            settings.iter().filter(|one| one.key == *key).cloned().collect()
        };
        let (old, new) = (of_key(old), of_key(new));
        let value = |settings: &[EffectiveSetting]| match settings {
            [] => "not set".to_owned(),
            settings => settings.iter().map(|one| &*one.value).collect::<Vec<_>>().join("; "),
        };
        let (before, after) = (value(&old), value(&new));
        let by = &new.first().or_else(|| old.first())?.by;
        (before != after).then(|| format!("{key}: {before} → {after}, by {by}"))
    };
    keys.into_iter().filter_map(change).collect()
}

/// The word that policy uses.
fn state(service: &Service) -> &'static str {
    let known = Service::STATES.iter().find(|(_, drained)| *drained == service.drained);
    known.map_or("active", |(word, _)| word)
}

/// The location of an external service.
fn place(external: &External) -> String {
    let External { hostname, resolution } = external;
    match (hostname, resolution) {
        (Some(hostname), Resolution::Static) => format!("{hostname}, at a list of endpoints"),
        (None, _) => "a list of endpoints".to_owned(),
        (Some(hostname), Resolution::Dns) => format!("{hostname}, looked up"),
        (Some(hostname), Resolution::Passthrough) => format!("{hostname}, passed through"),
    }
}

fn port(port: &Port) -> String {
    let Port { name, number, protocol, target, allowed_targets } = port;
    let allowed = allowed_targets.iter().map(ToString::to_string);
    let targets: Vec<_> = [target.to_string()].into_iter().chain(allowed).collect();
    format!("port {number} ({name}, {protocol}, to {})", targets.join(" or "))
}

/// The differences of the endpoint sources; empty if only their source locations differ.
fn endpoints(old: &EndpointSource, new: &EndpointSource) -> Vec<String> {
    let (old, new) = (all(old), all(new));
    let gone = old.difference(&new).map(|one| format!("no more {one}"));
    gone.chain(new.difference(&old).map(|one| format!("new {one}"))).collect()
}

fn all(source: &EndpointSource) -> BTreeSet<String> {
    match source {
        EndpointSource::Providers(providers) => {
            let enrolled = "endpoints that are the enrolled proxies".to_owned();
            let queried = providers.queries().map(|query| format!("endpoints that are {query}"));
            let all = providers.registered.then_some(enrolled).into_iter().chain(queried);
            all.chain(providers.fixed.iter().map(listed)).collect()
        }
        EndpointSource::Hostname => ["endpoints that proxies look up".to_owned()].into(),
        EndpointSource::Subset { of, labels } => {
            [format!("endpoints that are those of {of} with {labels}")].into()
        }
    }
}

fn listed(one: &StaticEndpoint) -> String {
    let port = one.port.map(|port| format!(", port {port}")).unwrap_or_default();
    let words = format!("endpoint {}{port}, weight {}", one.address, one.weight);
    let words = if one.labels.is_empty() { words } else { format!("{words}, {}", one.labels) };
    if one.locality.is_empty() { words } else { format!("{words}, in {}", one.locality) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironmesh_catalog::cited::Cited;
    use ironmesh_catalog::finding::Spot;

    #[test]
    fn multi_value_setting_is_reported_if_any_value_differs() {
        let by = Cited {
            object: "upstream traffic setting `shop/near`".to_owned(),
            spot: Spot::new(&"p.toml".into(), "x", 0..1),
        };
        let of = |values: &[&str]| -> Vec<EffectiveSetting> {
            let setting = |value: &&str| EffectiveSetting {
                key: "locality.failover".to_owned(),
                value: (*value).to_owned(),
                by: by.clone(),
            };
            values.iter().map(setting).collect()
        };
        let (one, two) = (of(&["from eu to us"]), of(&["from eu to us", "from us to eu"]));
        assert_eq!(
            setting_changes(&one, &two),
            [format!("locality.failover: from eu to us → from eu to us; from us to eu, by {by}")]
        );
        assert_eq!(setting_changes(&two, &of(&["from eu to us", "from us to ap"])).len(), 1);
        assert!(setting_changes(&two, &two).is_empty());
        assert!(setting_changes(&two, &[])[0].contains("not set"));
    }
}
