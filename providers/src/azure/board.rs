//! What is known of all services, out of the lists. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{
    AddressFamily, AzureMachines, AzureQuery, Endpoint, EndpointPlace, Health, ServiceName,
};
use jiff::Timestamp;

use super::endpoint::{self, Reading};
use super::held::{Held, Lists, Places, matching, single};
use super::id::ResourceId;
use super::lists::{List, Scope};
use super::machines::{Entries, Interface, ScaleSet, State, Tags};
use crate::{Problem, ProviderReport, ServiceReport, Stale};

/// Problems that are told of one service, at most.
const MAX_PROBLEMS: usize = 20;

/// What a control plane tells others: what it has found, and what it has asked. A copy costs little.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// What it has found.
    pub sightings: ProviderReport,
    /// What each service asks there, with what the settings say where policy says nothing, in words that are
    /// the same for the same questions.
    pub questions: Arc<BTreeMap<ServiceName, String>>,
}

/// The questions of services, and the answers.
#[derive(Debug, Default)]
pub(super) struct Board {
    asked: BTreeMap<ServiceName, Vec<AzureQuery>>,
    /// The same in words.
    questions: Arc<BTreeMap<ServiceName, String>>,
    sightings: ProviderReport,
    /// How many times something was new.
    index: u64,
    is_new: bool,
}

/// What is known of a question.
#[expect(clippy::struct_excessive_bools, reason = "each is set where it is seen, by itself")]
#[derive(Debug, Default)]
struct Part {
    endpoints: Vec<Endpoint>,
    problems: Vec<Problem>,
    /// Whether nobody is missing in it for another reason than that he is not there.
    is_authoritative: bool,
    /// Whether there is an answer to it, be it old.
    is_answered: bool,
    /// Whether something was not asked for yet.
    is_open: bool,
    /// Whether something was asked for, and nothing was ever answered to that.
    is_partial: bool,
    /// Whether machines are called by their subscription too: the service looks in several.
    is_of_several: bool,
    /// Whether there is a machine that cannot be judged and of which nothing is known.
    is_unsure: bool,
    stale: Vec<Stale>,
}

impl Board {
    pub(super) fn asked(&self) -> &BTreeMap<ServiceName, Vec<AzureQuery>> {
        &self.asked
    }

    /// From now on these are the services and what they ask. What was found for another question is no answer.
    pub(super) fn ask(&mut self, asked: BTreeMap<ServiceName, Vec<AzureQuery>>) {
        for (name, before) in std::mem::replace(&mut self.asked, asked) {
            if self.asked.get(&name) != Some(&before) {
                self.is_new |= self.sightings.services.remove(&name).is_some();
                self.is_new |= self.sightings.troubles.remove(&name).is_some();
            }
        }
        let questions = questions(&self.asked);
        if *self.questions != questions {
            self.questions = Arc::new(questions);
            self.is_new = true;
        }
        self.is_new |= !self.sightings.has_discovered_services;
        self.sightings.has_discovered_services = true;
    }

    /// Takes what another control plane has found for the same questions. What it has found for others is no
    /// answer; and of what it does not ask, nobody tells any more.
    pub(super) fn take(&mut self, taken: &Told) {
        let Told { sightings: taken, questions } = taken;
        let ours = Arc::clone(&self.questions);
        let is_asked = |name: &ServiceName| {
            ours.get(name).is_some_and(|ours| questions.get(name) == Some(ours))
        };
        for (name, sighting) in taken.services.iter().filter(|(name, _)| is_asked(name)) {
            self.sightings.services.insert(name.clone(), Arc::clone(sighting));
        }
        // Who does not know yet whom to ask for may tell later.
        if taken.has_discovered_services {
            let known = self.sightings.services.keys();
            let left: Vec<_> = known.filter(|name| !is_asked(name)).cloned().collect();
            for name in left {
                self.sightings.services.remove(&name);
            }
        }
        let troubles = taken.troubles.iter().filter(|(name, _)| is_asked(name));
        self.sightings.troubles =
            troubles.map(|(name, stale)| (name.clone(), stale.clone())).collect();
        self.sightings.stale.clone_from(&taken.stale);
        self.is_new = true;
    }

    /// Takes whether anybody can be asked, and if not, why.
    pub(super) fn stale(&mut self, stale: Option<Stale>) {
        self.is_new |= self.sightings.stale != stale;
        self.sightings.stale = stale;
    }

    /// What is known, if something is new since this was asked last.
    pub(super) fn news(&mut self) -> Option<Told> {
        let is_known = |name| self.sightings.services.contains_key(name);
        let is_complete = self.sightings.has_discovered_services && self.asked.keys().all(is_known);
        self.is_new |= is_complete != self.sightings.is_complete;
        self.sightings.is_complete = is_complete;
        std::mem::take(&mut self.is_new).then(|| Told {
            sightings: self.sightings.clone(),
            questions: Arc::clone(&self.questions),
        })
    }

