//! What strict would deny, as the proxies of services in audit tell of it: who calls what, how often.
//!
//! It is kept in memory alone, in bounds, and forgotten for what would be allowed now: an operator adds a
//! rule and sees the line go. A proxy is believed about the service ports that it serves and about no
//! others (invariant 2); whom it says it has served is its word, and harms nobody else.

mod gates;
mod seen;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_admin::AuditView;
use ironmesh_catalog::{
    JoinRecord, Mode, Service, ServiceAccount, ServicePort, Snapshot, SpiffeId, TrustDomain,
};
use ironmesh_xds_wire::LoggedCall;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use gates::Gates;
use seen::Seen;

/// For how long proxies may judge by what policy said before: until they have taken the new one, and have
/// told what they had collected.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// How many moments of before are looked at for that; when there are more, the oldest goes first.
const MOST_BEFORE: usize = 16;

/// Of how many callers of service ports is told, and of how many it is counted how often.
const MOST_SEEN: usize = 1024;
const MOST_COUNTED: usize = 4096;

/// Who calls which service port.
pub(crate) type Way = (ServiceAccount, ServicePort);

#[derive(Debug)]
pub(crate) struct Audit {
    trust_domain: TrustDomain,
    snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The moment by which all below was judged.
    now: Option<Arc<Snapshot>>,
    /// Those before of which policy differs, and when each was replaced.
    before: VecDeque<(Instant, Arc<Snapshot>)>,
    seen: BTreeMap<Way, Seen>,
    /// How many calls strict would have denied since the beginning.
    counted: BTreeMap<Way, u64>,
    /// Calls of ways for which there was no room among those that are seen.
    beyond_seen: u64,
    /// The same of those that are counted.
    beyond_counted: u64,
}

impl Audit {
    pub(crate) fn new(
        trust_domain: TrustDomain,
        snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    ) -> Self {
        Self { trust_domain, snapshot, since: Timestamp::now(), state: Mutex::default() }
    }

    /// Takes what the proxy of `record` tells.
    pub(crate) fn logged(&self, record: &JoinRecord, calls: &[LoggedCall]) {
        let mut state = self.state();
        let Some(snapshot) = state.now.clone() else { return };
        for call in calls {
            if let Some(way) = self.would_be_denied(&snapshot, record, call) {
                state.note(&snapshot, way, call, Timestamp::now());
            }
        }
    }

    /// What would be denied, in the order of who is called.
    pub(crate) fn view(&self) -> AuditView {
        let state = self.state();
        let mut denied: Vec<_> = state.seen.iter().map(|(way, seen)| seen.view(way)).collect();
        denied.sort_by(|a, b| (&a.service, a.port).cmp(&(&b.service, b.port)));
        AuditView { since: self.since, denied, others: state.beyond_seen }
    }

    /// How many calls of each way strict would have denied since the beginning, and how many of others.
    pub(crate) fn counted(&self) -> (BTreeMap<Way, u64>, u64) {
        let state = self.state();
        (state.counted.clone(), state.beyond_counted)
    }

    /// The state as it is in the newest moment of the mesh.
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let snapshot = self.snapshot.borrow().clone();
        if let Some(snapshot) = snapshot {
            state.follow(&snapshot, Instant::now());
        }
        state.forget_old(Timestamp::now());
        state
    }

    /// Whose call it is of what, if strict would deny it and nothing does now.
    fn would_be_denied(
        &self,
        snapshot: &Snapshot,
        record: &JoinRecord,
        call: &LoggedCall,
    ) -> Option<Way> {
        let port: ServicePort = call.cluster.strip_suffix("|local")?.parse().ok()?;
        if !record.services.contains(&port.service) {
            tracing::debug!(proxy = %record.id, %port, "told of calls of what it does not serve");
            return None;
        }
        let service = snapshot.service(&port.service)?;
        let account = |uri: &String| self.trust_domain.account(&SpiffeId::new(uri).ok()?);
        let caller = call.peer.iter().find_map(account)?;
        // Another namespace calls no private service, in audit either.
        let passes = is_audited(snapshot, service) && service.is_visible_in(&caller.namespace);
        let known = service.port(port.port)?;
        let is_denied = if known.protocol.is_http() {
            // The proxy has judged.
            call.request.is_some()
        } else {
            !snapshot.strict_tcp_callers(service, known).contain(&caller)
        };
        (passes && is_denied).then_some((caller, port))
    }
}

fn is_audited(snapshot: &Snapshot, service: &Service) -> bool {
    snapshot.mode_of(service) == Mode::Audit
}

impl State {
    /// Moves on to another moment, and forgets what it may allow.
    fn follow(&mut self, snapshot: &Arc<Snapshot>, at: Instant) {
        let Some(old) = self.now.replace(Arc::clone(snapshot)) else { return };
        if Arc::ptr_eq(&old, snapshot) || has_same_policy(&old, snapshot) {
            return;
        }
        self.before.retain(|(replaced, _)| at - *replaced < SETTLED_AFTER);
        if self.before.len() >= MOST_BEFORE {
            self.before.pop_front();
        }
        self.before.push_back((at, old));
        // Of these nobody knows whom they were about: who is still denied is seen again.
        self.beyond_seen = 0;
        self.seen.retain(|(caller, port), seen| {
            let service = snapshot.service(&port.service);
            service.is_some_and(|service| {
                is_audited(snapshot, service)
                    && seen.gates == Gates::of(snapshot, caller, service)
                    && service.port(port.port).is_some()
            })
        });
    }

    fn forget_old(&mut self, now: Timestamp) {
        for seen in self.seen.values_mut() {
            seen.forget_old(now);
        }
        self.seen.retain(|_, seen| !seen.is_empty());
    }

    /// Takes note of a call that would be denied.
    fn note(&mut self, snapshot: &Snapshot, way: Way, call: &LoggedCall, at: Timestamp) {
        if !self.seen.contains_key(&way) {
            let (caller, port) = &way;
            let Some(service) = snapshot.service(&port.service) else { return };
            let gates = Gates::of(snapshot, caller, service);
            if call.request.is_some() && self.may_be_of_before(caller, port, &gates) {
                return;
            }
            if self.seen.len() < MOST_SEEN {
                self.seen.insert(way.clone(), Seen::new(gates, at));
            }
        }
        match self.seen.get_mut(&way) {
            Some(seen) => seen.note(call.request.as_ref(), at),
            None => self.beyond_seen += 1,
        }
        if self.counted.len() < MOST_COUNTED || self.counted.contains_key(&way) {
            *self.counted.entry(way).or_default() += 1;
        } else {
            self.beyond_counted += 1;
        }
    }

    /// Whether what a proxy says may follow from a policy that let `caller` in by other ways.
    fn may_be_of_before(&self, caller: &ServiceAccount, port: &ServicePort, gates: &Gates) -> bool {
        let recent = self.before.iter().filter(|(replaced, _)| replaced.elapsed() < SETTLED_AFTER);
        let mut services = recent
            .filter_map(|(_, before)| Some((before, before.service(&port.service)?)))
            // What was not in audit told nothing.
            .filter(|(before, service)| is_audited(before, service));
        services.any(|(before, service)| Gates::of(before, caller, service) != *gates)
    }
}

fn has_same_policy(one: &Snapshot, other: &Snapshot) -> bool {
    let (ours, theirs) = (&one.specification, &other.specification);
    one.mode == other.mode
        && one.grants.are_same_as(&other.grants)
        && (Arc::ptr_eq(ours, theirs) || ours.differs_in_endpoints_only(theirs))
}

#[cfg(test)]
mod tests;
