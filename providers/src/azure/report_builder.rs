//! Builds the report about all services from the lists. Pure.

mod part;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{
    AddressFamily, AzureMachines, AzureQuery, Endpoint, EndpointPlace, ServiceName,
};
use jiff::Timestamp;

use super::list_state::Lists;
use crate::{Problem, ProviderReport, ServiceReport, Stale};
use part::{Part, part};

/// The largest number of problems of one service.
const MAX_PROBLEMS: usize = 20;

/// A report that control planes share: the endpoints, and the queries that they answer. A clone is
/// cheap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SharedReport {
    /// The report.
    pub report: ProviderReport,
    /// The queries of each service, with the defaults of the settings, in a canonical text.
    pub queries: Arc<BTreeMap<ServiceName, String>>,
}

/// The queries of all services, and the report.
#[derive(Debug, Default)]
pub(super) struct ReportBuilder {
    queries: BTreeMap<ServiceName, Vec<AzureQuery>>,
    /// The queries in canonical text.
    fingerprints: Arc<BTreeMap<ServiceName, String>>,
    report: ProviderReport,
    /// The number of changes so far.
    index: u64,
    is_new: bool,
}

impl ReportBuilder {
    pub(super) fn queries(&self) -> &BTreeMap<ServiceName, Vec<AzureQuery>> {
        &self.queries
    }

    /// Sets the services and their queries. Endpoints of other queries are dropped.
    pub(super) fn set_queries(&mut self, queries: BTreeMap<ServiceName, Vec<AzureQuery>>) {
        for (name, before) in std::mem::replace(&mut self.queries, queries) {
            if self.queries.get(&name) != Some(&before) {
                self.is_new |= self.report.services.remove(&name).is_some();
                self.is_new |= self.report.troubles.remove(&name).is_some();
            }
        }
        let texts = fingerprints(&self.queries);
        if *self.fingerprints != texts {
            self.fingerprints = Arc::new(texts);
            self.is_new = true;
        }
        self.is_new |= !self.report.has_discovered_services;
        self.report.has_discovered_services = true;
    }

    /// Adopts the report of another control plane, for services with the same queries. Services
    /// that it does not query are dropped.
    pub(super) fn adopt(&mut self, shared: &SharedReport) {
        let SharedReport { report, queries } = shared;
        let ours = Arc::clone(&self.fingerprints);
        let has_same_queries =
            |name: &ServiceName| ours.get(name).is_some_and(|ours| queries.get(name) == Some(ours));
        for (name, service_report) in
            report.services.iter().filter(|(name, _)| has_same_queries(name))
        {
            self.report.services.insert(name.clone(), Arc::clone(service_report));
        }
        // Without the set of services, an absence means nothing.
        if report.has_discovered_services {
            let known = self.report.services.keys();
            let left: Vec<_> = known.filter(|name| !has_same_queries(name)).cloned().collect();
            for name in left {
                self.report.services.remove(&name);
            }
        }
        let troubles = report.troubles.iter().filter(|(name, _)| has_same_queries(name));
        self.report.troubles =
            troubles.map(|(name, stale)| (name.clone(), stale.clone())).collect();
        self.report.stale.clone_from(&report.stale);
        self.is_new = true;
    }

    /// Sets the reason why Azure is unreachable, or clears it.
    pub(super) fn stale(&mut self, stale: Option<Stale>) {
        self.is_new |= self.report.stale != stale;
        self.report.stale = stale;
    }

    /// Returns the report, if it has changed since the last call.
    pub(super) fn news(&mut self) -> Option<SharedReport> {
        let is_known = |name| self.report.services.contains_key(name);
        let is_complete = self.report.has_discovered_services && self.queries.keys().all(is_known);
        self.is_new |= is_complete != self.report.is_complete;
        self.report.is_complete = is_complete;
        std::mem::take(&mut self.is_new).then(|| SharedReport {
            report: self.report.clone(),
            queries: Arc::clone(&self.fingerprints),
        })
    }

