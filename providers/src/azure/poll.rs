//! The schedule of lists, and the handling of their answers. It never sends a request.

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_catalog::backoff::Backoff;
use ironmesh_catalog::{AzureQuery, ServiceName};
use jiff::Timestamp;
use tokio::time::Instant;

use super::list_state::{ListState, Lists, Needs, needed};
use super::lists::{Contents, List};
use super::options::AzureOptions;
use super::report_builder::{ReportBuilder, SharedReport};

pub(super) mod budget;
mod contents;
mod outcome;

use budget::Budget;

/// The interval of lists of network interfaces while no machine appears or disappears: addresses do
/// not change.
const INTERFACES: Duration = Duration::from_secs(600);
/// The factor by which polling slows down if little quota is left; and interfaces compared with
/// machines, if the budget is short.
const SLOWER: u32 = 4;
/// After so many consecutive failures of first requests, these use the budget like others: Azure is
/// down, or rejects the credential.
const FEW_FAILURES: u32 = 6;
/// The number of calls whose budget passes between two probes. A probe is a first request beside
/// the budget; without it the provider would notice Azure's recovery late.
const PROBE: usize = 16;
/// If the interval of lists exceeds this, the budget should be raised.
const RARE: Duration = Duration::from_secs(600);

/// The schedule, the lists and the report.
#[derive(Debug)]
pub(super) struct Poll {
    interval: Duration,
    budget: Budget,
    /// Whether the warning about a long interval was logged.
    is_rare: bool,
    retry: Duration,
    pub(super) builder: ReportBuilder,
    lists: Lists,
    plans: BTreeMap<List, Plan>,
    needs: Needs,
    /// The number of consecutive failures of first requests.
    failed_firsts: u32,
    /// The time of the next probe.
    probe_at: Instant,
}

/// The schedule of one list.
#[expect(clippy::struct_excessive_bools, reason = "each is set where it is seen, by itself")]
#[derive(Debug)]
struct Plan {
    due: Instant,
    /// When the last request began.
    began: Instant,
    is_running: bool,
    /// Whether it never had an answer. Then it is requested at once.
    is_first: bool,
    /// Whether running machines have no address in it.
    is_lacking: bool,
    /// Whether it changed after the running request began, and must be requested again.
    is_stale: bool,
    /// The number of calls per request.
    cost: usize,
    backoff: Backoff,
    /// An answer that lacks earlier entries. It counts when the next answer lacks them, too.
    incomplete: Option<Contents>,
}

impl Poll {
    pub(super) fn new(options: &AzureOptions) -> Self {
        Self {
            interval: options.interval,
            budget: Budget::new(options.reads_per_hour),
            is_rare: false,
            retry: options.retry,
            builder: ReportBuilder::default(),
            lists: Lists::default(),
            plans: BTreeMap::new(),
            needs: Needs::default(),
            failed_firsts: 0,
            probe_at: Instant::now(),
        }
    }

    /// Sets the services and their queries.
    pub(super) fn follow(
        &mut self,
        queries: BTreeMap<ServiceName, Vec<AzureQuery>>,
        now: Timestamp,
    ) {
        let before = self.builder.queries().clone();
        self.builder.set_queries(queries);
        self.plan();
        let queries = self.builder.queries();
        let changed: Vec<_> =
            queries.iter().filter(|(name, own)| before.get(*name) != Some(own)).collect();
        let changed: Vec<_> = changed.into_iter().map(|(name, _)| name.clone()).collect();
        for name in changed {
            self.builder.assemble(&name, &self.lists, now);
        }
    }

    /// Forgets all lists, because another control plane polls now. The report stays. A list that
    /// had an answer is requested at its usual interval.
    pub(super) fn rest(&mut self) {
        self.lists = Lists::default();
        self.needs = Needs::default();
        let now = Instant::now();
        for plan in self.plans.values_mut() {
            plan.is_running = false;
            plan.reset(now);
        }
    }

    /// Schedules the needed lists, and forgets the others.
    pub(super) fn plan(&mut self) {
        self.needs = needed(self.builder.queries(), &self.lists);
        self.lists.0.retain(|list, _| self.needs.lists.contains_key(list));
        // While some lists have no answer, they may still name others.
        if self.lists.0.values().all(ListState::is_known) {
            self.plans.retain(|list, _| self.needs.lists.contains_key(list));
        }
        let now = Instant::now();
        for list in self.needs.lists.keys() {
            if !self.lists.0.contains_key(list) {
                self.lists.0.insert(list.clone(), ListState::default());
                if let Some(plan) = self.plans.get_mut(list) {
                    plan.reset(now);
                }
            }
            self.plans.entry(list.clone()).or_insert_with(|| Plan {
                due: now,
                began: now,
                is_running: false,
                is_first: true,
                is_lacking: false,
                is_stale: false,
                cost: 1,
                backoff: Backoff::new(self.retry * 2, self.interval.max(self.retry * 60)),
                incomplete: None,
            });
        }
    }

