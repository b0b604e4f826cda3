//! HTTP routes and retries across documents: no two configure the same setting of the same calls, each has an
//! effect, and sidecars get a bounded number of routes.

mod idle;
mod mirrors;
mod routes;

use std::collections::BTreeMap;

use ironmesh_catalog::{
    Finding, HttpRoute, Level, Reach, Retry, ServiceAccount, ServiceName, Spot,
};

use super::draft::Draft;
use crate::codes;

/// Reports the HTTP routes and retries of `draft` that conflict with each other, or with their services.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut findings = Vec::new();
    duplicate_settings(draft, &mut findings);
    duplicate_retries(draft, &mut findings);
    routes::check(draft, &mut findings);
    idle::check(draft, &mut findings);
    mirrors::check(draft, &mut findings);
    draft.findings.extend(findings);
}

/// The HTTP routes that have configured one setting of one level so far.
#[derive(Default)]
struct SettingOwners<'a> {
    any_caller: Option<&'a HttpRoute>,
    by_caller: BTreeMap<&'a ServiceAccount, &'a HttpRoute>,
}

impl<'a> SettingOwners<'a> {
    /// Records the setting of `route`, and returns an earlier route with that setting for the same calls.
    fn claim(&mut self, route: &'a HttpRoute) -> Option<&'a HttpRoute> {
        let before = match &route.sources {
            None => self.any_caller.or_else(|| self.by_caller.values().next().copied()),
            Some(sources) => {
                let known = sources.iter().find_map(|source| self.by_caller.get(source).copied());
                self.any_caller.or(known)
            }
        };
        match &route.sources {
            None => self.any_caller = self.any_caller.or(Some(route)),
            Some(sources) => {
                for source in sources {
                    self.by_caller.entry(source).or_insert(route);
                }
            }
        }
        before
    }
}

/// Reports two routes of one level with the same setting. (Routes of some requests may overlap; there, the
/// first by name wins.)
fn duplicate_settings(draft: &Draft<'_>, findings: &mut Vec<Finding>) {
    let mut owners: BTreeMap<(&Level, &str), SettingOwners<'_>> = BTreeMap::new();
    for route in draft.http_routes.iter() {
        let Reach::All(level) = &route.reach else { continue };
        let first = |(key, _): (&'static str, String)| {
            let before = owners.entry((level, key)).or_default().claim(route)?;
            Some((key, before))
        };
        let twice: Vec<_> = route.settings.descriptions().into_iter().filter_map(first).collect();
        for (key, before) in twice {
            let message = format!("two HTTP routes set `{key}` for the same calls of {level}");
            findings.push(duplicate(&message, &route.spot, &before.spot));
        }
    }
}

fn duplicate_retries(draft: &Draft<'_>, findings: &mut Vec<Finding>) {
    let mut known: BTreeMap<(&ServiceAccount, &ServiceName), &Retry> = BTreeMap::new();
    for retry in draft.retries.iter() {
        for destination in &retry.destinations {
            let (source, service) = (&retry.source, &destination.service);
            if let Some(first) = known.get(&(source, service)) {
                let message = format!("two retries apply to calls of `{source}` to `{service}`");
                findings.push(duplicate(&message, &destination.spot, &first.spot));
            } else {
                known.insert((source, service), retry);
            }
        }
    }
}

fn duplicate(message: &str, second: &Spot, first: &Spot) -> Finding {
    Finding::error(codes::DUPLICATE_ROUTE, Some(second.clone()), message)
        .label("the second")
        .related(first.clone(), "the first")
        .help("set it once, or for other callers or requests")
}
