//! What is held of each list, and which lists are needed for which services. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{AzureMachines, AzureQuery, ServiceName};

use super::endpoint::Interfaces;
use super::id::ResourceId;
use super::lists::{Contents, List, Scope};
use super::machines::{Entries, Machine, ScaleSet, State};
use crate::Stale;

/// In so many other resource groups interfaces of the machines of a list are looked for.
const MAX_ELSEWHERE: usize = 20;

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

impl Held {
    /// Whether all that can be known of it now is known.
    pub(super) fn is_known(&self) -> bool {
        self.contents.is_some() || self.trouble.is_some()
    }
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

    pub(super) fn states(&self, list: &List) -> Option<&BTreeMap<ResourceId, State>> {
        match self.contents(list)? {
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

    /// Whether all that can be known now of these lists is known.
    pub(super) fn are_known(&self, lists: &BTreeSet<List>) -> bool {
        let mut held = lists.iter().filter_map(|list| self.0.get(list));
        held.all(Held::is_known)
    }

    /// Whether machines that came in a list have their interfaces in this one. States are of a whole
    /// subscription, of which few machines may be asked for.
    pub(super) fn concern(
        &self,
        came: &[ResourceId],
        list: &List,
        interfaces: &List,
        needs: &Needs,
    ) -> bool {
        if !matches!(list, List::States(_)) {
            return !came.is_empty();
        }
        let of = needs.machines_of.get(interfaces).into_iter().flatten();
        let mut known = of.filter_map(|list| self.machines(list));
        known.any(|known| came.iter().any(|id| known.good.contains_key(id)))
    }

    /// Whether machines of these lists that are on have no address in this list of interfaces, so that it is
    /// worth to ask soon again.
    pub(super) fn lack(&self, of: &BTreeSet<List>, interfaces: &List) -> bool {
        let Some(known) = self.interfaces(interfaces) else { return true };
        let has_address =
            |id| known.get(id).is_some_and(|all| all.iter().any(|one| !one.addresses.is_empty()));
        // One whose interfaces are known to be elsewhere lacks nothing here.
        let is_here = |machine: &Machine| {
            let mut named = machine.interfaces.iter().map(Scope::around).map(List::Interfaces);
            machine.interfaces.is_empty()
                || interfaces.is_of_subscription()
                || named.any(|list| list == *interfaces)
        };
        let mut machines = of.iter().filter_map(|list| Some(&self.machines(list)?.good)).flatten();
        machines
            .any(|(id, machine)| !is_off(&machine.state) && is_here(machine) && !has_address(id))
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

/// The machines in no scale set that a question is about.
pub(super) fn single<'a>(
    machines: &'a Entries<Machine>,
    question: &AzureQuery,
) -> impl Iterator<Item = &'a Machine> {
    let tags = question.tags.clone();
    let single = machines.good.values().filter(|machine| !machine.is_in_scale_set);
    single.filter(move |machine| {
        tags.iter().all(|(name, value)| machine.tags.get(name) == Some(value))
    })
}

/// The lists in which machines are, and their network interfaces.
#[derive(Debug)]
pub(super) struct Places {
    /// That of the machines.
    pub(super) machines: List,
    /// That of their interfaces, as a rule.
    pub(super) interfaces: List,
    /// Those of interfaces that are in other resource groups than their machines, as machines name them.
    pub(super) elsewhere: BTreeSet<List>,
    /// In so many more groups there are some that are not looked for.
    pub(super) left_out: usize,
}

impl Places {
    /// Those of a scale set.
    pub(super) fn of_set(set: &ScaleSet, lists: &Lists) -> Self {
        if !set.is_flexible {
            let machines = List::UniformMachines(set.id.clone());
            let interfaces = List::UniformInterfaces(set.id.clone());
            return Self { machines, interfaces, elsewhere: BTreeSet::new(), left_out: 0 };
        }
        let machines = List::FlexibleMachines(set.id.clone());
        let scope = Scope::around(&set.id);
        let interfaces = List::Interfaces(scope.clone());
        let known = lists.machines(&machines).into_iter().flat_map(|known| known.good.values());
        let on = known.filter(|machine| !is_off(&machine.state));
        let (elsewhere, left_out) = elsewhere(&scope, on, lists.interfaces(&interfaces));
        Self { machines, interfaces, elsewhere, left_out }
    }

    /// Those of machines in no scale set.
    pub(super) fn of_single(scope: &Scope, question: &AzureQuery, lists: &Lists) -> Self {
        let machines = List::Machines(scope.clone());
        let interfaces = List::Interfaces(scope.clone());
        let states = lists.states(&List::States(Arc::clone(&scope.subscription)));
        let known = lists.machines(&machines).into_iter();
        let on = known.flat_map(|known| single(known, question)).filter(|machine| {
            // Whether they run is told apart; until it is, nothing is told of them.
            states.and_then(|states| states.get(&machine.id)).is_some_and(|state| !is_off(state))
        });
        let (elsewhere, left_out) = elsewhere(scope, on, lists.interfaces(&interfaces));
        Self { machines, interfaces, elsewhere, left_out }
    }

    /// All lists of interfaces.
    pub(super) fn all_interfaces(&self) -> impl Iterator<Item = &List> {
        std::iter::once(&self.interfaces).chain(&self.elsewhere)
    }
}

/// The lists of interfaces in other groups than where one looks anyway, which shows `own`: of machines that are
/// on and whose primary interface is not there; and how many more there are than are asked. In another
/// subscription none is.
fn elsewhere<'a>(
    scope: &Scope,
    machines: impl Iterator<Item = &'a Machine>,
    own: Option<&Interfaces>,
) -> (BTreeSet<List>, usize) {
    let (Some(group), Some(own)) = (scope.group.as_deref(), own) else {
        return (BTreeSet::new(), 0);
    };
    let is_found = |machine: &Machine| {
        own.get(&machine.id).is_some_and(|shown| shown.iter().any(|one| one.is_primary))
    };
    let interfaces =
        machines.filter(|machine| !is_found(machine)).flat_map(|machine| &machine.interfaces);
    let others = interfaces
        .filter(|one| one.subscription() == &*scope.subscription && one.group() != group)
        .map(|one| List::Interfaces(Scope::around(one)));
    let others: BTreeSet<_> = others.collect();
    let left_out = others.len().saturating_sub(MAX_ELSEWHERE);
    (others.into_iter().take(MAX_ELSEWHERE).collect(), left_out)
}

/// What is needed, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// The lists, with those who need them.
    pub(super) lists: BTreeMap<List, BTreeSet<ServiceName>>,
    /// Of which machines the interfaces of a list are: the lists of these, and of their states.
    pub(super) machines_of: BTreeMap<List, BTreeSet<List>>,
}

