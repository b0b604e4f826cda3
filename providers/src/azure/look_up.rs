//! The look-up of one machine out of turn, for its enrollment: one at a time, a few calls, within a
//! share of the budget. It never decides who may join.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{AzureQuery, ServiceName};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::arm::Arm;
use super::list_state::{ListState, Lists};
use super::lists::{List, Scope};
use super::machine_index::{KnownMachine, find, locate, machine_lists};
use super::options::AzureOptions;
use super::poll::budget::Budget;

/// The time limit of a look-up, beside the wait for others.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most lists of machines that one look-up reads to find a machine.
const MAX_LISTS: usize = 8;
/// How long lists are kept that look-ups have read.
const KEPT: Duration = Duration::from_secs(900);
/// The part of the calls per hour that look-ups may take: polling must not starve.
const SHARE: u32 = 4;

/// The reason why a look-up has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookUpError {
    /// Look-ups have used their part of the calls.
    #[error("look-ups of machines have used their quarter of `reads_per_hour`")]
    Busy,
    /// Azure has not answered in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// A request failed.
    #[error("{0}")]
    Failed(String),
}

/// Looks machines up.
#[derive(Debug)]
pub(super) struct LookUp {
    arm: Arc<Arm>,
    /// Held during a look-up: others wait for its lists.
    calls: tokio::sync::Mutex<Calls>,
    /// The lists that look-ups have read.
    read: Mutex<Lists>,
}

/// The calls of all look-ups.
#[derive(Debug)]
struct Calls {
    budget: Budget,
    made: u64,
}

/// The queries of each service, with their opt-ins.
type Queries = BTreeMap<ServiceName, Vec<AzureQuery>>;

impl LookUp {
    pub(super) fn new(options: &AzureOptions, arm: Arc<Arm>) -> Self {
        let budget = Budget::new((options.reads_per_hour / SHARE).max(1));
        Self {
            arm,
            calls: tokio::sync::Mutex::new(Calls { budget, made: 0 }),
            read: Mutex::default(),
        }
    }

    /// The machine, as polls and look-ups have shown it so far.
    pub(super) fn known(
        &self,
        queries: &Queries,
        polled: &Lists,
        vm_id: Uuid,
    ) -> Option<KnownMachine> {
        find(queries, &self.merged(polled), vm_id)
    }

    /// The machine as Azure shows it at or after `since`.
    pub(super) async fn run(
        &self,
        queries: &Queries,
        polled: &watch::Receiver<Arc<Lists>>,
        vm_id: Uuid,
        subscription: Uuid,
        since: Instant,
    ) -> Result<Option<KnownMachine>, LookUpError> {
        let mut calls = self.calls.lock().await;
        let known = || self.known(queries, &polled.borrow(), vm_id);
        // While this one waited, another look-up or a poll may have read its list.
        let is_current =
            |machine: &KnownMachine| machine.read_at >= since && !machine.addresses.is_empty();
        if let Some(machine) = known().filter(is_current) {
            return Ok(Some(machine));
        }
        let pass = self.pass(queries, polled, vm_id, subscription, &mut calls);
        timeout(PATIENCE, pass).await.unwrap_or(Err(LookUpError::Silent))?;
        Ok(known().filter(|machine| machine.read_at >= since))
    }

    /// Reads the lists that show the machine; if none is known to, those that may.
    async fn pass(
        &self,
        queries: &Queries,
        polled: &watch::Receiver<Arc<Lists>>,
        vm_id: Uuid,
        subscription: Uuid,
        calls: &mut Calls,
    ) -> Result<(), LookUpError> {
        let now = Instant::now();
        self.read.lock().0.retain(|_, held| held.read_at.is_some_and(|at| now - at < KEPT));
        let polled = || Arc::clone(&polled.borrow());
        let lists_of = || {
            let lists = self.merged(&polled());
            let all = queries.values().flatten();
            let mut located = all.filter_map(|query| locate(query, &lists, vm_id));
            located.next().map(|located| located.all_lists())
        };
        if let Some(lists) = lists_of() {
            return self.read(lists, calls).await;
        }
        let joining: Vec<_> =
            queries.values().flatten().filter(|query| query.join.is_some()).collect();
        let scopes = joining.iter().filter_map(|query| Some((*query, Scope::of(query).ok()?)));
        let is_there = |scope: &Scope| scope.subscription.parse() == Ok(subscription);
        let scopes: Vec<_> = scopes.filter(|(_, scope)| is_there(scope)).collect();
        let sets: BTreeSet<_> = scopes
            .iter()
            .filter(|(query, _)| query.machines != ironmesh_catalog::AzureMachines::VirtualMachines)
            .map(|(_, scope)| List::ScaleSets(scope.clone()))
            .collect();
        self.read(sets, calls).await?;
        for list in self.candidates(&scopes, &polled()) {
            self.read([list], calls).await?;
            if let Some(lists) = lists_of() {
                // Its addresses; the list of the machine itself was just read.
                return self.read(lists.into_iter().skip(1), calls).await;
            }
        }
        Ok(())
    }

    /// The lists that may show an unknown machine, the likeliest first: a new machine raises the
    /// capacity of its scale set above the number of its known machines.
    fn candidates(&self, scopes: &[(&AzureQuery, Scope)], polled: &Lists) -> Vec<List> {
        let lists = self.merged(polled);
        let mut ranked = BTreeMap::new();
        for (query, scope) in scopes {
            for (of, set) in machine_lists(query, scope, &lists) {
                let known = lists.machines(&of.machines).map_or(0, |known| known.good.len());
                let missing = set.map_or(1, |set| set.capacity.saturating_sub(known as u64));
                ranked.insert(of.machines, missing);
            }
        }
        let mut ranked: Vec<_> = ranked.into_iter().collect();
        ranked.sort_by_key(|(_, missing)| std::cmp::Reverse(*missing));
        ranked.into_iter().map(|(list, _)| list).take(MAX_LISTS).collect()
    }

    /// Reads lists, and keeps them.
    async fn read(
        &self,
        lists: impl IntoIterator<Item = List>,
        calls: &mut Calls,
    ) -> Result<(), LookUpError> {
        for list in lists {
            let began = Instant::now();
            if calls.budget.ready_at(1, began) > began {
                return Err(LookUpError::Busy);
            }
            // Not from Resource Graph, which is some seconds stale.
            let outcome = list.ask(&self.arm, false).await;
            calls.made += outcome.calls as u64;
            calls.budget.made(calls.made, Instant::now());
            let fetched = outcome.answer.map_err(|error| LookUpError::Failed(error.to_string()))?;
            let state = ListState {
                contents: Some(Arc::new(fetched.contents)),
                read_at: Some(began),
                ..ListState::default()
            };
            self.read.lock().0.insert(list, state);
        }
        Ok(())
    }

    /// The lists of polls and look-ups; of each, the newest.
    fn merged(&self, polled: &Lists) -> Lists {
        let mut lists = polled.clone();
        for (list, own) in &self.read.lock().0 {
            let held = lists.0.entry(list.clone()).or_default();
            if held.contents.is_none() || held.read_at < own.read_at {
                held.clone_from(own);
            }
        }
        lists
    }
}
