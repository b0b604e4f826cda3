//! What is known of all services, out of the answers to the questions that each of them asks. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, Endpoint, ServiceName};
use jiff::Timestamp;

use super::answer::distinct;
use super::instances::{Found, News};
use crate::{Problem, ProviderReport, ServiceReport, Stale};

/// So many Consul services may be tagged as one of the mesh: each is a query of its own.
const MAX_TAGGED: usize = 16;

/// The questions of a service, and the answers.
#[derive(Debug, Default)]
pub(super) struct Board {
    asked: BTreeMap<ServiceName, Asked>,
    answers: BTreeMap<Arc<ConsulQuery>, Known>,
    askers: BTreeMap<Arc<ConsulQuery>, BTreeSet<ServiceName>>,
    sightings: ProviderReport,
    /// Whether it is known of each service what is asked for it.
    is_all_asked: bool,
    /// Whether something is new since somebody looked.
    is_new: bool,
}

/// What a service asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// What policy asks for it.
    pub(super) own: Option<ConsulQuery>,
    /// What finds the instances that joined it by a tag.
    pub(super) tagged: BTreeSet<ConsulQuery>,
    /// Whether it is certain that no others joined it by a tag.
    pub(super) is_all_tagged: bool,
}

/// What is known of a question.
#[derive(Debug, Default)]
struct Known {
    answer: Option<(Found, Timestamp)>,
    stale: Option<Stale>,
}

impl Asked {
    /// What is wrong with so many.
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

    fn questions(&self) -> impl Iterator<Item = &ConsulQuery> {
        self.own.iter().chain(self.tagged.iter().take(MAX_TAGGED))
    }
}

impl Board {
    /// From now on these are the services and what they ask. Returns the questions: of one that was there
    /// before, the answer stays. `is_all` says whether there is nothing yet to learn about whom to ask for.
    pub(super) fn ask(
        &mut self,
        asked: BTreeMap<ServiceName, Asked>,
        is_all: bool,
        now: Timestamp,
    ) -> BTreeSet<Arc<ConsulQuery>> {
        self.is_all_asked = is_all;
        self.askers.clear();
        for (name, asks) in &asked {
            for question in asks.questions() {
                self.askers.entry(Arc::new(question.clone())).or_default().insert(name.clone());
            }
        }
        let questions: BTreeSet<_> = self.askers.keys().cloned().collect();
        self.answers.retain(|question, _| questions.contains(question));
        let before = std::mem::replace(&mut self.asked, asked);
        // What was found for another question is no answer to this one.
        for (name, asks) in &before {
            if self.asked.get(name).is_none_or(|now| now.own != asks.own) {
                self.is_new |= self.sightings.services.remove(name).is_some();
                self.is_new |= self.sightings.troubles.remove(name).is_some();
            }
        }
        let changed = self.asked.iter().filter(|(name, asks)| before.get(*name) != Some(*asks));
        let changed: Vec<_> = changed.map(|(name, _)| name.clone()).collect();
        for name in changed {
            self.assemble(&name, now);
        }
        questions
    }

    /// Takes what is new about a question.
    pub(super) fn take(&mut self, question: &Arc<ConsulQuery>, news: News, now: Timestamp) {
        let Some(askers) = self.askers.get(question).cloned() else { return };
        let known = self.answers.entry(Arc::clone(question)).or_default();
        match news {
            News::Found(found) => {
                known.stale = None;
                let same =
                    known.answer.take().filter(|(before, _)| before.endpoints == found.endpoints);
                known.answer = Some((found, same.map_or(now, |(_, learned_at)| learned_at)));
            }
            News::Trouble(reason) => {
                let since = known.stale.as_ref().map_or(now, |stale| stale.since);
                known.stale = Some(Stale { since, reason });
            }
        }
        for name in askers {
            self.assemble(&name, now);
        }
    }

    /// Takes whether anybody can be asked, and if not, why.
    pub(super) fn stale(&mut self, reason: Option<Arc<str>>, now: Timestamp) {
        let since = self.sightings.stale.as_ref().map_or(now, |stale| stale.since);
        let stale = reason.map(|reason| Stale { since, reason: (*reason).to_owned() });
        self.is_new |= self.sightings.stale != stale;
        self.sightings.stale = stale;
    }

    /// What is known, if something is new since this was asked last.
    pub(super) fn news(&mut self) -> Option<ProviderReport> {
        let is_complete = self.is_all_asked && self.sightings.services.len() == self.asked.len();
        self.is_new |= is_complete != self.sightings.is_complete;
        self.is_new |= self.is_all_asked != self.sightings.has_discovered_services;
        self.sightings.is_complete = is_complete;
        self.sightings.has_discovered_services = self.is_all_asked;
        std::mem::take(&mut self.is_new).then(|| self.sightings.clone())
    }

    /// Puts together what is known of a service. While a question was neither answered nor refused, what
    /// was known stays.
    fn assemble(&mut self, name: &ServiceName, now: Timestamp) {
        let Some(asked) = self.asked.get(name) else { return };
        let mut parts = Vec::new();
        for question in asked.questions() {
            match self.answers.get(question) {
                Some(known) if known.answer.is_some() || known.stale.is_some() => parts.push(known),
                _ => return,
            }
        }
        let answers: Vec<_> = parts.iter().filter_map(|part| part.answer.as_ref()).collect();
        let own = asked.own.as_ref().and_then(|own| self.answers.get(own)?.answer.as_ref());
        let has_tagged = !asked.tagged.is_empty();
        let stale = parts.iter().filter_map(|part| part.stale.clone());
        let stale = stale.min_by_key(|stale| stale.since);
        if answers.is_empty() && !parts.is_empty() {
            if let Some(stale) = stale {
                let known = self.sightings.troubles.insert(name.clone(), stale.clone());
                self.is_new |= known.as_ref() != Some(&stale);
            }
            return;
        }
        self.is_new |= self.sightings.troubles.remove(name).is_some();
        let before = self.sightings.services.get(name);
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
        problems.extend(asked.left_out());
        // That nobody joined by a tag is learned when it is asked for.
        let learned_at = answers.iter().map(|(_, at)| *at).max();
        let learned_at = learned_at.or_else(|| Some(before?.learned_at)).unwrap_or(now);
        let sighting = ServiceReport {
            endpoints,
            index: answers.iter().map(|(found, _)| found.index).max().unwrap_or(0),
            learned_at,
            is_authoritative: asked.is_all_tagged
                && answers.len() == parts.len()
                && answers.iter().all(|(found, _)| found.is_authoritative),
            problems: Arc::new(problems),
            stale,
        };
        if before.is_none_or(|before| **before != sighting) {
            self.sightings.services.insert(name.clone(), Arc::new(sighting));
            self.is_new = true;
        }
    }
}

/// Of instances that policy's own question finds, nothing else counts: it says which address is taken.
/// The others joined by a tag.
fn own_first<'a>(
    own: Option<&'a Vec<Endpoint>>,
    all: impl Iterator<Item = &'a Endpoint>,
) -> Vec<Endpoint> {
    let own = own.map(Vec::as_slice).unwrap_or_default();
    let names: BTreeSet<_> = own.iter().filter_map(|found| found.instance.as_ref()).collect();
    let of_others =
        |found: &&Endpoint| found.instance.as_ref().is_none_or(|of| !names.contains(of));
    let tagged = all.filter(of_others).map(|one| Endpoint { joined_by_tag: true, ..one.clone() });
    own.iter().cloned().chain(tagged).collect()
}

#[cfg(test)]
mod tests;
