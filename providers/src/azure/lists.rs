//! The lists that the provider requests, each for all services that need it: never one call per
//! machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::AzureQuery;
use reqwest::StatusCode;

use super::arm::{Arm, ArmQuery, Calls};
use super::endpoint::Interfaces;
use super::error::RequestError;
use super::id::ResourceId;
use super::machines::{Entries, Interface, Machine, ScaleSet, State};
use super::wire;

const COMPUTE: &str = "2024-07-01";
const NETWORK: &str = "2024-05-01";
/// The network interfaces of uniform scale sets belong to the network provider, and have no newer
/// version.
const SET_NETWORK: &str = "2018-10-01";

/// Where machines are looked up. In lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    pub(super) subscription: Arc<str>,
    /// The resource group; none for the whole subscription.
    pub(super) group: Option<Arc<str>>,
}

/// A list of resources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    /// The scale sets of a scope.
    ScaleSets(Scope),
    /// The machines of a uniform scale set.
    UniformMachines(ResourceId),
    /// Their network interfaces, which are in no other list.
    UniformInterfaces(ResourceId),
    /// The machines of a flexible scale set.
    FlexibleMachines(ResourceId),
    /// All machines that are in no uniform scale set.
    Machines(Scope),
    /// The power states of all machines of a subscription.
    States(Arc<str>),
    /// Their network interfaces.
    Interfaces(Scope),
}

/// The content of a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Contents {
    ScaleSets(Entries<ScaleSet>),
    Machines(Entries<Machine>),
    States(BTreeMap<ResourceId, State>),
    Interfaces(Interfaces),
}

/// A list as it was answered.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) contents: Contents,
    /// Whether it came from Resource Graph, which is some seconds stale and limited to the readable
    /// resources.
    pub(super) is_of_graph: bool,
}

/// The outcome of requesting a list.
#[derive(Debug)]
pub(super) struct ListOutcome {
    pub(super) answer: Result<Fetched, RequestError>,
    /// The number of calls: all pages, attempts and fallbacks.
    pub(super) calls: usize,
}

impl Scope {
    /// Returns the scope of a query in policy.
    pub(super) fn of(query: &AzureQuery) -> Result<Self, String> {
        let Some(subscription) = &query.subscription else {
            return Err(
                "neither policy nor the settings say in which subscription; set `subscription` of `[azure]`"
                    .to_owned(),
            );
        };
        let group = query.resource_group.as_ref();
        let is_good = |name: &Arc<str>| {
            // Names become parts of paths and queries. Azure allows only these characters.
            let is_good = |c: char| c.is_alphanumeric() || "-_.()".contains(c);
            !name.is_empty() && name.chars().all(is_good) && &**name != "." && &**name != ".."
        };
        if let Some(bad) =
            [Some(subscription), group].into_iter().flatten().find(|one| !is_good(one))
        {
            return Err(format!("`{bad}` is no name of a subscription or resource group"));
        }
        let lower = |name: &Arc<str>| -> Arc<str> { name.to_lowercase().into() };
        Ok(Self { subscription: lower(subscription), group: group.map(lower) })
    }

    /// Returns the resource group of a resource.
    pub(super) fn around(id: &ResourceId) -> Self {
        Self { subscription: id.subscription().into(), group: Some(id.group().into()) }
    }

    /// Returns the scope of a whole subscription.
    fn whole(subscription: &Arc<str>) -> Self {
        Self { subscription: Arc::clone(subscription), group: None }
    }

    fn path(&self, rest: &[&str]) -> Vec<String> {
        let group = self.group.as_deref().map(|group| ["resourceGroups", group]);
        let scope = ["subscriptions", &self.subscription].into_iter();
        let all = scope.chain(group.into_iter().flatten()).chain(["providers"]);
        all.chain(rest.iter().copied()).map(str::to_owned).collect()
    }
}

impl List {
    /// Whether it lists network interfaces, which change only with machines.
    pub(super) fn is_of_interfaces(&self) -> bool {
        matches!(self, Self::UniformInterfaces(_) | Self::Interfaces(_))
    }

    /// Whether it covers a whole subscription.
    pub(super) fn is_of_subscription(&self) -> bool {
        match self {
            Self::ScaleSets(scope) | Self::Machines(scope) | Self::Interfaces(scope) => {
                scope.group.is_none()
            }
            Self::States(_) => true,
            Self::UniformMachines(_) | Self::UniformInterfaces(_) | Self::FlexibleMachines(_) => {
                false
            }
        }
    }

    /// Returns the scale set of the list, if it has one.
    pub(super) fn scale_set(&self) -> Option<&ResourceId> {
        match self {
            Self::UniformMachines(set)
            | Self::UniformInterfaces(set)
            | Self::FlexibleMachines(set) => Some(set),
            _ => None,
        }
    }

    /// Requests the list. `with_graph` allows Resource Graph as the source.
    pub(super) async fn ask(&self, arm: &Arm, with_graph: bool) -> ListOutcome {
        let calls = Calls::default();
        let answer = self.answer(arm, with_graph, &calls).await;
        ListOutcome { answer, calls: calls.count() }
    }

