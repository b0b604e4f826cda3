//! The outcome of each request: what a list holds then, and when it is due again.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::backoff::spread;
use jiff::Timestamp;
use reqwest::StatusCode;
use tokio::time::Instant;

use super::super::error::RequestError;
use super::super::list_state::Lists;
use super::super::lists::{Fetched, List, ListOutcome};
use super::{FEW_FAILURES, Periods, Poll, SLOWER};
use crate::Stale;

impl Poll {
    /// Applies the outcome of a request. `is_slow` says that Azure has little quota left.
    pub(in crate::azure) fn take(
        &mut self,
        list: &List,
        outcome: ListOutcome,
        is_slow: bool,
        now: Timestamp,
    ) {
        let ListOutcome { answer, calls } = outcome;
        let Some(plan) = self.plans.get_mut(list) else { return };
        plan.is_running = false;
        // A request that was not sent, because Azure throttles, keeps its cost.
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
        self.builder.stale(self.lists.general());
        let concerned = self.needs.lists.get(list).cloned().unwrap_or_default();
        // Scale sets determine which machines are needed; machines determine the states and the
        // resource groups of interfaces.
        let may_name_others =
            !matches!(list, List::UniformMachines(_) | List::UniformInterfaces(_));
        if may_name_others && contents(&self.lists) != before {
            self.plan();
        }
        for name in concerned {
            self.builder.assemble(&name, &self.lists, now);
        }
    }

    /// Counts the failures of first requests.
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
            // Azure has recovered: first requests wait no longer.
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
        let contents = if let Some(incomplete) = plan.incomplete.take() {
            // An entry that both answers lack is gone. Pages may shift between requests.
            contents.with(incomplete)
        } else {
            let before = held.contents.as_deref();
            if before.is_some_and(|before| contents.lacks_some_of(before)) {
                plan.incomplete = Some(contents);
                plan.due = now + self.retry;
                return;
            }
            contents
        };
        let came = held.contents.as_deref().map(|before| contents.came(before));
        held.contents = Some(Arc::new(contents));
        held.is_of_graph = is_of_graph;
        held.read_at = Some(plan.began);
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
        // A machine that appeared or started has an unknown address.
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
        // A list that fails repeatedly is requested no more often than one that succeeds;
        // interfaces like those that lack addresses.
        let is_for_good = plan.backoff.is_longest();
        plan.is_lacking |= is_for_good && list.is_of_interfaces();
        let wait = match error {
            RequestError::Throttled(wait) => spread(*wait),
            _ => plan.backoff.step(),
        };
        let least = if is_for_good {
            let Periods { machines, .. } = self.periods(is_slow);
            // At the shortest interval there is no need to save budget.
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
        // Throttling is not the cause of the failure.
        let is_silence = matches!(error, RequestError::Throttled(_)) && before.is_some();
        if !is_silence {
            held.is_trouble_general = error.is_general();
        }
        held.trouble = Some(match before {
            Some(before) if is_silence => before,
            before => Stale { since: before.map_or(at, |before| before.since), reason },
        });
        // A missing scale set shows in the list of scale sets.
        if let Some(set) = list.scale_set().filter(|_| error.has_status(StatusCode::NOT_FOUND)) {
            let is_of_it = |scope: &List| matches!(scope, List::ScaleSets(scope) if *scope.subscription == *set.subscription());
            for (_, plan) in self.plans.iter_mut().filter(|(list, _)| is_of_it(list)) {
                plan.is_stale = plan.is_running;
                plan.due = plan.due.min(now);
            }
        }
    }
}
