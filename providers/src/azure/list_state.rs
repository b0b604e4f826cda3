//! The latest content of each list, and the lists that services need. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{AzureMachines, AzureQuery, ServiceName};
use tokio::time::Instant;

use super::endpoint::Interfaces;
use super::id::ResourceId;
use super::lists::{Contents, List, Scope};
use super::machines::{Entries, Machine, ScaleSet, State};
use crate::Stale;

/// The number of other resource groups whose interfaces are read for the machines of one list.
const MAX_ELSEWHERE: usize = 20;

/// The latest state of a list.
#[derive(Debug, Clone, Default)]
pub(super) struct ListState {
    /// The last answer, if there was one.
    pub(super) contents: Option<Arc<Contents>>,
    /// Why, and since when, there is no newer answer.
    pub(super) trouble: Option<Stale>,
    /// Whether the failure concerns all requests.
    pub(super) is_trouble_general: bool,
    /// Whether the answer came from Resource Graph.
    pub(super) is_of_graph: bool,
    /// When the request of the last answer began: nothing in the answer is older.
    pub(super) read_at: Option<Instant>,
}

impl ListState {
    /// Whether there is an answer or an error.
    pub(super) fn is_known(&self) -> bool {
        self.contents.is_some() || self.trouble.is_some()
    }
}

/// All needed lists.
#[derive(Debug, Clone, Default)]
pub(super) struct Lists(pub(super) BTreeMap<List, ListState>);

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

    /// Returns the earliest failure, if all requested lists fail for a general reason.
    pub(super) fn general(&self) -> Option<Stale> {
        let mut troubles = Vec::new();
        for (list, held) in &self.0 {
            match &held.trouble {
                Some(trouble) if held.is_trouble_general => troubles.push(trouble),
                // The list was not requested yet, or is requested rarely.
                None if held.contents.is_none() || list.is_of_interfaces() => {}
                _ => return None,
            }
        }
        troubles.into_iter().min_by_key(|trouble| trouble.since).cloned()
    }

    fn contents(&self, list: &List) -> Option<&Contents> {
        self.0.get(list)?.contents.as_deref()
    }

    /// Whether each of these lists has an answer or an error.
    pub(super) fn are_known(&self, lists: &BTreeSet<List>) -> bool {
        let mut held = lists.iter().filter_map(|list| self.0.get(list));
        held.all(ListState::is_known)
    }

    /// Whether machines that appeared in a list have their interfaces in `interfaces`. States cover
    /// a whole subscription, of which a service may need few machines.
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

    /// Whether running machines of these lists have no address in this list of interfaces, so that
    /// it should be requested soon.
    pub(super) fn lack(&self, of: &BTreeSet<List>, interfaces: &List) -> bool {
        let Some(known) = self.interfaces(interfaces) else { return true };
        let has_address =
            |id| known.get(id).is_some_and(|all| all.iter().any(|one| !one.addresses.is_empty()));
        // A machine whose interfaces are in other lists lacks nothing here.
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

/// Whether a machine is off, and needs no address.
pub(super) fn is_off(state: &State) -> bool {
    matches!(state.power.as_deref(), Some("stopped" | "deallocated" | "hibernated"))
}

/// Returns the scale sets that match a query.
pub(super) fn matching<'a>(
    sets: &'a Entries<ScaleSet>,
    query: &AzureQuery,
) -> impl Iterator<Item = &'a ScaleSet> {
    let name = match &query.machines {
        AzureMachines::ScaleSet(name) => name.clone().map(|name| name.to_lowercase()),
        AzureMachines::VirtualMachines => None,
    };
    let tags = query.tags.clone();
    sets.good.values().filter(move |set| {
        name.as_deref().is_none_or(|name| set.id.name() == name)
            && tags.iter().all(|(name, value)| set.tags.get(name) == Some(value))
    })
}

/// Returns the machines outside of scale sets that match a query.
pub(super) fn single<'a>(
    machines: &'a Entries<Machine>,
    query: &AzureQuery,
) -> impl Iterator<Item = &'a Machine> {
    let tags = query.tags.clone();
    let single = machines.good.values().filter(|machine| !machine.is_in_scale_set);
    single.filter(move |machine| {
        tags.iter().all(|(name, value)| machine.tags.get(name) == Some(value))
    })
}

