//! The machines of lists, by their `vmId`. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ironmesh_catalog::{AzureMachines, AzureQuery, JoinRank, Locality, ServiceName};
use tokio::time::Instant;
use uuid::Uuid;

use super::endpoint::locality;
use super::list_state::{Lists, MachineLists, matching, single};
use super::lists::{List, Scope};
use super::machines::{Machine, ScaleSet};

/// A machine, as Azure's lists show it to those that decide about its enrollment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownMachine {
    /// Azure's id of the machine. It survives a reimage.
    pub vm_id: Uuid,
    /// The id of its resource, as Azure writes it.
    pub resource: String,
    /// The name of its scale set, in lower case; `None` outside of one.
    pub scale_set: Option<String>,
    /// Its tags over those of its scale set, by their names in lower case.
    pub tags: BTreeMap<Arc<str>, Arc<str>>,
    /// The addresses of its network interfaces, those of the primary one first.
    pub addresses: Vec<IpAddr>,
    /// Its locality.
    pub locality: Locality,
    /// What identifies its OS disk; `None` if Azure does not report it. A reimage replaces the disk.
    pub os_disk: Option<Arc<str>>,
    /// Whether Azure is changing it, so that the disk may still be the former one.
    pub is_updating: bool,
    /// The services as which it may join, the primary ones first.
    pub services: Vec<ServiceName>,
    /// The services that name its scale set or its tags, and do not let it join.
    pub without_join: Vec<ServiceName>,
    /// When the request of the list began that shows it.
    pub read_at: Instant,
}

/// A machine, and the lists that show it.
pub(super) struct Located<'a> {
    pub(super) machine: &'a Machine,
    pub(super) lists: MachineLists,
    set: Option<&'a ScaleSet>,
}

/// The lists in which the machines of a query are, with the scale set of each.
pub(super) fn machine_lists<'a>(
    query: &AzureQuery,
    scope: &Scope,
    lists: &'a Lists,
) -> Vec<(MachineLists, Option<&'a ScaleSet>)> {
    match &query.machines {
        AzureMachines::VirtualMachines => {
            vec![(MachineLists::for_single_machines(scope, query, lists), None)]
        }
        AzureMachines::ScaleSet(_) => {
            let sets = lists.scale_sets(scope).into_iter().flat_map(|sets| matching(sets, query));
            sets.map(|set| (MachineLists::for_scale_set(set, lists), Some(set))).collect()
        }
    }
}

/// The machine with this `vmId` among those of a query.
pub(super) fn locate<'a>(query: &AzureQuery, lists: &'a Lists, vm_id: Uuid) -> Option<Located<'a>> {
    let scope = Scope::of(query).ok()?;
    let is_it = |machine: &&Machine| machine.vm_id == Some(vm_id);
    machine_lists(query, &scope, lists).into_iter().find_map(|(of, set)| {
        let known = lists.machines(&of.machines)?;
        let machine = match set {
            Some(_) => known.good.values().find(is_it),
            None => single(known, query).find(is_it),
        };
        Some(Located { machine: machine?, lists: of, set })
    })
}

/// The machine with this `vmId`, with the services of all queries that match it.
pub(super) fn find(
    queries: &BTreeMap<ServiceName, Vec<AzureQuery>>,
    lists: &Lists,
    vm_id: Uuid,
) -> Option<KnownMachine> {
    let mut found: Option<KnownMachine> = None;
    let mut joins: BTreeMap<&ServiceName, Option<JoinRank>> = BTreeMap::new();
    for (service, query) in
        queries.iter().flat_map(|(name, own)| own.iter().map(move |one| (name, one)))
    {
        let Some(located) = locate(query, lists, vm_id) else { continue };
        let Some(machine) = located.known(lists) else { continue };
        // Azure has one machine with this id: another resource is a contradiction, and counts for nothing.
        if found.as_ref().is_some_and(|found| found.resource != machine.resource) {
            continue;
        }
        found = Some(machine);
        let known = joins.entry(service).or_default();
        // Of several queries of a service, the strongest opt-in counts.
        *known = [*known, query.join].into_iter().flatten().min();
    }
    let mut joining: Vec<_> =
        joins.iter().filter_map(|(name, join)| Some(((*join)?, (*name).clone()))).collect();
    joining.sort();
    let without = joins.iter().filter(|(_, join)| join.is_none());
    Some(KnownMachine {
        services: joining.into_iter().map(|(_, name)| name).collect(),
        without_join: without.map(|(name, _)| (*name).clone()).collect(),
        ..found?
    })
}

impl Located<'_> {
    /// The list that shows the machine, and then those with its addresses.
    pub(super) fn all_lists(&self) -> Vec<List> {
        let MachineLists { machines, interfaces, elsewhere, .. } = &self.lists;
        let named = self.machine.interfaces.iter().map(Scope::around).map(List::Interfaces);
        let named: BTreeSet<_> = named.collect();
        let other_groups = elsewhere.iter().filter(|list| named.contains(list));
        [machines, interfaces].into_iter().chain(other_groups).cloned().collect()
    }

    /// What the lists show of the machine, without services.
    fn known(&self, lists: &Lists) -> Option<KnownMachine> {
        let Self { machine, lists: of, set } = self;
        let read_at = lists.0.get(&of.machines)?.read_at?;
        let interfaces = of.all_interfaces().filter_map(|list| lists.interfaces(list));
        let mut interfaces: Vec<_> =
            interfaces.filter_map(|all| all.get(&machine.id)).flatten().collect();
        interfaces.sort_by_key(|one| !one.is_primary);
        let of_set = set.iter().flat_map(|set| &set.tags);
        let tags = of_set.chain(&machine.tags);
        Some(KnownMachine {
            vm_id: machine.vm_id?,
            resource: machine.id.text().to_owned(),
            scale_set: set.map(|set| set.id.name().to_owned()),
            tags: tags.map(|(name, value)| (Arc::clone(name), Arc::clone(value))).collect(),
            addresses: interfaces.into_iter().flat_map(|one| one.addresses.clone()).collect(),
            locality: locality(machine),
            os_disk: machine.os_disk.clone(),
            is_updating: &*machine.state.provisioning == "updating",
            services: Vec::new(),
            without_join: Vec::new(),
            read_at,
        })
    }
}
