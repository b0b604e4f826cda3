//! Differences of HTTP routes, retries and ingress backends.

use std::collections::BTreeMap;

use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::policy::{HttpRoute, IngressBackend, Level, Reach, Retry, SplitMatch};
use ironmesh_catalog::specification::MeshSpecification;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Change;

/// An added, removed or changed HTTP route, retry or ingress backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreatmentChange {
    /// The object, with its latest location.
    pub by: Cited,
    /// Whether it is added, removed or changed.
    pub change: Change,
    /// Its settings, in words; for a changed object, the removed and the added ones.
    pub details: Vec<String>,
}

pub(super) fn changes(
    before: &MeshSpecification,
    after: &MeshSpecification,
) -> Vec<TreatmentChange> {
    let (old, new) = (objects(before), objects(after));
    let mut changes = Vec::new();
    for (name, (by, details)) in &new {
        let (change, details) = match old.get(name) {
            None => (Change::Added, details.clone()),
            Some((_, known)) if known == details => continue,
            Some((_, known)) => (Change::Changed, differing(known, details)),
        };
        changes.push(TreatmentChange { by: by.clone(), change, details });
    }
    let gone = old.into_iter().filter(|(name, _)| !new.contains_key(name));
    changes.extend(gone.map(|(_, (by, details))| TreatmentChange {
        by,
        change: Change::Removed,
        details,
    }));
    changes.sort_by(|one, other| one.by.object.cmp(&other.by.object));
    changes
}

/// All objects by their names, with their settings in words.
fn objects(specification: &MeshSpecification) -> BTreeMap<String, (Cited, Vec<String>)> {
    let routes = specification.http_routes.values();
    let routes = routes.map(|route| (Cited::http_route(route), route_details(route)));
    let retries = specification.retries.values();
    let retries = retries.map(|retry| (Cited::retry(retry), retry_details(retry)));
    let ingress = specification.ingress_backends.values();
    let ingress = ingress.map(|policy| (Cited::ingress_backend(policy), ingress_details(policy)));
    let all = routes.chain(retries).chain(ingress);
    all.map(|(by, details)| (by.object.clone(), (by, details))).collect()
}

fn ingress_details(policy: &IngressBackend) -> Vec<String> {
    let IngressBackend { backends, sources, matches, .. } = policy;
    let backends = backends.iter().map(|one| format!("ingress to {}: {}", one.port, one.entry));
    let sources = sources.iter().map(|source| format!("from outside of the mesh: {source}"));
    let matches = matches.iter().map(|one| format!("requests that are {}", named(one)));
    backends.chain(sources).chain(matches).collect()
}

fn route_details(route: &HttpRoute) -> Vec<String> {
    let HttpRoute { reach, sources, settings, .. } = route;
    let mut details = vec![match reach {
        Reach::All(Level::Mesh) => "calls of all services of the mesh".to_owned(),
        Reach::All(Level::Namespace(namespace)) => {
            format!("calls of all services of namespace {namespace}")
        }
        Reach::All(Level::Service(service)) => format!("calls of {service}"),
        Reach::Requests(service, matches) => {
            let matches: Vec<_> = matches.iter().map(named).collect();
            format!("calls of {service} that are {}", matches.join(" or "))
        }
    }];
    if let Some(sources) = sources {
        let sources: Vec<_> = sources.iter().map(ToString::to_string).collect();
        details.push(format!("by {}", sources.join(", ")));
    }
    details
        .extend(settings.descriptions().into_iter().map(|(key, words)| format!("{key}: {words}")));
    details
}

fn named(named: &SplitMatch) -> String {
    let SplitMatch { group, matches, .. } = named;
    match matches {
        None => format!("of group `{group}`"),
        Some(matches) => {
            let names: Vec<_> = matches.iter().map(|name| format!("`{name}`")).collect();
            format!("{} of group `{group}`", names.join(" or "))
        }
    }
}

fn retry_details(retry: &Retry) -> Vec<String> {
    let Retry { source, destinations, retries, .. } = retry;
    let services: Vec<_> = destinations.iter().map(|one| one.service.to_string()).collect();
    let services = services.join(", ");
    vec![format!("calls of {services}"), format!("by {source}"), format!("retries: {retries}")]
}

/// The removed settings, then the added ones.
fn differing(old: &[String], new: &[String]) -> Vec<String> {
    let gone = old.iter().filter(|one| !new.contains(one)).map(|one| format!("no more {one}"));
    gone.chain(new.iter().filter(|one| !old.contains(one)).cloned()).collect()
}