    /// Builds the report about a service. While a list has neither an answer nor an error, the
    /// previous report stays.
    pub(super) fn assemble(&mut self, name: &ServiceName, lists: &Lists, now: Timestamp) {
        let Some(queries) = self.queries.get(name) else { return };
        let before = self.report.services.get(name).cloned();
        let known = before.as_ref().map(|before| Arc::clone(&before.endpoints)).unwrap_or_default();
        let subscriptions = queries.iter().filter_map(|one| one.subscription.as_deref());
        let subscriptions: BTreeSet<_> = subscriptions.map(str::to_lowercase).collect();
        let is_of_several = subscriptions.len() > 1;
        let parts = queries.iter().map(|one| part(one, is_of_several, lists, &known, now));
        let parts: Vec<_> = parts.collect();
        if parts.iter().any(|part| part.is_open) {
            return;
        }
        let stale = parts.iter().flat_map(|part| &part.stale).min_by_key(|stale| stale.since);
        let mut stale = stale.cloned();
        // An invalid query is stale since its first failure.
        let since = before.as_ref().and_then(|before| before.stale.as_ref());
        let since = since.or_else(|| self.report.troubles.get(name));
        if let (Some(stale), Some(before)) = (&mut stale, since)
            && stale.reason == before.reason
        {
            stale.since = stale.since.min(before.since);
        }
        if !parts.iter().any(|part| part.is_answered) {
            if let Some(stale) = stale {
                if let Some(before) = before {
                    let service_report = ServiceReport { stale: Some(stale), ..(*before).clone() };
                    self.publish(name, service_report);
                } else {
                    let known = self.report.troubles.insert(name.clone(), stale.clone());
                    self.is_new |= known.as_ref() != Some(&stale);
                }
            }
            return;
        }
        // An unreadable machine that was missing in a complete report is new. Otherwise it may be
        // an old one.
        let was_confirmed = before.as_ref().is_some_and(|before| before.is_authoritative);
        let is_sure = |part: &Part| was_confirmed || !part.is_uncertain;
        let is_authoritative =
            parts.iter().all(|part| part.is_authoritative && part.is_answered && is_sure(part));
        let is_partial = parts.iter().any(|part| part.is_partial || !part.is_answered);
        let mut problems = Vec::new();
        let mut found = Vec::new();
        for part in parts {
            problems.extend(part.problems);
            found.extend(part.endpoints);
        }
        // The last known endpoints stay for lists without an answer since the start.
        if is_partial {
            let is_found: BTreeSet<_> =
                found.iter().map(|one| (one.instance.clone(), one.port)).collect();
            let is_lost = |one: &&Endpoint| !is_found.contains(&(one.instance.clone(), one.port));
            found.extend(known.iter().filter(is_lost).cloned());
        }
        let endpoints = distinct(found, &mut problems);
        problems.truncate(MAX_PROBLEMS);
        self.is_new |= self.report.troubles.remove(name).is_some();
        let same = before.filter(|before| *before.endpoints == endpoints);
        let service_report = if let Some(before) = same {
            let ServiceReport { endpoints, index, learned_at, .. } = (*before).clone();
            let problems = Arc::new(problems);
            ServiceReport { endpoints, index, learned_at, is_authoritative, problems, stale }
        } else {
            self.index += 1;
            ServiceReport {
                endpoints: Arc::new(endpoints),
                index: self.index,
                learned_at: now,
                is_authoritative,
                problems: Arc::new(problems),
                stale,
            }
        };
        self.publish(name, service_report);
    }

    fn publish(&mut self, name: &ServiceName, service_report: ServiceReport) {
        if self.report.services.get(name).is_none_or(|before| **before != service_report) {
            self.report.services.insert(name.clone(), Arc::new(service_report));
            self.is_new = true;
        }
    }
}

/// Returns a canonical text of the queries. Equal queries have equal texts.
pub(super) fn fingerprints(
    queries: &BTreeMap<ServiceName, Vec<AzureQuery>>,
) -> BTreeMap<ServiceName, String> {
    let words = |query: &AzureQuery| {
        // Whether machines join changes no endpoint.
        let AzureQuery {
            machines,
            subscription,
            resource_group,
            tags,
            port,
            address_family,
            join: _,
        } = query;
        let machines = match machines {
            AzureMachines::ScaleSet(name) => ("scale_set", name.as_deref().map(str::to_owned)),
            AzureMachines::VirtualMachines => ("vm", None),
        };
        let tags: Vec<_> =
            tags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let family = AddressFamily::ALL.iter().find(|(_, family)| family == address_family);
        let scope = (subscription.as_deref(), resource_group.as_deref());
        serde_json::json!([machines, scope, tags, port, family.map(|(word, _)| word)])
    };
    let of_service = |queries: &Vec<AzureQuery>| {
        serde_json::Value::Array(queries.iter().map(words).collect()).to_string()
    };
    queries.iter().map(|(name, queries)| (name.clone(), of_service(queries))).collect()
}

/// Keeps one endpoint per address and port, sorted: a duplicate would be one host. Of two machines
/// with the same address (in separate networks, for example) the healthiest stays.
fn distinct(mut found: Vec<Endpoint>, problems: &mut Vec<Problem>) -> Vec<Endpoint> {
    let order =
        |one: &Endpoint| (one.address, one.port, one.health, one.instance.clone(), one.machine);
    found.sort_by_cached_key(order);
    let mut used: BTreeMap<EndpointPlace, Endpoint> = BTreeMap::new();
    let mut reported = BTreeSet::new();
    for endpoint in found {
        match used.get(&endpoint.place()) {
            None => drop(used.insert(endpoint.place(), endpoint)),
            Some(first) if first.instance == endpoint.instance => {}
            Some(first) => {
                let other = first.instance.as_deref().unwrap_or_default();
                let instance = endpoint.instance.as_deref().unwrap_or_default().to_owned();
                let reason = format!(
                    "it has the same address {} as `{other}`, which is used",
                    endpoint.address
                );
                if reported.insert(instance.clone()) {
                    problems.push(Problem { instance, reason });
                }
            }
        }
    }
    used.into_values().collect()
}

#[cfg(test)]
mod tests;
