//! What is held of each list, and which lists are needed for which services. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{AzureMachines, AzureQuery, ServiceName};

use super::endpoint::Interfaces;
use super::id::ResourceId;
use super::lists::{Contents, List, Scope};
use super::machines::{Entries, Machine, ScaleSet, State};
use crate::Stale;

/// What is held of a list.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    /// What was answered last; none while nothing was.
    pub(super) contents: Option<Arc<Contents>>,
    /// Since when and why there is no newer answer.
    pub(super) trouble: Option<Stale>,
    /// Whether that concerns whoever is asked, and not what is asked.
    pub(super) is_trouble_general: bool,
    /// Whether it is of Resource Graph.
    pub(super) is_of_graph: bool,
}

/// All lists that are needed.
#[derive(Debug, Clone, Default)]
pub(super) struct Lists(pub(super) BTreeMap<List, Held>);

impl Lists {
    pub(super) fn scale_sets(&self, scope: &Scope) -> Option<&Entries<ScaleSet>> {
        match self.contents(&List::ScaleSets(scope.clone()))? {
            Contents::ScaleSets(sets) => Some(sets),
            _ => None,
        }
    }

    pub(super) fn machines(&self, list: &List) -> Option<&Entries<Machine>> {
        match self.contents(list)? {
            Contents::Machines(machines) => Some(machines),
            _ => None,
        }
    }

    pub(super) fn states(&self, scope: &Scope) -> Option<&BTreeMap<ResourceId, State>> {
        match self.contents(&List::States(scope.clone()))? {
            Contents::States(states) => Some(states),
            _ => None,
        }
    }

    pub(super) fn interfaces(&self, list: &List) -> Option<&Interfaces> {
        match self.contents(list)? {
            Contents::Interfaces(interfaces) => Some(interfaces),
            _ => None,
        }
    }

    /// Since when and why nobody can be asked, if so it is for all lists that were asked for.
    pub(super) fn general(&self) -> Option<Stale> {
        let mut troubles = Vec::new();
        for (list, held) in &self.0 {
            match &held.trouble {
                Some(trouble) if held.is_trouble_general => troubles.push(trouble),
                // It was not asked for yet, or is asked for now and then only.
                None if held.contents.is_none() || list.is_of_interfaces() => {}
                _ => return None,
            }
        }
        troubles.into_iter().min_by_key(|trouble| trouble.since).cloned()
    }

    fn contents(&self, list: &List) -> Option<&Contents> {
        self.0.get(list)?.contents.as_deref()
    }

    /// Whether all that can be known now of the machines is known whose interfaces these are.
    pub(super) fn knows_machines_of(&self, interfaces: &List) -> bool {
        let mut of_it =
            self.0.iter().filter(|(list, _)| list.interfaces().as_ref() == Some(interfaces));
        of_it.all(|(_, held)| held.contents.is_some() || held.trouble.is_some())
    }

    /// Whether machines that are on have no address in this list, so that it is worth to ask soon again.
    pub(super) fn lacks(&self, interfaces: &List) -> bool {
        let Some(known) = self.interfaces(interfaces) else { return true };
        let has_address =
            |id| known.get(id).is_some_and(|all| all.iter().any(|one| !one.addresses.is_empty()));
        let of_it = self.0.keys().filter(|list| list.interfaces().as_ref() == Some(interfaces));
        let mut machines = of_it.filter_map(|list| Some(&self.machines(list)?.good)).flatten();
        machines.any(|(id, machine)| !is_off(&machine.state) && !has_address(id))
    }
}

/// Machines that are off need no address.
pub(super) fn is_off(state: &State) -> bool {
    matches!(state.power.as_deref(), Some("stopped" | "deallocated" | "hibernated"))
}

/// The scale sets that a question is about.
pub(super) fn matching<'a>(
    sets: &'a Entries<ScaleSet>,
    question: &AzureQuery,
) -> impl Iterator<Item = &'a ScaleSet> {
    let name = match &question.machines {
        AzureMachines::ScaleSet(name) => name.clone().map(|name| name.to_lowercase()),
        AzureMachines::VirtualMachines => None,
    };
    let tags = question.tags.clone();
    sets.good.values().filter(move |set| {
        name.as_deref().is_none_or(|name| set.id.name() == name)
            && tags.iter().all(|(name, value)| set.tags.get(name) == Some(value))
    })
}

/// The lists of the machines of a scale set, and of their network interfaces.
pub(super) fn of_set(set: &ScaleSet) -> (List, List) {
    if set.is_flexible {
        (List::FlexibleMachines(set.id.clone()), List::Interfaces(Scope::around(&set.id)))
    } else {
        (List::UniformMachines(set.id.clone()), List::UniformInterfaces(set.id.clone()))
    }
}

/// The lists that are needed, as far as is known, with those who need them.
pub(super) fn needed(
    asked: &BTreeMap<ServiceName, Vec<AzureQuery>>,
    lists: &Lists,
) -> BTreeMap<List, BTreeSet<ServiceName>> {
    let mut needed: BTreeMap<List, BTreeSet<ServiceName>> = BTreeMap::new();
    for (name, questions) in asked {
        for question in questions {
            let Ok(scope) = Scope::of(question) else { continue };
            let mut need = |list| {
                needed.entry(list).or_default().insert(name.clone());
            };
            match &question.machines {
                AzureMachines::VirtualMachines => {
                    need(List::Machines(scope.clone()));
                    need(List::States(scope.clone()));
                    need(List::Interfaces(scope));
                }
                AzureMachines::ScaleSet(_) => {
                    for set in lists
                        .scale_sets(&scope)
                        .into_iter()
                        .flat_map(|sets| matching(sets, question))
                    {
                        let (machines, interfaces) = of_set(set);
                        need(machines);
                        need(interfaces);
                    }
                    need(List::ScaleSets(scope));
                }
            }
        }
    }
    needed
}
