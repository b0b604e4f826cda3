//! Builds the report about all services from the answers to their queries. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, Endpoint, ServiceName};
use jiff::Timestamp;

use super::answer::distinct;
use super::instances::{Found, QueryUpdate};
use crate::{Problem, ProviderReport, ServiceReport, Stale};

/// The largest number of Consul services with the tag of one mesh service: each costs a query.
const MAX_TAGGED: usize = 16;

/// The queries of all services, their answers, and the report.
#[derive(Debug, Default)]
pub(super) struct ReportBuilder {
    queries: BTreeMap<ServiceName, ServiceQueries>,
    answers: BTreeMap<Arc<ConsulQuery>, KnownAnswer>,
    services_of: BTreeMap<Arc<ConsulQuery>, BTreeSet<ServiceName>>,
    report: ProviderReport,
    /// Whether the queries of each service are known.
    has_all_queries: bool,
    /// Whether the report has changed since it was taken.
    is_new: bool,
}

/// The queries of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServiceQueries {
    /// The query in policy.
    pub(super) own: Option<ConsulQuery>,
    /// The queries that find instances which registered by a tag.
    pub(super) tagged: BTreeSet<ConsulQuery>,
    /// Whether it is certain that no other instance registered by a tag.
    pub(super) is_all_tagged: bool,
}

/// The latest result of a query.
#[derive(Debug, Default)]
struct KnownAnswer {
    answer: Option<(Found, Timestamp)>,
    stale: Option<Stale>,
}

impl ServiceQueries {
    /// Returns the problem that the service has too many tagged Consul services.
    fn left_out(&self) -> Option<Problem> {
        let mut left_out = self.tagged.iter().skip(MAX_TAGGED);
        let first = left_out.next()?;
        let reason = format!(
            "{} Consul services have the tag of this service, and only the first {MAX_TAGGED} by name \
             are queried; remove the tag from this one and the {} after it, or tag fewer services",
            self.tagged.len(),
            left_out.count()
        );
        Some(Problem { instance: first.service.to_string(), reason })
    }

    fn queries(&self) -> impl Iterator<Item = &ConsulQuery> {
        self.own.iter().chain(self.tagged.iter().take(MAX_TAGGED))
    }
}

impl ReportBuilder {
    /// Sets the services and their queries, and returns all queries. The answers to unchanged
    /// queries stay. `is_all` says whether the tags are known.
    pub(super) fn set_queries(
        &mut self,
        queries: BTreeMap<ServiceName, ServiceQueries>,
        is_all: bool,
        now: Timestamp,
    ) -> BTreeSet<Arc<ConsulQuery>> {
        self.has_all_queries = is_all;
        self.services_of.clear();
        for (name, own) in &queries {
            for query in own.queries() {
                self.services_of.entry(Arc::new(query.clone())).or_default().insert(name.clone());
            }
        }
        let all: BTreeSet<_> = self.services_of.keys().cloned().collect();
        self.answers.retain(|query, _| all.contains(query));
        let before = std::mem::replace(&mut self.queries, queries);
        // The answer to another query is no answer to this one.
        for (name, own) in &before {
            if self.queries.get(name).is_none_or(|now| now.own != own.own) {
                self.is_new |= self.report.services.remove(name).is_some();
                self.is_new |= self.report.troubles.remove(name).is_some();
            }
        }
        let changed = self.queries.iter().filter(|(name, own)| before.get(*name) != Some(*own));
        let changed: Vec<_> = changed.map(|(name, _)| name.clone()).collect();
        for name in changed {
            self.assemble(&name, now);
        }
        all
    }

    /// Applies the result of a query.
    pub(super) fn take(&mut self, query: &Arc<ConsulQuery>, news: QueryUpdate, now: Timestamp) {
        let Some(services_of) = self.services_of.get(query).cloned() else { return };
        let known = self.answers.entry(Arc::clone(query)).or_default();
        match news {
            QueryUpdate::Found(found) => {
                known.stale = None;
                let same =
                    known.answer.take().filter(|(before, _)| before.endpoints == found.endpoints);
                known.answer = Some((found, same.map_or(now, |(_, learned_at)| learned_at)));
            }
            QueryUpdate::Trouble(reason) => {
                let since = known.stale.as_ref().map_or(now, |stale| stale.since);
                known.stale = Some(Stale { since, reason });
            }
        }
        for name in services_of {
            self.assemble(&name, now);
        }
    }