    /// Returns a due list, marks it as running, and returns whether Resource Graph may answer.
    pub(super) fn next(&mut self) -> Option<(List, bool)> {
        let now = Instant::now();
        let (list, _) = self.waiting().into_iter().flatten().find(|(_, at)| *at <= now)?;
        let is_worth_asking = self.is_worth_asking(&list);
        let plan = self.plans.get_mut(&list)?;
        plan.is_running = true;
        plan.began = now;
        plan.is_stale = false;
        if plan.is_first && is_worth_asking {
            self.probe_at = now + self.budget.time(PROBE);
        }
        // The resource provider verifies what Resource Graph leaves out.
        Some((list, plan.incomplete.is_none()))
    }

    /// Returns the time at which the next list is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting().into_iter().flatten().map(|(_, at)| at).min()
    }

    /// Returns the next first request and the next repeated one, each with its time; the latter
    /// needs budget. The list that is due first comes first, whatever it costs, so that expensive
    /// ones do not starve. While first requests fail, they wait for budget, except for a probe.
    fn waiting(&self) -> [Option<(List, Instant)>; 2] {
        let is_refused = self.failed_firsts >= FEW_FAILURES;
        let mut first: Option<(&List, &Plan)> = None;
        let mut again = None;
        let mut under_way = 0;
        for (list, plan) in &self.plans {
            if plan.is_running {
                under_way += plan.cost;
                continue;
            }
            let is_first = plan.is_first && self.is_worth_asking(list);
            // This check comes last: it is the slowest, and there may be thousands of lists.
            let is_next = |best: Option<(&List, &Plan)>| {
                best.is_none_or(|(_, best)| plan.due < best.due) && self.is_waiting(list)
            };
            if is_first && is_next(first) {
                first = Some((list, plan));
            }
            if (!is_first || is_refused) && is_next(again) {
                again = Some((list, plan));
            }
        }
        let again = again.map(|(list, plan)| {
            let ready_at = self.budget.ready_at(under_way + plan.cost, Instant::now());
            (list.clone(), plan.due.max(ready_at))
        });
        let first = first.map(|(list, plan)| {
            let at = if is_refused { plan.due.max(self.probe_at) } else { plan.due };
            (list.clone(), at)
        });
        [first, again]
    }

    /// Whether a list is to be requested. Interfaces wait until their machines are known.
    fn is_waiting(&self, list: &List) -> bool {
        let of = self.needs.machines_of.get(list);
        self.needs.lists.contains_key(list) && of.is_none_or(|of| self.lists.are_known(of))
    }

    /// Whether an answer is useful at once: interfaces are not, while no machine is known.
    fn is_worth_asking(&self, list: &List) -> bool {
        let of = self.needs.machines_of.get(list);
        of.is_none_or(|of| of.iter().any(|machines| self.lists.machines(machines).is_some()))
    }

    /// Sets the number of calls since the start.
    pub(super) fn made(&mut self, calls: u64) {
        self.budget.made(calls, Instant::now());
    }

    /// Returns the latest content of the lists.
    pub(super) fn lists(&self) -> &Lists {
        &self.lists
    }

    /// Returns the report, if it has changed.
    pub(super) fn news(&mut self) -> Option<SharedReport> {
        self.builder.news()
    }

    /// Returns the intervals that keep all calls within the budget. With many lists they are
    /// longer, first those of interfaces.
    fn periods(&mut self, is_slow: bool) -> Periods {
        // In quarters of calls: a list that lacks addresses is requested a quarter as often as the
        // others.
        let (mut quarters, mut rounds) = (0, 0);
        for (list, plan) in &self.plans {
            match list.is_of_interfaces() {
                true if plan.is_lacking => quarters += plan.cost,
                true => rounds += plan.cost,
                false => quarters += plan.cost * 4,
            }
        }
        // The part of all time that interfaces take at their shortest interval.
        let of_interfaces = self.budget.fair(rounds * 4);
        let alone = self.budget.fair(quarters);
        let fair = match INTERFACES.checked_sub(of_interfaces).filter(|left| !left.is_zero()) {
            Some(left) => {
                let stretched = alone.as_secs_f64() * INTERFACES.as_secs_f64() / left.as_secs_f64();
                Duration::try_from_secs_f64(stretched).unwrap_or(Duration::MAX)
            }
            None => Duration::MAX,
        };
        let fair =
            if fair <= INTERFACES / SLOWER { fair } else { self.budget.fair(quarters + rounds) };
        let machines = self.interval.max(fair);
        let interfaces = INTERFACES.max(fair * SLOWER).max(machines);
        let is_rare = fair > RARE;
        if is_rare && !self.is_rare {
            tracing::warn!(
                period = ?fair,
                action = "raise `reads_per_hour`",
                "azure lists are polled slowly to stay within the request budget"
            );
        }
        self.is_rare = is_rare;
        let slower = if is_slow { SLOWER } else { 1 };
        Periods { machines: machines * slower, interfaces: interfaces * slower }
    }
}

/// The intervals of lists while nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Periods {
    /// The interval of machines and scale sets.
    machines: Duration,
    /// The interval of network interfaces.
    interfaces: Duration,
}

impl Plan {
    /// Forgets the last answer: the list is due now.
    fn reset(&mut self, now: Instant) {
        self.due = now;
        self.is_stale = false;
        self.incomplete = None;
    }
}

#[cfg(test)]
mod tests;
