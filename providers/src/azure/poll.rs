//! When which list is asked for, and what becomes of answers. It asks nobody itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{AzureQuery, ServiceName};
use jiff::Timestamp;
use reqwest::StatusCode;
use tokio::time::Instant;

use super::board::{Board, Told};
use super::error::RequestError;
use super::held::{Held, Lists, Needs, is_off, needed};
use super::id::ResourceId;
use super::lists::{Asked, Contents, Fetched, List};
use super::options::AzureOptions;
use crate::Stale;
use crate::backoff::{Backoff, spread};

mod budget;

use budget::Budget;

/// So often lists of network interfaces are asked for where no machine came or went: addresses stay.
const INTERFACES: Duration = Duration::from_secs(600);
/// How much less often where little is left of what Azure lets one ask; and interfaces than machines, where
/// there is so much to ask that it is to be spared.
const SLOWER: u32 = 4;
/// When so many asks in a row have failed for lists of which nothing is known, the others wait as any list does:
/// Azure is away, or says no to us.
const FEW_FAILURES: u32 = 6;
/// So many calls come back between two asks of that kind that are made whatever else was: else it would be seen
/// late that Azure is well, and little of what may be made is for them.
const PROBE: usize = 16;
/// Where each list is asked for less often, more calls should be allowed.
const RARE: Duration = Duration::from_secs(600);

/// All that is known, and what is to be asked.
#[derive(Debug)]
pub(super) struct Poll {
    interval: Duration,
    budget: Budget,
    /// Whether it was said that each list is asked for rarely.
    is_rare: bool,
    retry: Duration,
    pub(super) board: Board,
    lists: Lists,
    plans: BTreeMap<List, Plan>,
    needs: Needs,
    /// So many asks in a row have failed for lists of which nothing is known.
    failed_firsts: u32,
    /// When one more of these may be made whatever else was.
    probe_at: Instant,
}

/// When a list is to be asked for.
#[expect(clippy::struct_excessive_bools, reason = "each is set where it is seen, by itself")]
#[derive(Debug)]
struct Plan {
    due: Instant,
    is_running: bool,
    /// Whether it was never answered. Then it is asked for at once: nothing is known of it.
    is_first: bool,
    /// Whether machines that are on have no address in it.
    is_lacking: bool,
    /// Something has happened since it was asked for: it is asked for again at once.
    is_stale: bool,
    /// How many calls it takes.
    cost: usize,
    backoff: Backoff,
    /// An answer in which some are missing, which is believed when the next one says the same.
    doubted: Option<Contents>,
}

impl Poll {
    pub(super) fn new(options: &AzureOptions) -> Self {
        Self {
            interval: options.interval,
            budget: Budget::new(options.reads_per_hour),
            is_rare: false,
            retry: options.retry,
            board: Board::default(),
            lists: Lists::default(),
            plans: BTreeMap::new(),
            needs: Needs::default(),
            failed_firsts: 0,
            probe_at: Instant::now(),
        }
    }

    /// From now on these are the services and what they ask.
    pub(super) fn follow(&mut self, asked: BTreeMap<ServiceName, Vec<AzureQuery>>, now: Timestamp) {
        let before = self.board.asked().clone();
        self.board.ask(asked);
        self.plan();
        let asked = self.board.asked();
        let changed: Vec<_> =
            asked.iter().filter(|(name, asks)| before.get(*name) != Some(asks)).collect();
        let changed: Vec<_> = changed.into_iter().map(|(name, _)| name.clone()).collect();
        for name in changed {
            self.board.assemble(&name, &self.lists, now);
        }
    }

    /// Forgets what is in the lists: others ask for them now. What services know stays; and who was answered once
    /// is asked again as any list is, however often this is.
    pub(super) fn rest(&mut self) {
        self.lists = Lists::default();
        self.needs = Needs::default();
        let now = Instant::now();
        for plan in self.plans.values_mut() {
            plan.is_running = false;
            plan.ask_anew(now);
        }
    }