impl Needs {
    /// The lists of the interfaces of the machines of a list.
    pub(super) fn interfaces_of(&self, list: &List) -> Vec<List> {
        let of_it = self.machines_of.iter().filter(|(_, machines)| machines.contains(list));
        of_it.map(|(interfaces, _)| interfaces.clone()).collect()
    }
}

/// What is needed, as far as is known.
pub(super) fn needed(asked: &BTreeMap<ServiceName, Vec<AzureQuery>>, lists: &Lists) -> Needs {
    let mut needs = Needs::default();
    for (name, questions) in asked {
        for question in questions {
            let Ok(scope) = Scope::of(question) else { continue };
            let mut need = |list| {
                needs.lists.entry(list).or_default().insert(name.clone());
            };
            let mut places = Vec::new();
            match &question.machines {
                AzureMachines::VirtualMachines => {
                    let states = List::States(Arc::clone(&scope.subscription));
                    need(states.clone());
                    places.push((Places::of_single(&scope, question, lists), Some(states)));
                }
                AzureMachines::ScaleSet(_) => {
                    for set in lists
                        .scale_sets(&scope)
                        .into_iter()
                        .flat_map(|sets| matching(sets, question))
                    {
                        places.push((Places::of_set(set, lists), None));
                    }
                    need(List::ScaleSets(scope));
                }
            }
            for (places, states) in places {
                for interfaces in places.all_interfaces() {
                    need(interfaces.clone());
                    let of = needs.machines_of.entry(interfaces.clone()).or_default();
                    of.insert(places.machines.clone());
                    of.extend(states.clone());
                }
                need(places.machines);
            }
        }
    }
    needs
}
