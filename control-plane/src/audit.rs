//! What strict would deny, as the proxies of services in audit tell of it: who calls what, how often.
//!
//! It is kept in memory alone, in bounds, and forgotten for what would be allowed now: an operator adds a
//! rule and sees the line go. A proxy is believed about the service ports that it serves, of callers that
//! policy knows, and about no others (invariant 2); whom of these it says it has served is its word.
//!
//! One that tells what is not so, without end, harms no others (invariant 10): what a message tells is added
//! up and judged while nothing is locked, and what is kept of it gives way to what others tell (`book.rs`).

mod book;
mod policy;
mod seen;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_admin::{AuditView, OthersView};
use ironmesh_catalog::{
    JoinRecord, ProxyId, ServiceAccount, ServicePort, Snapshot, SpiffeId, TrustDomain,
};
use ironmesh_xds_compile::names;
use ironmesh_xds_wire::LoggedCall;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use book::Book;
use policy::Policy;
use seen::{REMEMBERED, Seen};

/// For how long proxies may judge by what policy said before: until they have taken the new one, and have
/// told what they had collected.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// How many policies of before are looked at for that; when there are more, the oldest goes first.
const MOST_BEFORE: usize = 16;

/// Of how many callers of service ports is told, and of how many it is counted how often. Of one that is
/// told 4 KiB are kept at most.
const MOST: usize = 8192;

/// How often it is looked for what was not seen for long.
const SWEEP: SignedDuration = SignedDuration::from_mins(1);

/// Who calls which service port.
pub(crate) type Pair = (ServiceAccount, ServicePort);

#[derive(Debug)]
pub(crate) struct Audit {
    trust_domain: TrustDomain,
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    /// The policy by which all that is seen was judged.
    now: Option<Arc<Policy>>,
    /// Those before it, and when each was replaced.
    before: VecDeque<(Instant, Arc<Policy>)>,
    /// Shared with those who are just being shown it.
    seen: Book<Arc<Seen>>,
    /// How many calls strict would have denied since the beginning.
    counted: Book<u64>,
    /// Calls of pairs for which there was no room among those that are seen, and when the last was told of.
    beyond_seen: BTreeMap<ServicePort, (u64, Timestamp)>,
    /// Calls of pairs for which there was no room among those that are counted.
    beyond_counted: BTreeMap<ServicePort, u64>,
    swept: Timestamp,
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
            seen: Book::new(MOST),
            counted: Book::new(MOST),
            beyond_seen: BTreeMap::new(),
            beyond_counted: BTreeMap::new(),
            swept: since,
        };
        Self { trust_domain, since, state: Mutex::new(state) }
    }

    /// Takes what the proxy of `record` tells.
    pub(crate) fn logged(&self, record: &JoinRecord, calls: &[LoggedCall]) {
        let Some(policy) = self.state().now.clone() else { return };
        let at = Timestamp::now();
        let told = self.add_up(record, calls).into_iter();
        let mut denied: BTreeMap<Pair, Seen> = told
            .filter_map(|(pair, calls)| {
                let calls = denied_of(&policy, &pair, calls);
                (!calls.is_empty()).then(|| (pair, Seen::of(&calls, at)))
            })
            .collect();
        if denied.is_empty() {
            return;
        }
        let state = self.state();
        let new = denied.keys().filter(|pair| !state.seen.contains(pair)).cloned();
        let (new, has_room): (BTreeSet<_>, _) = (new.collect(), state.seen.has_room_for(record.id));
        let before = state.before.clone();
        drop(state);
        // What has no room is not looked into: it counts when policy has been settled for a while.
        let may_be_of_before = |pair: &Pair| {
            let may_have_denied = |old: &Policy| !has_room || old.may_have_denied(pair, &policy);
            before.iter().any(|(_, old)| may_have_denied(old))
        };
        denied.retain(|pair, seen| {
            !(seen.is_of_http() && new.contains(pair) && may_be_of_before(pair))
        });
        let mut state = self.state();
        // Where policy has changed meanwhile: who is still denied is told of again.
        if state.now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &policy)) {
            for (pair, seen) in denied {
                state.note(record.id, pair, seen);
            }
        }
    }

    /// What would be denied, in the order of who is called.
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

    /// How many calls of each pair strict would have denied since the beginning, and how many of others on
    /// each port.
    pub(crate) fn counted(&self) -> (BTreeMap<Pair, u64>, BTreeMap<ServicePort, u64>) {
        let state = self.state();
        let counted = state.counted.iter().map(|(pair, count)| (pair.clone(), *count));
        (counted.collect(), state.beyond_counted.clone())
    }

    /// The state as it is in the newest moment of the mesh.
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let at = Instant::now();
        state.follow(at);
        state.forget_old(Timestamp::now(), at);
        state
    }

    /// The calls of a message of what the proxy serves, by whom they are. Each name is read once, however
    /// often it is told.
    fn add_up<'a>(
        &self,
        record: &JoinRecord,
        calls: &'a [LoggedCall],
    ) -> BTreeMap<Pair, Vec<&'a LoggedCall>> {
        let mut by_names: BTreeMap<(&str, &[String]), Vec<&LoggedCall>> = BTreeMap::new();
        for call in calls {
            by_names.entry((&call.cluster, &call.peer)).or_default().push(call);
        }
        let mut by_pair: BTreeMap<Pair, Vec<&LoggedCall>> = BTreeMap::new();
        for ((cluster, peer), calls) in by_names {
            if let Some(pair) = self.pair(record, cluster, peer) {
                by_pair.entry(pair).or_default().extend(calls);
            }
        }
        by_pair
    }

    /// Whose call it is of what, if that is an account of the mesh and a port of a service of the proxy.
    fn pair(&self, record: &JoinRecord, cluster: &str, peer: &[String]) -> Option<Pair> {
        // (Connections that a rate limit service counts have a way in between.)
        let port = names::port_of_own_cluster(cluster)?;
        if !record.services.contains(&port.service) {
            tracing::debug!(proxy = %record.id, %port, "told of calls of what it does not serve");
            return None;
        }
        let account = |uri: &String| self.trust_domain.account(&SpiffeId::new(uri).ok()?);
        Some((peer.iter().find_map(account)?, port))
    }
}

