//! When which list is asked for, and what becomes of answers. It asks nobody itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{AzureQuery, ServiceName};
use jiff::Timestamp;
use reqwest::StatusCode;
use tokio::time::Instant;

use super::board::{Board, Told};
use super::error::RequestError;
use super::held::{Lists, is_off, needed};
use super::id::ResourceId;
use super::lists::{Contents, Fetched, List};
use super::options::AzureOptions;
use crate::Stale;
use crate::backoff::{Backoff, spread};

/// So often lists of network interfaces are asked for where no machine came or went: addresses stay.
const INTERFACES: Duration = Duration::from_secs(600);
/// No list is asked for less often, however many there are.
const RAREST: Duration = Duration::from_secs(600);
/// How much less often where little is left of what Azure lets one ask.
const SLOWER: u32 = 4;

/// All that is known, and what is to be asked.
#[derive(Debug)]
pub(super) struct Poll {
    interval: Duration,
    reads_per_hour: u32,
    retry: Duration,
    pub(super) board: Board,
    lists: Lists,
    plans: BTreeMap<List, Plan>,
    /// Who needs which list.
    needed: BTreeMap<List, BTreeSet<ServiceName>>,
}

/// When a list is to be asked for.
#[derive(Debug)]
struct Plan {
    due: Instant,
    is_running: bool,
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
            reads_per_hour: options.reads_per_hour,
            retry: options.retry,
            board: Board::default(),
            lists: Lists::default(),
            plans: BTreeMap::new(),
            needed: BTreeMap::new(),
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

    /// Forgets the lists: others ask for them now. What services know stays.
    pub(super) fn rest(&mut self) {
        self.lists = Lists::default();
        self.plans.clear();
        self.needed.clear();
    }

    /// Plans the lists that are needed now, and forgets the others.
    pub(super) fn plan(&mut self) {
        self.needed = needed(self.board.asked(), &self.lists);
        self.plans.retain(|list, _| self.needed.contains_key(list));
        self.lists.0.retain(|list, _| self.needed.contains_key(list));
        for list in self.needed.keys() {
            self.lists.0.entry(list.clone()).or_default();
            self.plans.entry(list.clone()).or_insert_with(|| Plan {
                due: Instant::now(),
                is_running: false,
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
        let lists = &self.lists;
        let waiting = self.plans.iter_mut().filter(|(list, plan)| plan.is_waiting(list, lists));
        let due = waiting.filter(|(_, plan)| plan.due <= now);
        let (list, plan) = due.min_by_key(|(_, plan)| plan.due)?;
        plan.is_running = true;
        plan.is_stale = false;
        // What Resource Graph leaves out is asked of who knows it.
        Some((list.clone(), plan.doubted.is_none()))
    }

    /// When the next list is due that is not being asked for.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let waiting = self.plans.iter().filter(|(list, plan)| plan.is_waiting(list, &self.lists));
        waiting.map(|(_, plan)| plan.due).min()
    }

    /// Takes an answer. `is_slow` says that Azure has little left for us.
    pub(super) fn take(
        &mut self,
        list: &List,
        answer: Result<Fetched, RequestError>,
        is_slow: bool,
        now: Timestamp,
    ) {
        if !self.plans.contains_key(list) {
            return;
        }
        match answer {
            Ok(fetched) => self.answered(list, fetched, is_slow),
            Err(error) => self.failed(list, &error, now),
        }
        self.board.stale(self.lists.general());
        let concerned = self.needed.get(list).cloned().unwrap_or_default();
        // Of which scale sets there are it follows what else is to be asked.
        if matches!(list, List::ScaleSets(_)) {
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

    fn answered(&mut self, list: &List, fetched: Fetched, is_slow: bool) {
        let Fetched { contents, pages, is_of_graph } = fetched;
        let period = self.period(is_slow);
        let now = Instant::now();
        let Some(plan) = self.plans.get_mut(list) else { return };
        let Some(held) = self.lists.0.get_mut(list) else { return };
        plan.is_running = false;
        plan.cost = pages.max(1);
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
        let has_changed = held.contents.as_deref().is_none_or(|before| contents.moves(before));
        held.contents = Some(Arc::new(contents));
        held.is_of_graph = is_of_graph;
        let period = if list.is_of_interfaces() {
            let lacks = self.lists.lacks(list);
            if lacks { period * SLOWER } else { INTERFACES }.max(period)
        } else {
            period
        };
        if let Some(plan) = self.plans.get_mut(list) {
            plan.due = if plan.is_stale { now } else { now + spread(period) };
        }
        // Who came, or came back, has an address that is not known.
        let interfaces = list.interfaces().filter(|_| has_changed);
        if let Some(plan) = interfaces.and_then(|interfaces| self.plans.get_mut(&interfaces)) {
            plan.is_stale = plan.is_running;
            plan.due = plan.due.min(now);
        }
    }

    fn failed(&mut self, list: &List, error: &RequestError, at: Timestamp) {
        let now = Instant::now();
        let Some(plan) = self.plans.get_mut(list) else { return };
        let Some(held) = self.lists.0.get_mut(list) else { return };
        plan.is_running = false;
        let wait = plan.backoff.step();
        plan.due = now
            + match error {
                RequestError::Throttled(wait) => spread(*wait),
                _ => wait,
            };
        let reason = error.to_string();
        if held.trouble.is_none() {
            tracing::warn!(?list, "Azure gives no answer: {reason}");
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

    /// How often each list is asked for, so that all together make no more calls than they may.
    fn period(&self, is_slow: bool) -> Duration {
        let costs = |of_interfaces: bool| {
            let of_kind =
                self.plans.iter().filter(move |(list, _)| list.is_of_interfaces() == of_interfaces);
            u64::try_from(of_kind.map(|(_, plan)| plan.cost).sum::<usize>()).unwrap_or(u64::MAX)
        };
        let rounds_of_interfaces = 3600 / INTERFACES.as_secs();
        let allowed = u64::from(self.reads_per_hour);
        let left = allowed.saturating_sub(costs(true).saturating_mul(rounds_of_interfaces));
        // Where network interfaces alone take nearly all, the others get a half after all.
        let left = left.max(allowed / 2).max(1);
        let fair = Duration::from_millis(costs(false).saturating_mul(3_600_000) / left);
        let period = self.interval.max(fair);
        let longest = RAREST.max(self.interval);
        let period = if is_slow { period * SLOWER } else { period };
        period.min(longest)
    }
}

impl Plan {
    /// Whether it is to be asked for at some time. Where machines are is asked when it is known which there are.
    fn is_waiting(&self, list: &List, lists: &Lists) -> bool {
        !self.is_running && (!list.is_of_interfaces() || lists.knows_machines_of(list))
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

    /// Whether machines have come, or come back, since.
    fn moves(&self, before: &Self) -> bool {
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
            _ => return false,
        };
        ids.into_iter().any(|id| {
            let now = is_on(id, self);
            now.is_some() && now != is_on(id, before)
        })
    }
}

#[cfg(test)]
mod tests;
