//! The part of one query in the report about a service. Pure.

use std::sync::Arc;

use ironmesh_catalog::{AzureMachines, AzureQuery, Endpoint, Health};
use jiff::Timestamp;

use super::super::endpoint::{self, Reading};
use super::super::id::ResourceId;
use super::super::list_state::{ListState, Lists, MachineLists, matching, single};
use super::super::lists::{List, Scope};
use super::super::machines::{Entries, Interface, ScaleSet, State, Tags};
use crate::{Problem, Stale};

/// The answer to one query.
#[expect(clippy::struct_excessive_bools, reason = "each is set where it is seen, by itself")]
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) problems: Vec<Problem>,
    /// Whether the answer is complete.
    pub(super) is_authoritative: bool,
    /// Whether there is an answer, possibly stale.
    pub(super) is_answered: bool,
    /// Whether a list was not requested yet.
    pub(super) is_open: bool,
    /// Whether a list failed and never had an answer.
    pub(super) is_partial: bool,
    /// Whether names of machines include the subscription, because the service uses several.
    pub(super) is_of_several: bool,
    /// Whether a machine is unreadable and has no last known endpoint.
    pub(super) is_uncertain: bool,
    pub(super) stale: Vec<Stale>,
}

/// Returns the answer to one query.
pub(super) fn part(
    query: &AzureQuery,
    is_of_several: bool,
    lists: &Lists,
    before: &[Endpoint],
    now: Timestamp,
) -> Part {
    let mut part = Part { is_authoritative: true, is_of_several, ..Part::default() };
    let scope = match Scope::of(query) {
        Ok(scope) => scope,
        Err(reason) => {
            part.stale.push(Stale { since: now, reason });
            return part;
        }
    };
    match &query.machines {
        AzureMachines::ScaleSet(name) => {
            part.look(lists, &List::ScaleSets(scope.clone()));
            let Some(sets) = lists.scale_sets(&scope) else { return part };
            part.unreadable_sets(sets, name.as_deref());
            let mut has_some = false;
            for set in matching(sets, query) {
                has_some = true;
                part.add_scale_set(set, query, lists, before);
            }
            part.is_answered |= !has_some;
            if let (false, Some(name)) = (has_some, name) {
                part.problems.push(no_set(name, sets, &scope));
            }
        }
        AzureMachines::VirtualMachines => {
            let machine_lists = MachineLists::for_single_machines(&scope, query, lists);
            let states = List::States(Arc::clone(&scope.subscription));
            part.look(lists, &states);
            part.look_at(lists, &machine_lists);
            let answers = (
                lists.machines(&machine_lists.machines),
                lists.states(&states),
                lists.interfaces(&machine_lists.interfaces),
            );
            let (Some(machines), Some(states), Some(_)) = answers else { return part };
            part.is_answered = true;
            for machine in single(machines, query) {
                let state = states.get(&machine.id).map(|state| State {
                    provisioning: Arc::clone(&machine.state.provisioning),
                    ..state.clone()
                });
                let no_tags = Tags::new();
                let interfaces = interfaces(&machine.id, lists, &machine_lists);
                let read = endpoint::read(machine, state.as_ref(), &interfaces, query, &no_tags);
                part.take(&machine.id, read, query, before);
            }
            part.unreadable(machines, query, before);
        }
    }
    part
}

impl Part {
    /// Takes the state of a list into account.
    fn look(&mut self, lists: &Lists, list: &List) {
        match lists.0.get(list) {
            Some(ListState { contents: None, trouble: None, .. }) | None => self.is_open = true,
            Some(held) => {
                self.stale.extend(held.trouble.clone());
                self.is_authoritative &= held.contents.is_some();
            }
        }
    }