    /// Plans the lists that are needed now, and forgets the others.
    pub(super) fn plan(&mut self) {
        self.needs = needed(self.board.asked(), &self.lists);
        self.lists.0.retain(|list, _| self.needs.lists.contains_key(list));
        // While some are not known, those may be needed that they name.
        if self.lists.0.values().all(Held::is_known) {
            self.plans.retain(|list, _| self.needs.lists.contains_key(list));
        }
        let now = Instant::now();
        for list in self.needs.lists.keys() {
            if !self.lists.0.contains_key(list) {
                self.lists.0.insert(list.clone(), Held::default());
                if let Some(plan) = self.plans.get_mut(list) {
                    plan.ask_anew(now);
                }
            }
            self.plans.entry(list.clone()).or_insert_with(|| Plan {
                due: now,
                is_running: false,
                is_first: true,
                is_lacking: false,
                is_stale: false,
                cost: 1,
                backoff: Backoff::new(self.retry * 2, self.interval.max(self.retry * 60)),
                doubted: None,
            });
        }
    }

    /// A list that is due, which is now being asked for, and whether Resource Graph may answer.
    pub(super) fn next(&mut self) -> Option<(List, bool)> {
        let now = Instant::now();
        let (list, _) = self.waiting().into_iter().flatten().find(|(_, at)| *at <= now)?;
        let is_worth_asking = self.is_worth_asking(&list);
        let plan = self.plans.get_mut(&list)?;
        plan.is_running = true;
        plan.is_stale = false;
        if plan.is_first && is_worth_asking {
            self.probe_at = now + self.budget.time(PROBE);
        }
        // What Resource Graph leaves out is asked of who knows it.
        Some((list, plan.doubted.is_none()))
    }

