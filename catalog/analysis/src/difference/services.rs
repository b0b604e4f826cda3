//! Services that come, go or change.

use std::collections::BTreeSet;

use ironmesh_catalog::endpoint_source::{EndpointSource, Providers, StaticEndpoint};
use ironmesh_catalog::finding::Spot;
use ironmesh_catalog::name::ServiceName;
use ironmesh_catalog::service::{EscapedSlashes, External, Port, Resolution, Service, Visibility};
use ironmesh_catalog::snapshot::Snapshot;
use ironmesh_catalog::upstream_settings::{Said, UpstreamSettings};
use serde::{Deserialize, Serialize};

use super::Change;

/// A service comes, goes or changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceChange {
    /// Its name.
    pub service: ServiceName,
    /// What becomes of it.
    pub change: Change,
    /// What of it changes, in words.
    pub details: Vec<String>,
    /// Where it is written; where it was, if it goes.
    pub spot: Spot,
}

pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<ServiceChange> {
    let (old, new) = (&before.specification.services, &after.specification.services);
    let [settings_before, settings_after] =
        [before, after].map(|moment| UpstreamSettings::of(&moment.specification));
    let mut changes = Vec::new();
    // All of them: the mode of one may be another though not a word of it is.
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let (change, service, details) = match (old.get(name), new.get(name)) {
            (None, None) => continue,
            (None, Some(service)) => {
                let mut outline = outline(service);
                outline.extend(said(&[], &settings_after.said(service)));
                (Change::Added, service, outline)
            }
            (Some(service), None) => (Change::Removed, service, Vec::new()),
            (Some(old), Some(new)) => {
                let (mode, of_new) = (before.mode_of(old), after.mode_of(new));
                let mode = (mode != of_new).then(|| format!("mode {mode} → {of_new}"));
                let said = said(&settings_before.said(old), &settings_after.said(new));
                let details: Vec<_> =
                    mode.into_iter().chain(details(old, new)).chain(said).collect();
                // What differs may be where it is written alone.
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

/// What a new service is.
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
        outline.push(format!("max connection duration: {}", longest(service)));
    }
    outline.extend(service.drained.then(|| "drained".to_owned()));
    outline
        .extend(service.external.as_ref().map(|external| format!("external: {}", place(external))));
    outline.extend(match &service.endpoints {
        EndpointSource::Subset { of, labels } => Some(format!("the part of {of} with {labels}")),
        _ => None,
    });
    outline
}

fn longest(service: &Service) -> String {
    service.max_connection_duration.map_or_else(|| "none".to_owned(), |time| format!("{time:?}"))
}

/// What differs, but for the mode.
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
        details.push(format!("max connection duration: {} → {}", longest(old), longest(new)));
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
    if old.endpoints != new.endpoints {
        details.extend(endpoints(&old.endpoints, &new.endpoints));
    }
    details
}

/// What upstream traffic settings say otherwise of a service.
fn said(old: &[Said], new: &[Said]) -> Vec<String> {
    let keys: BTreeSet<_> = old.iter().chain(new).map(|one| &one.key).collect();
    let change = |key: &String| {
        // Of some settings several things are said, as of places.
        let of_key = |said: &[Said]| -> Vec<Said> {
            said.iter().filter(|one| one.key == *key).cloned().collect()
        };
        let (old, new) = (of_key(old), of_key(new));
        let value = |said: &[Said]| match said {
            [] => "not set".to_owned(),
            said => said.iter().map(|one| &*one.value).collect::<Vec<_>>().join("; "),
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

/// Where an external service is.
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

/// What differs of where endpoints are; nothing where that is only where they are written.
fn endpoints(old: &EndpointSource, new: &EndpointSource) -> Vec<String> {
    let (old, new) = (all(old), all(new));
    let gone = old.difference(&new).map(|one| format!("no more {one}"));
    gone.chain(new.difference(&old).map(|one| format!("new {one}"))).collect()
}

fn all(source: &EndpointSource) -> BTreeSet<String> {
    match source {
        EndpointSource::Providers(Providers { registered, fixed, consul, azure }) => {
            let joined = "endpoints that are the enrolled proxies".to_owned();
            let asked = consul.iter().map(|query| format!("endpoints that are {query}"));
            let in_azure = azure.iter().map(|query| format!("endpoints that are {query}"));
            let all = registered.then_some(joined).into_iter().chain(asked).chain(in_azure);
            all.chain(fixed.iter().map(listed)).collect()
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
        let of = |values: &[&str]| -> Vec<Said> {
            let said = |value: &&str| Said {
                key: "locality.failover".to_owned(),
                value: (*value).to_owned(),
                by: by.clone(),
            };
            values.iter().map(said).collect()
        };
        let (one, two) = (of(&["from eu to us"]), of(&["from eu to us", "from us to eu"]));
        assert_eq!(
            said(&one, &two),
            [format!("locality.failover: from eu to us → from eu to us; from us to eu, by {by}")]
        );
        assert_eq!(said(&two, &of(&["from eu to us", "from us to ap"])).len(), 1);
        assert!(said(&two, &two).is_empty());
        assert!(said(&two, &[])[0].contains("not set"));
    }
}