    /// Takes the state of the lists of machines and interfaces into account.
    fn look_at(&mut self, lists: &Lists, machine_lists: &MachineLists) {
        self.look(lists, &machine_lists.machines);
        // Interfaces are not needed while the machines are unknown.
        if lists.machines(&machine_lists.machines).is_none() {
            return;
        }
        self.look(lists, &machine_lists.interfaces);
        // Another resource group may be unreadable. Machines with their primary interface there are
        // then unusable one by one; machines that are gone are gone nevertheless.
        if machine_lists.left_out > 0 {
            let (looked, more) = (machine_lists.elsewhere.len(), machine_lists.left_out);
            let reason = format!(
                "its machines name network interfaces in {looked} other resource groups, which are read, and in {more} more, which are not"
            );
            self.problems.push(Problem { instance: "resource groups".to_owned(), reason });
        }
        for elsewhere in &machine_lists.elsewhere {
            match lists.0.get(elsewhere) {
                Some(ListState { contents: None, trouble: None, .. }) | None => self.is_open = true,
                Some(ListState { trouble: Some(trouble), .. }) => {
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

    /// Returns the instance name of a machine.
    fn name(&self, id: &ResourceId) -> String {
        if self.is_of_several { id.long() } else { id.short() }
    }

    /// Adds the machines of a scale set.
    fn add_scale_set(
        &mut self,
        set: &ScaleSet,
        query: &AzureQuery,
        lists: &Lists,
        before: &[Endpoint],
    ) {
        let machine_lists = MachineLists::for_scale_set(set, lists);
        self.look_at(lists, &machine_lists);
        let answers =
            (lists.machines(&machine_lists.machines), lists.interfaces(&machine_lists.interfaces));
        let (Some(machines), Some(_)) = answers else {
            self.is_partial = true;
            return;
        };
        self.is_answered = true;
        // Resource Graph lists only readable machines, and a scale set with capacity has some.
        let is_of_graph = lists.0.get(&machine_lists.machines).is_some_and(|held| held.is_of_graph);
        if machines.good.is_empty() && (set.capacity > 0 || is_of_graph) {
            self.is_authoritative = false;
        }
        for machine in machines.good.values() {
            let interfaces = interfaces(&machine.id, lists, &machine_lists);
            let read = endpoint::read(machine, Some(&machine.state), &interfaces, query, &set.tags);
            self.take(&machine.id, read, query, before);
        }
        self.unreadable(machines, query, before);
    }

    /// Adds the result of reading a machine.
    fn take(&mut self, id: &ResourceId, reading: Reading, query: &AzureQuery, before: &[Endpoint]) {
        let instance = self.name(id);
        let known = || {
            let is_it = |one: &&Endpoint| {
                one.instance.as_deref() == Some(&*instance) && one.port == query.port
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
                self.is_uncertain |= known.is_none();
                self.endpoints.extend(known);
                self.problems.push(Problem { instance, reason });
            }
        }
    }

    fn unreadable<T>(&mut self, entries: &Entries<T>, query: &AzureQuery, before: &[Endpoint]) {
        for unreadable in &entries.unreadable {
            let reason = unreadable.reason.clone();
            match &unreadable.id {
                // An unreadable machine that never matched the query is ignored.
                Some(id) if query.machines == AzureMachines::VirtualMachines => {
                    let name = self.name(id);
                    let is_known = before.iter().any(|one| one.instance.as_deref() == Some(&*name));
                    if is_known {
                        self.take(id, Reading::Unusable(reason), query, before);
                    }
                }
                Some(id) => self.take(id, Reading::Unusable(reason), query, before),
                None => {
                    self.is_authoritative = false;
                    self.problems.push(Problem { instance: "unnamed".to_owned(), reason });
                }
            }
        }
    }

    /// Adds problems for unreadable scale sets that may match.
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

/// Returns the interfaces of a machine from all lists.
fn interfaces<'a>(
    machine: &ResourceId,
    lists: &'a Lists,
    machine_lists: &MachineLists,
) -> Vec<&'a Interface> {
    let all =
        machine_lists.all_interfaces().filter_map(|list| lists.interfaces(list)?.get(machine));
    all.flatten().collect()
}

/// Returns the problem that no scale set matches. The credential can read the others, so the list
/// is complete.
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