    /// When the next list is due that is not being asked for.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting().into_iter().flatten().map(|(_, at)| at).min()
    }

    /// The lists that come next, each with when: of those that were never answered, and of the others, for which
    /// there must be calls left. Who is due first is first, however much it takes: else who takes much would
    /// wait for ever. While those that were never answered fail one after the other, they wait as the others do,
    /// but for one now and then.
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
            // Whether it waits is looked at last: it takes longest, and there may be thousands.
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

    /// Whether it is to be asked for at some time. Where machines are is asked when it is known which there are.
    fn is_waiting(&self, list: &List) -> bool {
        let of = self.needs.machines_of.get(list);
        self.needs.lists.contains_key(list) && of.is_none_or(|of| self.lists.are_known(of))
    }

    /// Whether something may follow from it at once: where machines are, while of none it is known that there
    /// is one, says nothing.
    fn is_worth_asking(&self, list: &List) -> bool {
        let of = self.needs.machines_of.get(list);
        of.is_none_or(|of| of.iter().any(|machines| self.lists.machines(machines).is_some()))
    }

    /// So many calls were made in all since the start, for whatever reason.
    pub(super) fn made(&mut self, calls: u64) {
        self.budget.made(calls, Instant::now());
    }

    /// Takes an answer. `is_slow` says that Azure has little left for us.
    pub(super) fn take(&mut self, list: &List, asked: Asked, is_slow: bool, now: Timestamp) {
        let Asked { answer, calls } = asked;
        let Some(plan) = self.plans.get_mut(list) else { return };
        plan.is_running = false;
        // Who is not asked at all, since Azure was asked too often, costs what it did before.
        plan.cost = if calls > 0 { calls } else { plan.cost };
        self.firsts(list, answer.is_ok());
        let contents = |lists: &Lists| {
            lists.0.get(list).and_then(|held| held.contents.as_ref().map(Arc::clone))
        };
        let before = contents(&self.lists);
        match answer {
            Ok(fetched) => self.answered(list, fetched, is_slow),
            Err(error) => self.failed(list, &error, is_slow, now),
        }
        self.board.stale(self.lists.general());
        let concerned = self.needs.lists.get(list).cloned().unwrap_or_default();
        // Of which scale sets there are it follows what else is to be asked; and of which machines, whether they
        // run and where their interfaces are, in which other groups these are looked for.
        let may_name_others =
            !matches!(list, List::UniformMachines(_) | List::UniformInterfaces(_));
        if may_name_others && contents(&self.lists) != before {
            self.plan();
        }
        for name in concerned {
            self.board.assemble(&name, &self.lists, now);
        }
    }

    /// What is known, if something is new.
    pub(super) fn news(&mut self) -> Option<Told> {
        self.board.news()
    }

    /// Notes how it goes with lists that were never answered.
    fn firsts(&mut self, list: &List, is_answered: bool) {
        let is_worth_asking = self.is_worth_asking(list);
        let Some(plan) = self.plans.get_mut(list).filter(|plan| plan.is_first) else { return };
        plan.is_first = !is_answered;
        if !is_worth_asking {
            return;
        }
        if !is_answered {
            self.failed_firsts = self.failed_firsts.saturating_add(1);
        } else if std::mem::take(&mut self.failed_firsts) >= FEW_FAILURES {
            // Azure is well, or lets us: nobody waits any longer for what was.
            let now = Instant::now();
            for plan in self.plans.values_mut().filter(|plan| plan.is_first) {
                plan.due = plan.due.min(now);
            }
        }
    }

    fn answered(&mut self, list: &List, fetched: Fetched, is_slow: bool) {
        let Fetched { contents, is_of_graph } = fetched;
        let now = Instant::now();
        let Some(plan) = self.plans.get_mut(list) else { return };
        let Some(held) = self.lists.0.get_mut(list) else { return };
        plan.backoff.reset();
        held.trouble = None;
        let contents = if let Some(doubted) = plan.doubted.take() {
            // Who is missing in both is gone; pages shift while they are asked for.
            contents.with(doubted)
        } else {
            let before = held.contents.as_deref();
            if before.is_some_and(|before| contents.lacks_some_of(before)) {
                plan.doubted = Some(contents);
                plan.due = now + self.retry;
                return;
            }
            contents
        };
        let came = held.contents.as_deref().map(|before| contents.came(before));
        held.contents = Some(Arc::new(contents));
        held.is_of_graph = is_of_graph;
        let of = self.needs.machines_of.get(list).filter(|_| list.is_of_interfaces());
        let is_lacking = of.is_some_and(|of| self.lists.lack(of, list));
        if let Some(plan) = self.plans.get_mut(list) {
            plan.is_lacking = is_lacking;
        }
        let Periods { machines, interfaces } = self.periods(is_slow);
        let period = match list.is_of_interfaces() {
            false => machines,
            true if is_lacking => machines * SLOWER,
            true => interfaces,
        };
        if let Some(plan) = self.plans.get_mut(list) {
            plan.due = if plan.is_stale { now } else { now + spread(period) };
        }
        // Who came, or came back, has an address that is not known.
        for interfaces in self.needs.interfaces_of(list) {
            let concerned = came
                .as_ref()
                .is_none_or(|came| self.lists.concern(came, list, &interfaces, &self.needs));
            if !concerned {
                continue;
            }
            if let Some(plan) = self.plans.get_mut(&interfaces) {
                plan.is_stale = plan.is_running;
                plan.due = plan.due.min(now);
            }
        }
    }

    fn failed(&mut self, list: &List, error: &RequestError, is_slow: bool, at: Timestamp) {
        let now = Instant::now();
        let Some(plan) = self.plans.get_mut(list) else { return };
        // What fails again and again is asked for no more often than what is answered; interfaces as those that
        // lack something.
        let is_for_good = plan.backoff.is_longest();
        plan.is_lacking |= is_for_good && list.is_of_interfaces();
        let wait = match error {
            RequestError::Throttled(wait) => spread(*wait),
            _ => plan.backoff.step(),
        };
        let least = if is_for_good {
            let Periods { machines, .. } = self.periods(is_slow);
            // Where each is asked for as often as it may be, there is no reason to spare it.
            let is_spared = list.is_of_interfaces() && machines > self.interval;
            spread(if is_spared { machines * SLOWER } else { machines })
        } else {
            Duration::ZERO
        };
        let Some(plan) = self.plans.get_mut(list) else { return };
        let Some(held) = self.lists.0.get_mut(list) else { return };
        plan.due = now + wait.max(least);
        let reason = error.to_string();
        if held.trouble.is_none() {
            tracing::warn!(?list, reason, "azure request failed");
        }
        let before = held.trouble.take();
        // That it is left alone for a while is not why.
        let is_silence = matches!(error, RequestError::Throttled(_)) && before.is_some();
        if !is_silence {
            held.is_trouble_general = error.is_general();
        }
        held.trouble = Some(match before {
            Some(before) if is_silence => before,
            before => Stale { since: before.map_or(at, |before| before.since), reason },
        });
        // A scale set that is gone is gone from the list of them, if it is.
        if let Some(set) = list.scale_set().filter(|_| error.has_status(StatusCode::NOT_FOUND)) {
            let is_of_it = |scope: &List| matches!(scope, List::ScaleSets(scope) if *scope.subscription == *set.subscription());
            for (_, plan) in self.plans.iter_mut().filter(|(list, _)| is_of_it(list)) {
                plan.is_stale = plan.is_running;
                plan.due = plan.due.min(now);
            }
        }
    }

    /// How often each list is asked for, so that all together make no more calls than they may. Of many lists
    /// that is less often, and network interfaces are spared then.
    fn periods(&mut self, is_slow: bool) -> Periods {
        // In quarters of calls: what lacks something is asked for a quarter as often as the others.
        let (mut quarters, mut rounds) = (0, 0);
        for (list, plan) in &self.plans {
            match list.is_of_interfaces() {
                true if plan.is_lacking => quarters += plan.cost,
                true => rounds += plan.cost,
                false => quarters += plan.cost * 4,
            }
        }
        // Of all time, interfaces take this part when they are asked for as often as they may be.
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

/// How often lists are asked for while nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Periods {
    /// Those of machines and scale sets.
    machines: Duration,
    /// Those of network interfaces.
    interfaces: Duration,
}

