//! Audit mode: the calls that strict mode would deny, as the proxies of audited services report them.
//!
//! Denials are kept in memory, in bounds, and forgotten once policy would allow them: an operator adds a rule and sees
//! the line disappear. A proxy may report calls of the service ports that it serves, by callers that policy knows, and
//! no others (invariant 2). Which of these callers it served cannot be verified.
//!
//! A proxy that reports false calls without end harms no others (invariant 10). A message is added up and classified
//! without a lock, and its entries yield to those that other proxies report (`fair_share.rs`).

mod denied_calls;
mod fair_share;
mod policy;
mod shared;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_api::{AuditView, OthersView};
use ironmesh_catalog::{
    JoinRecord, ProxyId, ServiceAccount, ServicePort, Snapshot, SpiffeId, TrustDomain,
};
use ironmesh_xds_compile::names;
use ironmesh_xds_wire::LoggedCall;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use denied_calls::{DeniedCalls, RETENTION};
use fair_share::FairShareMap;
use policy::AuditPolicy;
pub(crate) use shared::{AuditChunks, PREFIX};

/// How long proxies may still enforce an earlier policy: until they have ACKed the new one and have reported what they
/// had collected.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// The most earlier policies that are kept for that; the oldest goes first.
const MAX_EARLIER_POLICIES: usize = 16;

/// The most pairs of caller and service port that are recorded, and that are counted. One recorded pair takes at most
/// 4 KiB.
const MAX_PAIRS: usize = 8192;

/// The interval at which old denials are forgotten.
const SWEEP: SignedDuration = SignedDuration::from_mins(1);

/// The caller and the called service port.
pub(crate) type CallPair = (ServiceAccount, ServicePort);

/// The recorded denials of services in audit mode.
#[derive(Debug)]
pub(crate) struct Audit {
    trust_domain: TrustDomain,
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    /// The active policy, by which the recorded denials were classified.
    now: Option<Arc<AuditPolicy>>,
    /// Earlier policies, and when each was replaced.
    before: VecDeque<(Instant, Arc<AuditPolicy>)>,
    /// The recorded denials; shared with readers of a view.
    seen: FairShareMap<Arc<DeniedCalls>>,
    /// How many calls of each pair strict mode would have denied since the start.
    counted: FairShareMap<u64>,
    /// Calls of pairs beyond the bound of the recorded ones, and when the last was reported.
    beyond_seen: BTreeMap<ServicePort, (u64, Timestamp)>,
    /// Calls of pairs beyond the bound of the counted ones.
    beyond_counted: BTreeMap<ServicePort, u64>,
    swept: Timestamp,
    /// How often the recorded denials have changed.
    changes: u64,
}

impl Audit {
    pub(crate) fn new(
        trust_domain: TrustDomain,
        mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    ) -> Self {
        snapshots.mark_changed();
        let since = Timestamp::now();
        let state = State {
            snapshots,
            now: None,
            before: VecDeque::new(),
            seen: FairShareMap::new(MAX_PAIRS),
            counted: FairShareMap::new(MAX_PAIRS),
            beyond_seen: BTreeMap::new(),
            beyond_counted: BTreeMap::new(),
            swept: since,
            changes: 0,
        };
        Self { trust_domain, since, state: Mutex::new(state) }
    }