/// Those of the calls that strict would deny.
fn denied_of<'a>(
    policy: &Policy,
    pair: &Pair,
    mut calls: Vec<&'a LoggedCall>,
) -> Vec<&'a LoggedCall> {
    match policy.audited(pair) {
        // The proxy has judged.
        Some((_, port)) if port.protocol.is_http() => calls.retain(|call| call.request.is_some()),
        Some(_) if policy.ways(pair).is_some_and(|ways| ways.is_empty()) => {
            calls.retain(|call| call.request.is_none());
        }
        _ => calls.clear(),
    }
    calls
}

impl State {
    /// Moves on to the newest moment, and forgets what its policy may allow.
    fn follow(&mut self, at: Instant) {
        if !self.snapshots.has_changed().unwrap_or(true) {
            return;
        }
        let Some(snapshot) = self.snapshots.borrow_and_update().clone() else { return };
        if self.now.as_ref().is_some_and(|policy| policy.is_of(&snapshot)) {
            return;
        }
        let policy = Arc::new(Policy::of(&snapshot));
        let Some(old) = self.now.replace(Arc::clone(&policy)) else { return };
        self.seen.retain(|pair, _| policy.ways(pair) == old.ways(pair));
        self.counted.retain(|pair, _| policy.knows(pair));
        // Of these nobody knows whom they were about: who is still denied is seen again.
        self.beyond_seen.clear();
        self.beyond_counted.retain(|port, _| policy.port(port).is_some());
        if self.before.len() >= MOST_BEFORE {
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
        self.seen.retain(|_, seen| !Arc::make_mut(seen).forget_old(now));
        self.beyond_seen.retain(|_, (_, last)| now.duration_since(*last) < REMEMBERED);
    }

    /// Takes note of calls that would be denied.
    fn note(&mut self, teller: ProxyId, pair: Pair, told: Seen) {
        let count = told.count;
        let add =
            |known: &mut Arc<Seen>, told| Arc::make_mut(known).add(Arc::unwrap_or_clone(told));
        if let Some((out, seen)) = self.seen.add(teller, pair.clone(), Arc::new(told), add) {
            let (beyond, last) = self.beyond_seen.entry(out.1).or_insert((0, seen.last));
            *beyond += seen.count;
            *last = seen.last.max(*last);
        }
        let add = |known: &mut u64, more| *known += more;
        if let Some((out, count)) = self.counted.add(teller, pair, count, add) {
            *self.beyond_counted.entry(out.1).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests;