    async fn answer(
        &self,
        arm: &Arm,
        with_graph: bool,
        calls: &Calls,
    ) -> Result<Fetched, RequestError> {
        if let Self::States(subscription) = self {
            return states(arm, subscription, with_graph, calls).await;
        }
        let query = self.query();
        let can_be_of_graph = matches!(self, Self::UniformMachines(_) | Self::FlexibleMachines(_));
        let mut is_of_graph = with_graph && can_be_of_graph;
        let entries = if is_of_graph {
            let mut of_graph = self.query();
            of_graph.parameters.push(("useResourceGraph", "true".to_owned()));
            match arm.list(&of_graph, calls).await {
                Err(error) if others_may_answer(&error) => {
                    is_of_graph = false;
                    arm.list(&query, calls).await?
                }
                other => other?,
            }
        } else {
            arm.list(&query, calls).await?
        };
        let contents = match self {
            Self::ScaleSets(_) => Contents::ScaleSets(Entries::read(entries, ScaleSet::read)),
            Self::UniformMachines(_) | Self::FlexibleMachines(_) | Self::Machines(_) => {
                Contents::Machines(Entries::read(entries, Machine::read))
            }
            Self::UniformInterfaces(_) | Self::Interfaces(_) | Self::States(_) => {
                Contents::Interfaces(by_machine(Entries::read(entries, Interface::read)))
            }
        };
        Ok(Fetched { contents, is_of_graph })
    }

    fn query(&self) -> ArmQuery {
        const SETS: &str = "virtualMachineScaleSets";
        let (path, version, action) = match self {
            Self::ScaleSets(scope) => (
                scope.path(&["Microsoft.Compute", SETS]),
                COMPUTE,
                "Microsoft.Compute/virtualMachineScaleSets/read",
            ),
            Self::UniformMachines(set) => (
                Scope::around(set).path(&[
                    "Microsoft.Compute",
                    SETS,
                    set.name(),
                    "virtualMachines",
                ]),
                COMPUTE,
                "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
            ),
            Self::UniformInterfaces(set) => (
                Scope::around(set).path(&[
                    "Microsoft.Compute",
                    SETS,
                    set.name(),
                    "networkInterfaces",
                ]),
                SET_NETWORK,
                "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
            ),
            Self::FlexibleMachines(set) => (
                Scope::around(set).path(&["Microsoft.Compute", "virtualMachines"]),
                COMPUTE,
                "Microsoft.Compute/virtualMachines/read",
            ),
            Self::Machines(scope) => (
                scope.path(&["Microsoft.Compute", "virtualMachines"]),
                COMPUTE,
                "Microsoft.Compute/virtualMachines/read",
            ),
            Self::States(subscription) => (
                Scope::whole(subscription).path(&["Microsoft.Compute", "virtualMachines"]),
                COMPUTE,
                "Microsoft.Compute/virtualMachines/read",
            ),
            Self::Interfaces(scope) => (
                scope.path(&["Microsoft.Network", "networkInterfaces"]),
                NETWORK,
                "Microsoft.Network/networkInterfaces/read",
            ),
        };
        let mut parameters = vec![("api-version", version.to_owned())];
        let expand = ("$expand", "instanceView".to_owned());
        match self {
            Self::UniformMachines(_) => parameters.push(expand),
            Self::FlexibleMachines(set) => {
                // An id has no quotes: Azure allows none in names.
                let filter = format!("'virtualMachineScaleSet/id' eq '{}'", set.text());
                parameters.extend([("$filter", filter), expand]);
            }
            // Only the list of a whole subscription has power states.
            Self::States(_) => parameters.push(("statusOnly", "true".to_owned())),
            _ => {}
        }
        ArmQuery { path, parameters, body: None, action }
    }
}

/// Requests power states. The resource provider lists them only for whole subscriptions that are
/// readable; Resource Graph lists those of readable machines.
async fn states(
    arm: &Arm,
    subscription: &Arc<str>,
    with_graph: bool,
    calls: &Calls,
) -> Result<Fetched, RequestError> {
    if with_graph {
        match states_of_graph(arm, subscription, calls).await {
            Err(error) if others_may_answer(&error) => {}
            other => return other,
        }
    }
    match arm.list(&List::States(Arc::clone(subscription)).query(), calls).await {
        Ok(entries) => {
            let machines = Entries::read(entries, Machine::read).good.into_iter();
            let states = machines.map(|(id, machine)| (id, machine.state)).collect();
            Ok(Fetched { contents: Contents::States(states), is_of_graph: false })
        }
        Err(error) if error.has_status(StatusCode::FORBIDDEN) && !with_graph => {
            states_of_graph(arm, subscription, calls).await.map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}

/// Whether the resource provider may answer in place of Resource Graph: 422 marks an unsupported
/// query, other errors its absence, and it leaves out rows if there are too many.
fn others_may_answer(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::Status { .. }
            | RequestError::Malformed(_)
            | RequestError::Throttled(_)
            | RequestError::TooLarge(_)
    )
}

/// Requests power states of all resource groups in one query, as from the resource provider. The
/// answer has the readable ones.
async fn states_of_graph(
    arm: &Arm,
    subscription: &str,
    calls: &Calls,
) -> Result<Fetched, RequestError> {
    // Without the id in the projection, pages are not stable.
    let query = "Resources | where type =~ 'microsoft.compute/virtualmachines' | project id, \
                 power = tostring(properties.extended.instanceView.powerState.code)";
    let entries = arm.rows(subscription, query, calls).await?;
    let states = Entries::read(entries, |row: wire::PowerRow| State::from_row(row)).good;
    Ok(Fetched { contents: Contents::States(states), is_of_graph: true })
}

/// Groups interfaces by machine. An unreadable interface counts as missing: its machine has no
/// address.
fn by_machine(interfaces: Entries<(Option<ResourceId>, Interface)>) -> Interfaces {
    let mut all = Interfaces::new();
    for (machine, interface) in interfaces.good.into_values() {
        if let Some(machine) = machine {
            all.entry(machine).or_default().push(interface);
        }
    }
    all
}

#[cfg(test)]
mod tests;