    /// Records what the proxy of `record` reports.
    pub(crate) fn record_calls(&self, record: &JoinRecord, calls: &[LoggedCall]) {
        let Some(policy) = self.state().now.clone() else { return };
        let at = Timestamp::now();
        let reported = self.group_by_pair(record, calls).into_iter();
        let mut denied: BTreeMap<CallPair, DeniedCalls> = reported
            .filter_map(|(pair, calls)| {
                let calls = denied_of(&policy, &pair, calls);
                (!calls.is_empty()).then(|| (pair, DeniedCalls::of(&calls, at)))
            })
            .collect();
        if denied.is_empty() {
            return;
        }
        let state = self.state();
        let new = denied.keys().filter(|pair| !state.seen.contains(pair)).cloned();
        let (new, has_capacity): (BTreeSet<_>, _) =
            (new.collect(), state.seen.has_capacity_for(record.id));
        let before = state.before.clone();
        drop(state);
        // A pair beyond the bound is not examined further: it counts once policy has not changed for a while.
        let may_be_of_before = |pair: &CallPair| {
            let may_deny_differently =
                |old: &AuditPolicy| !has_capacity || old.may_deny_differently(pair, &policy);
            before.iter().any(|(_, old)| may_deny_differently(old))
        };
        denied.retain(|pair, seen| {
            !(seen.is_of_http() && new.contains(pair) && may_be_of_before(pair))
        });
        let mut state = self.state();
        // Unless policy has changed meanwhile: then calls that are still denied are reported again.
        if state.now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &policy)) {
            for (pair, seen) in denied {
                state.record(record.id, pair, seen);
            }
        }
    }

    /// The view of all denials, ordered by service port.
    pub(crate) fn view(&self) -> AuditView {
        let state = self.state();
        let seen: Vec<_> =
            state.seen.iter().map(|(pair, seen)| (pair.clone(), Arc::clone(seen))).collect();
        let beyond = state.beyond_seen.clone();
        drop(state);
        let mut denied: Vec<_> = seen.iter().map(|(pair, seen)| seen.view(pair)).collect();
        let others = beyond.into_iter().map(|(port, (count, last_seen))| OthersView {
            service: port.service,
            port: port.port,
            count,
            last_seen,
        });
        let others = others.collect();
        denied.sort_by(|a, b| (&a.service, a.port).cmp(&(&b.service, b.port)));
        AuditView { since: self.since, denied, others }
    }

    /// The view of all denials at this control plane, and those that `peers` publish.
    pub(crate) fn view_with(&self, peers: Vec<AuditView>) -> AuditView {
        let policy = self.state().now.clone();
        let is_audited =
            |pair: &CallPair| policy.as_ref().is_some_and(|policy| policy.audited(pair).is_some());
        shared::sum(self.view(), peers, is_audited)
    }

    /// How often the recorded denials have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// How many calls of each pair strict mode would have denied since the start, and how many of other pairs on each
    /// port.
    pub(crate) fn counted(&self) -> (BTreeMap<CallPair, u64>, BTreeMap<ServicePort, u64>) {
        let state = self.state();
        let counted = state.counted.iter().map(|(pair, count)| (pair.clone(), *count));
        (counted.collect(), state.beyond_counted.clone())
    }

    /// The state, updated to the newest snapshot.
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let at = Instant::now();
        state.follow(at);
        state.forget_old(Timestamp::now(), at);
        state
    }

    /// The calls of a message by caller and service port, as far as the proxy serves the port. Each name is parsed
    /// once, however often it is reported.
    fn group_by_pair<'a>(
        &self,
        record: &JoinRecord,
        calls: &'a [LoggedCall],
    ) -> BTreeMap<CallPair, Vec<&'a LoggedCall>> {
        let mut by_names: BTreeMap<(&str, &[String]), Vec<&LoggedCall>> = BTreeMap::new();
        for call in calls {
            by_names.entry((&call.cluster, &call.peer)).or_default().push(call);
        }
        let mut by_pair: BTreeMap<CallPair, Vec<&LoggedCall>> = BTreeMap::new();
        for ((cluster, peer), calls) in by_names {
            if let Some(pair) = self.pair(record, cluster, peer) {
                by_pair.entry(pair).or_default().extend(calls);
            }
        }
        by_pair
    }

    /// The caller and the port of a call, if they are an account of the mesh and a port that the proxy serves.
    fn pair(&self, record: &JoinRecord, cluster: &str, peer: &[String]) -> Option<CallPair> {
        // (Connections that a rate limit service counts pass an internal listener.)
        let port = names::port_of_own_cluster(cluster)?;
        if !record.services.contains(&port.service) {
            tracing::debug!(proxy = %record.id, %port, "ignoring reported calls of a service that the proxy does not serve");
            return None;
        }
        let account = |uri: &String| self.trust_domain.account(&SpiffeId::new(uri).ok()?);
        Some((peer.iter().find_map(account)?, port))
    }
}

/// The calls that strict mode would deny.
fn denied_of<'a>(
    policy: &AuditPolicy,
    pair: &CallPair,
    mut calls: Vec<&'a LoggedCall>,
) -> Vec<&'a LoggedCall> {
    match policy.audited(pair) {
        // The proxy's shadow rules decided.
        Some((_, port)) if port.protocol.is_http() => calls.retain(|call| call.request.is_some()),
        Some(_) if policy.allowed_traffic(pair).is_some_and(|traffic| traffic.is_empty()) => {
            calls.retain(|call| call.request.is_none());
        }
        _ => calls.clear(),
    }
    calls
}

impl State {
    /// Moves to the newest snapshot, and forgets denials whose pair its policy treats differently.
    fn follow(&mut self, at: Instant) {
        if !self.snapshots.has_changed().unwrap_or(true) {
            return;
        }
        let Some(snapshot) = self.snapshots.borrow_and_update().clone() else { return };
        if self.now.as_ref().is_some_and(|policy| policy.is_same_as(&snapshot)) {
            return;
        }
        let policy = Arc::new(AuditPolicy::of(&snapshot));
        let Some(old) = self.now.replace(Arc::clone(&policy)) else { return };
        self.changes += 1;
        self.seen.retain(|pair, _| policy.allowed_traffic(pair) == old.allowed_traffic(pair));
        self.counted.retain(|pair, _| policy.contains(pair));
        // The pairs of these are unknown: calls that are still denied will be reported again.
        self.beyond_seen.clear();
        self.beyond_counted.retain(|port, _| policy.port(port).is_some());
        if self.before.len() >= MAX_EARLIER_POLICIES {
            self.before.pop_front();
        }
        self.before.push_back((at, old));
    }

    fn forget_old(&mut self, now: Timestamp, at: Instant) {
        self.before.retain(|(replaced, _)| at - *replaced < SETTLED_AFTER);
        if now.duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.changes += 1;
        self.seen.retain(|_, seen| !Arc::make_mut(seen).forget_old(now));
        self.beyond_seen.retain(|_, (_, last)| now.duration_since(*last) < RETENTION);
    }

    /// Records denied calls of a pair.
    fn record(&mut self, reporter: ProxyId, pair: CallPair, reported: DeniedCalls) {
        self.changes += 1;
        let count = reported.count;
        let add = |known: &mut Arc<DeniedCalls>, reported| {
            Arc::make_mut(known).add(Arc::unwrap_or_clone(reported));
        };
        if let Some((out, seen)) = self.seen.add(reporter, pair.clone(), Arc::new(reported), add) {
            let (beyond, last) = self.beyond_seen.entry(out.1).or_insert((0, seen.last));
            *beyond += seen.count;
            *last = seen.last.max(*last);
        }
        let add = |known: &mut u64, more| *known += more;
        if let Some((out, count)) = self.counted.add(reporter, pair, count, add) {
            *self.beyond_counted.entry(out.1).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests;