impl Plan {
    /// What was answered is forgotten.
    fn ask_anew(&mut self, now: Instant) {
        self.due = now;
        self.is_stale = false;
        self.doubted = None;
    }
}

impl Contents {
    /// Whether machines or scale sets that were there are not there now.
    fn lacks_some_of(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Machines(now), Self::Machines(before)) => {
                let knows = |id| {
                    now.good.contains_key(id)
                        || now.unreadable.iter().any(|one| one.id.as_ref() == Some(id))
                };
                !before.good.keys().all(knows)
            }
            (Self::ScaleSets(now), Self::ScaleSets(before)) => {
                !before.good.keys().all(|id| now.good.contains_key(id))
            }
            _ => false,
        }
    }

    /// All that is in one of both; what is in both as this one has it.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Machines(mut now), Self::Machines(before)) => {
                for (id, machine) in before.good {
                    now.good.entry(id).or_insert(machine);
                }
                Self::Machines(now)
            }
            (Self::ScaleSets(mut now), Self::ScaleSets(before)) => {
                for (id, set) in before.good {
                    now.good.entry(id).or_insert(set);
                }
                Self::ScaleSets(now)
            }
            (now, _) => now,
        }
    }

    /// The machines that have come, or come back, since.
    fn came(&self, before: &Self) -> Vec<ResourceId> {
        let is_on = |id: &ResourceId, contents: &Self| match contents {
            Self::Machines(machines) => machines
                .good
                .get(id)
                .filter(|machine| !is_off(&machine.state))
                .map(|machine| machine.vm_id),
            Self::States(states) => states.get(id).filter(|state| !is_off(state)).map(|_| None),
            _ => None,
        };
        let ids: Vec<_> = match self {
            Self::Machines(machines) => machines.good.keys().collect(),
            Self::States(states) => states.keys().collect(),
            _ => return Vec::new(),
        };
        let came = ids.into_iter().filter(|id| {
            let now = is_on(id, self);
            now.is_some() && now != is_on(id, before)
        });
        came.cloned().collect()
    }
}

#[cfg(test)]
mod tests;