    /// Puts together what is known of a service. While something was neither answered nor refused, what was
    /// known stays.
    pub(super) fn assemble(&mut self, name: &ServiceName, lists: &Lists, now: Timestamp) {
        let Some(questions) = self.asked.get(name) else { return };
        let before = self.sightings.services.get(name).cloned();
        let known = before.as_ref().map(|before| Arc::clone(&before.endpoints)).unwrap_or_default();
        let subscriptions = questions.iter().filter_map(|one| one.subscription.as_deref());
        let subscriptions: BTreeSet<_> = subscriptions.map(str::to_lowercase).collect();
        let is_of_several = subscriptions.len() > 1;
        let parts = questions.iter().map(|one| part(one, is_of_several, lists, &known, now));
        let parts: Vec<_> = parts.collect();
        if parts.iter().any(|part| part.is_open) {
            return;
        }
        let stale = parts.iter().flat_map(|part| &part.stale).min_by_key(|stale| stale.since);
        let mut stale = stale.cloned();
        // That a question makes no sense is known since it was asked first.
        let since = before.as_ref().and_then(|before| before.stale.as_ref());
        let since = since.or_else(|| self.sightings.troubles.get(name));
        if let (Some(stale), Some(before)) = (&mut stale, since)
            && stale.reason == before.reason
        {
            stale.since = stale.since.min(before.since);
        }
        if !parts.iter().any(|part| part.is_answered) {
            if let Some(stale) = stale {
                if let Some(before) = before {
                    let sighting = ServiceReport { stale: Some(stale), ..(*before).clone() };
                    self.tell(name, sighting);
                } else {
                    let known = self.sightings.troubles.insert(name.clone(), stale.clone());
                    self.is_new |= known.as_ref() != Some(&stale);
                }
            }
            return;
        }
        // Who cannot be judged and was not there when nobody was missing is new. Else he may have been.
        let was_confirmed = before.as_ref().is_some_and(|before| before.is_authoritative);
        let is_sure = |part: &Part| was_confirmed || !part.is_unsure;
        let is_authoritative =
            parts.iter().all(|part| part.is_authoritative && part.is_answered && is_sure(part));
        let is_partial = parts.iter().any(|part| part.is_partial || !part.is_answered);
        let mut problems = Vec::new();
        let mut found = Vec::new();
        for part in parts {
            problems.extend(part.problems);
            found.extend(part.endpoints);
        }
        // What was known of those of whom nothing is heard since we began stays.
        if is_partial {
            let is_found: BTreeSet<_> =
                found.iter().map(|one| (one.instance.clone(), one.port)).collect();
            let is_lost = |one: &&Endpoint| !is_found.contains(&(one.instance.clone(), one.port));
            found.extend(known.iter().filter(is_lost).cloned());
        }
        let endpoints = distinct(found, &mut problems);
        problems.truncate(MAX_PROBLEMS);
        self.is_new |= self.sightings.troubles.remove(name).is_some();
        let same = before.filter(|before| *before.endpoints == endpoints);
        let sighting = if let Some(before) = same {
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
        self.tell(name, sighting);
    }

    fn tell(&mut self, name: &ServiceName, sighting: ServiceReport) {
        if self.sightings.services.get(name).is_none_or(|before| **before != sighting) {
            self.sightings.services.insert(name.clone(), Arc::new(sighting));
            self.is_new = true;
        }
    }
}

/// What services ask, in words. All that a question says is in them, in an order of its own.
pub(super) fn questions(
    asked: &BTreeMap<ServiceName, Vec<AzureQuery>>,
) -> BTreeMap<ServiceName, String> {
    let words = |question: &AzureQuery| {
        let AzureQuery { machines, subscription, resource_group, tags, port, address_family } =
            question;
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
    let of_service = |questions: &Vec<AzureQuery>| {
        serde_json::Value::Array(questions.iter().map(words).collect()).to_string()
    };
    asked.iter().map(|(name, questions)| (name.clone(), of_service(questions))).collect()
}

/// What is known of a question.
fn part(
    question: &AzureQuery,
    is_of_several: bool,
    lists: &Lists,
    before: &[Endpoint],
    now: Timestamp,
) -> Part {
    let mut part = Part { is_authoritative: true, is_of_several, ..Part::default() };
    let scope = match Scope::of(question) {
        Ok(scope) => scope,
        Err(reason) => {
            part.stale.push(Stale { since: now, reason });
            return part;
        }
    };
    match &question.machines {
        AzureMachines::ScaleSet(name) => {
            part.look(lists, &List::ScaleSets(scope.clone()));
            let Some(sets) = lists.scale_sets(&scope) else { return part };
            part.unreadable_sets(sets, name.as_deref());
            let mut has_some = false;
            for set in matching(sets, question) {
                has_some = true;
                part.of_set(set, question, lists, before);
            }
            part.is_answered |= !has_some;
            if let (false, Some(name)) = (has_some, name) {
                part.problems.push(no_set(name, sets, &scope));
            }
        }
        AzureMachines::VirtualMachines => {
            let places = Places::of_single(&scope, question, lists);
            let states = List::States(Arc::clone(&scope.subscription));
            part.look(lists, &states);
            part.look_at(lists, &places);
            let answers = (
                lists.machines(&places.machines),
                lists.states(&states),
                lists.interfaces(&places.interfaces),
            );
            let (Some(machines), Some(states), Some(_)) = answers else { return part };
            part.is_answered = true;
            for machine in single(machines, question) {
                let state = states.get(&machine.id).map(|state| State {
                    provisioning: Arc::clone(&machine.state.provisioning),
                    ..state.clone()
                });
                let no_tags = Tags::new();
                let interfaces = interfaces(&machine.id, lists, &places);
                let read = endpoint::read(machine, state.as_ref(), &interfaces, question, &no_tags);
                part.take(&machine.id, read, question, before);
            }
            part.unreadable(machines, question, before);
        }
    }
    part
}

impl Part {
    /// Looks at how a list stands.
    fn look(&mut self, lists: &Lists, list: &List) {
        match lists.0.get(list) {
            Some(Held { contents: None, trouble: None, .. }) | None => self.is_open = true,
            Some(held) => {
                self.stale.extend(held.trouble.clone());
                self.is_authoritative &= held.contents.is_some();
            }
        }
    }

    /// Looks at how the lists of machines and their interfaces stand.
    fn look_at(&mut self, lists: &Lists, places: &Places) {
        self.look(lists, &places.machines);
        // Where machines are need not be asked while nobody says which there are.
        if lists.machines(&places.machines).is_none() {
            return;
        }
        self.look(lists, &places.interfaces);
        // Another group may be none that one may read. Whose primary interface is in it cannot be judged, as is
        // seen where machines are; who has gone has gone all the same.
        if places.left_out > 0 {
            let (looked, more) = (places.elsewhere.len(), places.left_out);
            let reason = format!(
                "its machines name network interfaces in {looked} other resource groups, which are read, and in {more} more, which are not"
            );
            self.problems.push(Problem { instance: "resource groups".to_owned(), reason });
        }
        for elsewhere in &places.elsewhere {
            match lists.0.get(elsewhere) {
                Some(Held { contents: None, trouble: None, .. }) | None => self.is_open = true,
                Some(Held { trouble: Some(trouble), .. }) => {
                    let List::Interfaces(scope) = elsewhere else { continue };
                    let group = scope.group.as_deref().unwrap_or_default();
                    let reason = format!(
                        "network interfaces that its machines name are not shown: {}",
                        trouble.reason
                    );
                    self.problems.push(Problem { instance: group.to_owned(), reason });
                }
                Some(_) => {}
            }
        }
    }

    /// What a machine is called.
    fn name(&self, id: &ResourceId) -> String {
        if self.is_of_several { id.long() } else { id.short() }
    }

    /// Takes the machines of a scale set.
    fn of_set(
        &mut self,
        set: &ScaleSet,
        question: &AzureQuery,
        lists: &Lists,
        before: &[Endpoint],
    ) {
        let places = Places::of_set(set, lists);
        self.look_at(lists, &places);
        let answers = (lists.machines(&places.machines), lists.interfaces(&places.interfaces));
        let (Some(machines), Some(_)) = answers else {
            self.is_partial = true;
            return;
        };
        self.is_answered = true;
        // Resource Graph shows what one may read, and a scale set that has machines shows some.
        let is_of_graph = lists.0.get(&places.machines).is_some_and(|held| held.is_of_graph);
        if machines.good.is_empty() && (set.capacity > 0 || is_of_graph) {
            self.is_authoritative = false;
        }
        for machine in machines.good.values() {
            let interfaces = interfaces(&machine.id, lists, &places);
            let read =
                endpoint::read(machine, Some(&machine.state), &interfaces, question, &set.tags);
            self.take(&machine.id, read, question, before);
        }
        self.unreadable(machines, question, before);
    }

    /// Takes what a machine comes to.
    fn take(
        &mut self,
        id: &ResourceId,
        reading: Reading,
        question: &AzureQuery,
        before: &[Endpoint],
    ) {
        let instance = self.name(id);
        let known = || {
            let is_it = |one: &&Endpoint| {
                one.instance.as_deref() == Some(&*instance) && one.port == question.port
            };
            before.iter().find(is_it).cloned()
        };
        match reading {
            Reading::Endpoint(endpoint) => {
                self.endpoints.push(Endpoint { instance: Some(instance.into()), ..endpoint });
            }
            Reading::Nothing => {}
            Reading::Leaves => {
                let leaves = known().map(|known| Endpoint { health: Health::Draining, ..known });
                self.endpoints.extend(leaves);
            }
            Reading::Unusable(reason) => {
                let known = known();
                self.is_unsure |= known.is_none();
                self.endpoints.extend(known);
                self.problems.push(Problem { instance, reason });
            }
        }
    }

    fn unreadable<T>(&mut self, entries: &Entries<T>, question: &AzureQuery, before: &[Endpoint]) {
        for unreadable in &entries.unreadable {
            let reason = unreadable.reason.clone();
            match &unreadable.id {
                // Of one that has nothing to do with the question nothing is known, and nothing is told.
                Some(id) if question.machines == AzureMachines::VirtualMachines => {
                    let name = self.name(id);
                    let is_known = before.iter().any(|one| one.instance.as_deref() == Some(&*name));
                    if is_known {
                        self.take(id, Reading::Unusable(reason), question, before);
                    }
                }
                Some(id) => self.take(id, Reading::Unusable(reason), question, before),
                None => {
                    self.is_authoritative = false;
                    self.problems.push(Problem { instance: "unnamed".to_owned(), reason });
                }
            }
        }
    }

    /// Scale sets that cannot be read may be those that are asked for.
    fn unreadable_sets(&mut self, sets: &Entries<ScaleSet>, name: Option<&str>) {
        for unreadable in &sets.unreadable {
            let of = unreadable.id.as_ref();
            let concerns = match (name, of) {
                (Some(name), Some(id)) => id.name() == name,
                _ => true,
            };
            if concerns {
                self.is_authoritative = false;
                let instance = of.map_or_else(|| "unnamed".to_owned(), |id| self.name(id));
                self.problems.push(Problem { instance, reason: unreadable.reason.clone() });
            }
        }
    }
}

/// The interfaces of a machine, wherever they are.
fn interfaces<'a>(machine: &ResourceId, lists: &'a Lists, places: &Places) -> Vec<&'a Interface> {
    let all = places.all_interfaces().filter_map(|list| lists.interfaces(list)?.get(machine));
    all.flatten().collect()
}