/// The lists that hold machines and their network interfaces.
#[derive(Debug)]
pub(super) struct MachineLists {
    /// The list of the machines.
    pub(super) machines: List,
    /// The list of their interfaces, as a rule.
    pub(super) interfaces: List,
    /// The lists of interfaces in other resource groups, as machines name them.
    pub(super) elsewhere: BTreeSet<List>,
    /// The number of other resource groups that are not read.
    pub(super) left_out: usize,
}

impl MachineLists {
    /// Returns the lists of a scale set.
    pub(super) fn for_scale_set(set: &ScaleSet, lists: &Lists) -> Self {
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

    /// Returns the lists of machines outside of scale sets.
    pub(super) fn for_single_machines(scope: &Scope, query: &AzureQuery, lists: &Lists) -> Self {
        let machines = List::Machines(scope.clone());
        let interfaces = List::Interfaces(scope.clone());
        let states = lists.states(&List::States(Arc::clone(&scope.subscription)));
        let known = lists.machines(&machines).into_iter();
        let on = known.flat_map(|known| single(known, query)).filter(|machine| {
            // Their power states come in a separate list; until that arrives, they are not
            // reported.
            states.and_then(|states| states.get(&machine.id)).is_some_and(|state| !is_off(state))
        });
        let (elsewhere, left_out) = elsewhere(scope, on, lists.interfaces(&interfaces));
        Self { machines, interfaces, elsewhere, left_out }
    }

    /// Returns all lists of interfaces.
    pub(super) fn all_interfaces(&self) -> impl Iterator<Item = &List> {
        std::iter::once(&self.interfaces).chain(&self.elsewhere)
    }
}

/// Returns the lists of interfaces in other resource groups, and the number of groups beyond the
/// limit. `own` are the interfaces of the machines' own group. Only running machines without a
/// primary interface there count. Other subscriptions are not read.
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

/// The needed lists, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// The lists, with the services that need them.
    pub(super) lists: BTreeMap<List, BTreeSet<ServiceName>>,
    /// For each list of interfaces, the lists of its machines and of their states.
    pub(super) machines_of: BTreeMap<List, BTreeSet<List>>,
}

impl Needs {
    /// Returns the lists with the interfaces of a list's machines.
    pub(super) fn interfaces_of(&self, list: &List) -> Vec<List> {
        let of_it = self.machines_of.iter().filter(|(_, machines)| machines.contains(list));
        of_it.map(|(interfaces, _)| interfaces.clone()).collect()
    }
}

/// Determines the needed lists, as far as they are known.
pub(super) fn needed(queries: &BTreeMap<ServiceName, Vec<AzureQuery>>, lists: &Lists) -> Needs {
    let mut needs = Needs::default();
    for (name, own) in queries {
        for query in own {
            let Ok(scope) = Scope::of(query) else { continue };
            let mut need = |list| {
                needs.lists.entry(list).or_default().insert(name.clone());
            };
            let mut machine_lists = Vec::new();
            match &query.machines {
                AzureMachines::VirtualMachines => {
                    let states = List::States(Arc::clone(&scope.subscription));
                    need(states.clone());
                    machine_lists.push((
                        MachineLists::for_single_machines(&scope, query, lists),
                        Some(states),
                    ));
                }
                AzureMachines::ScaleSet(_) => {
                    for set in
                        lists.scale_sets(&scope).into_iter().flat_map(|sets| matching(sets, query))
                    {
                        machine_lists.push((MachineLists::for_scale_set(set, lists), None));
                    }
                    need(List::ScaleSets(scope));
                }
            }
            for (machine_lists, states) in machine_lists {
                for interfaces in machine_lists.all_interfaces() {
                    need(interfaces.clone());
                    let of = needs.machines_of.entry(interfaces.clone()).or_default();
                    of.insert(machine_lists.machines.clone());
                    of.extend(states.clone());
                }
                need(machine_lists.machines);
            }
        }
    }
    needs
}
