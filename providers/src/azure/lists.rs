//! The lists that Azure is asked for, each for all services that need it: never one call for one machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::AzureQuery;
use reqwest::StatusCode;

use super::arm::{Arm, Calls, Question};
use super::endpoint::Interfaces;
use super::error::RequestError;
use super::id::ResourceId;
use super::machines::{Entries, Interface, Machine, ScaleSet, State};
use super::wire;

const COMPUTE: &str = "2024-07-01";
const NETWORK: &str = "2024-05-01";
/// The network interfaces of uniform scale sets are the network provider's, and have no newer version.
const SET_NETWORK: &str = "2018-10-01";

/// Where machines are looked for. In lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    pub(super) subscription: Arc<str>,
    /// The resource group; none for the whole subscription.
    pub(super) group: Option<Arc<str>>,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    /// The scale sets that there are.
    ScaleSets(Scope),
    /// The machines of a uniform scale set.
    UniformMachines(ResourceId),
    /// Their network interfaces, which are in no other list.
    UniformInterfaces(ResourceId),
    /// The machines of a flexible scale set.
    FlexibleMachines(ResourceId),
    /// All machines that are in no uniform scale set.
    Machines(Scope),
    /// Whether those of a subscription run, which is told of all of it at once.
    States(Arc<str>),
    /// Their network interfaces.
    Interfaces(Scope),
}

/// What is in a list.
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
    /// Whether it is of Resource Graph, which is behind and shows what one may read.
    pub(super) is_of_graph: bool,
}

/// What came of asking for a list.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) answer: Result<Fetched, RequestError>,
    /// How many calls that took: of all pages and attempts, and of whoever was asked first and said no.
    pub(super) calls: usize,
}

impl Scope {
    /// Where a question of policy looks.
    pub(super) fn of(question: &AzureQuery) -> Result<Self, String> {
        let Some(subscription) = &question.subscription else {
            return Err(
                "neither policy nor the settings say in which subscription; set `subscription` of `[azure]`"
                    .to_owned(),
            );
        };
        let group = question.resource_group.as_ref();
        let is_good = |name: &Arc<str>| {
            // Names become parts of paths and queries. These are all characters that Azure takes.
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

    /// The resource group that something is in.
    pub(super) fn around(id: &ResourceId) -> Self {
        Self { subscription: id.subscription().into(), group: Some(id.group().into()) }
    }

    /// All of a subscription.
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
    /// Whether it is of network interfaces, which change only where machines do.
    pub(super) fn is_of_interfaces(&self) -> bool {
        matches!(self, Self::UniformInterfaces(_) | Self::Interfaces(_))
    }

    /// Whether it is of a whole subscription.
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

    /// The scale set that it is of.
    pub(super) fn scale_set(&self) -> Option<&ResourceId> {
        match self {
            Self::UniformMachines(set)
            | Self::UniformInterfaces(set)
            | Self::FlexibleMachines(set) => Some(set),
            _ => None,
        }
    }

    /// Asks for it. `with_graph` says whether Resource Graph may answer what it can.
    pub(super) async fn ask(&self, arm: &Arm, with_graph: bool) -> Asked {
        let calls = Calls::default();
        let answer = self.answer(arm, with_graph, &calls).await;
        Asked { answer, calls: calls.count() }
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
        let question = self.question();
        let can_be_of_graph = matches!(self, Self::UniformMachines(_) | Self::FlexibleMachines(_));
        let mut is_of_graph = with_graph && can_be_of_graph;
        let entries = if is_of_graph {
            let mut of_graph = self.question();
            of_graph.parameters.push(("useResourceGraph", "true".to_owned()));
            match arm.list(&of_graph, calls).await {
                Err(error) if others_may_answer(&error) => {
                    is_of_graph = false;
                    arm.list(&question, calls).await?
                }
                other => other?,
            }
        } else {
            arm.list(&question, calls).await?
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

    fn question(&self) -> Question {
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
                // An id holds no quotes: names were looked at by whoever made them.
                let filter = format!("'virtualMachineScaleSet/id' eq '{}'", set.told());
                parameters.extend([("$filter", filter), expand]);
            }
            // Only the list of a whole subscription tells whether machines run.
            Self::States(_) => parameters.push(("statusOnly", "true".to_owned())),
            _ => {}
        }
        Question { path, parameters, body: None, action }
    }
}

/// Whether machines run. The resource provider tells it of whole subscriptions only, to who may read them;
/// Resource Graph tells it of what one may read.
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
    match arm.list(&List::States(Arc::clone(subscription)).question(), calls).await {
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

/// Whether those may answer in whose stead Resource Graph was asked: 422 is where it cannot, others are where it is
/// not there, and it leaves rows out where there are too many.
fn others_may_answer(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::Status { .. }
            | RequestError::Malformed(_)
            | RequestError::Throttled(_)
            | RequestError::TooLarge(_)
    )
}

/// One question for all groups, as where the resource provider answers: that shows those that may be read.
async fn states_of_graph(
    arm: &Arm,
    subscription: &str,
    calls: &Calls,
) -> Result<Fetched, RequestError> {
    // Without the id in it, pages are not stable.
    let query = "Resources | where type =~ 'microsoft.compute/virtualmachines' | project id, \
                 power = tostring(properties.extended.instanceView.powerState.code)";
    let entries = arm.rows(subscription, query, calls).await?;
    let states = Entries::read(entries, |row: wire::PowerRow| State::of_row(row)).good;
    Ok(Fetched { contents: Contents::States(states), is_of_graph: true })
}

/// What of an interface cannot be read is as if it were not there: its machine has no address.
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