/// There is no scale set as it is asked for. Who may read the others would see it, so nobody is in it.
fn no_set(name: &str, sets: &Entries<ScaleSet>, scope: &Scope) -> Problem {
    let place = match &scope.group {
        Some(group) => format!("in resource group `{group}`"),
        None => format!("in subscription `{}`", scope.subscription),
    };
    let named = sets.good.values().any(|set| set.id.name() == name.to_lowercase());
    let others: Vec<_> = sets.good.values().map(|set| set.id.name()).take(5).collect();
    let reason = if named {
        format!("the scale set `{name}` {place} does not have the tags that policy asks for")
    } else if others.is_empty() {
        format!("there is no scale set `{name}` {place}, and no other")
    } else {
        format!("there is no scale set `{name}` {place}; there are {}", others.join(", "))
    };
    Problem { instance: name.to_owned(), reason }
}

/// Each address and port once, sorted: what is told twice would be one host. Of two machines that have the
/// same one (in networks that do not meet, say), the healthiest is taken.
fn distinct(mut found: Vec<Endpoint>, problems: &mut Vec<Problem>) -> Vec<Endpoint> {
    let order =
        |one: &Endpoint| (one.address, one.port, one.health, one.instance.clone(), one.machine);
    found.sort_by_cached_key(order);
    let mut taken: BTreeMap<EndpointPlace, Endpoint> = BTreeMap::new();
    let mut told = BTreeSet::new();
    for endpoint in found {
        match taken.get(&endpoint.place()) {
            None => drop(taken.insert(endpoint.place(), endpoint)),
            Some(first) if first.instance == endpoint.instance => {}
            Some(first) => {
                let other = first.instance.as_deref().unwrap_or_default();
                let instance = endpoint.instance.as_deref().unwrap_or_default().to_owned();
                let reason =
                    format!("it has the same address {} as `{other}`, which is used", endpoint.address);
                if told.insert(instance.clone()) {
                    problems.push(Problem { instance, reason });
                }
            }
        }
    }
    taken.into_values().collect()
}

#[cfg(test)]
mod tests;