    /// Sets the reason why no agent is usable, or clears it.
    pub(super) fn stale(&mut self, reason: Option<Arc<str>>, now: Timestamp) {
        let since = self.report.stale.as_ref().map_or(now, |stale| stale.since);
        let stale = reason.map(|reason| Stale { since, reason: (*reason).to_owned() });
        self.is_new |= self.report.stale != stale;
        self.report.stale = stale;
    }

    /// Returns the report, if it has changed since the last call.
    pub(super) fn news(&mut self) -> Option<ProviderReport> {
        let is_complete = self.has_all_queries && self.report.services.len() == self.queries.len();
        self.is_new |= is_complete != self.report.is_complete;
        self.is_new |= self.has_all_queries != self.report.has_discovered_services;
        self.report.is_complete = is_complete;
        self.report.has_discovered_services = self.has_all_queries;
        std::mem::take(&mut self.is_new).then(|| self.report.clone())
    }

    /// Builds the report about a service. While a query has neither an answer nor an error, the
    /// previous report stays.
    fn assemble(&mut self, name: &ServiceName, now: Timestamp) {
        let Some(own_queries) = self.queries.get(name) else { return };
        let mut parts = Vec::new();
        for query in own_queries.queries() {
            match self.answers.get(query) {
                Some(known) if known.answer.is_some() || known.stale.is_some() => parts.push(known),
                _ => return,
            }
        }
        let answers: Vec<_> = parts.iter().filter_map(|part| part.answer.as_ref()).collect();
        let own = own_queries.own.as_ref().and_then(|own| self.answers.get(own)?.answer.as_ref());
        let has_tagged = !own_queries.tagged.is_empty();
        let stale = parts.iter().filter_map(|part| part.stale.clone());
        let stale = stale.min_by_key(|stale| stale.since);
        if answers.is_empty() && !parts.is_empty() {
            if let Some(stale) = stale {
                let known = self.report.troubles.insert(name.clone(), stale.clone());
                self.is_new |= known.as_ref() != Some(&stale);
            }
            return;
        }
        self.is_new |= self.report.troubles.remove(name).is_some();
        let before = self.report.services.get(name);
        let mut problems = Vec::new();
        let endpoints = if let ([(only, _)], false) = (&answers[..], has_tagged) {
            problems.clone_from(&only.problems);
            Arc::clone(&only.endpoints)
        } else {
            problems.extend(answers.iter().flat_map(|(found, _)| found.problems.iter().cloned()));
            let all = answers.iter().flat_map(|(found, _)| found.endpoints.iter());
            let union = own_first(own.map(|(own, _)| &*own.endpoints), all);
            let union = distinct(union, &mut problems);
            match before.filter(|before| *before.endpoints == union) {
                Some(before) => Arc::clone(&before.endpoints),
                None => Arc::new(union),
            }
        };
        problems.extend(own_queries.left_out());
        // The absence of tagged instances is learned when the service is first queried.
        let learned_at = answers.iter().map(|(_, at)| *at).max();
        let learned_at = learned_at.or_else(|| Some(before?.learned_at)).unwrap_or(now);
        let service_report = ServiceReport {
            endpoints,
            index: answers.iter().map(|(found, _)| found.index).max().unwrap_or(0),
            learned_at,
            is_authoritative: own_queries.is_all_tagged
                && answers.len() == parts.len()
                && answers.iter().all(|(found, _)| found.is_authoritative),
            problems: Arc::new(problems),
            stale,
        };
        if before.is_none_or(|before| **before != service_report) {
            self.report.services.insert(name.clone(), Arc::new(service_report));
            self.is_new = true;
        }
    }
}

/// Puts the instances of policy's own query first: its address wins. The others registered by a
/// tag.
fn own_first<'a>(
    own: Option<&'a Vec<Endpoint>>,
    all: impl Iterator<Item = &'a Endpoint>,
) -> Vec<Endpoint> {
    let own = own.map(Vec::as_slice).unwrap_or_default();
    let names: BTreeSet<_> = own.iter().filter_map(|found| found.instance.as_ref()).collect();
    let of_others =
        |found: &&Endpoint| found.instance.as_ref().is_none_or(|of| !names.contains(of));
    let tagged = all.filter(of_others).map(|one| Endpoint { selected_by_tag: true, ..one.clone() });
    own.iter().cloned().chain(tagged).collect()
}

#[cfg(test)]
mod tests;
