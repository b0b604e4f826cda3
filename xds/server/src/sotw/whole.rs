//! Clusters or listeners of a stream: a response contains all of them, and omission means removal
//! (R41).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::{
    Resource, ResourceMap, ResourceSet, ResourceType, SotwRequest, SotwResponse, Version,
};
use tokio::time::Instant;

use super::RequestOutcome;
use super::exchange::{Exchange, Reply};
use crate::nack_bisection::NackBisection;
use crate::overlay::Overlay;

mod claim;
mod reply;
mod uncertain;

pub use claim::AckedState;
use uncertain::UncertainState;

#[derive(Debug)]
pub(crate) struct Whole {
    resource_type: ResourceType,
    pub(crate) exchange: Exchange,
    /// The last state that was sent and not NACKed; `None` if the client's state is unknown.
    sent: Option<ResourceMap>,
    /// The last state that the client ACKed, without names that it has dropped.
    last_acked: ResourceMap,
    /// The client's version of that state; empty before there is one.
    last_acked_version: String,
    /// Whether `last_acked` is all that the client can have. It is not if the client resumed with a
    /// version unknown to the server.
    pub(super) knows_base: bool,
    /// How the client may differ from `last_acked`.
    uncertain: UncertainState,
    /// The versions of `last_acked` without uncertain names.
    pub(crate) acked: Overlay<Version>,
    /// Versions that the client NACKed, which are not sent to it again.
    pub(crate) nacked: BTreeMap<Arc<str>, Version>,
    /// A state that the client NACKed as a whole, without a single resource to attribute it to.
    nacked_state: Option<Version>,
    /// Whether that state is the published one.
    pub(super) is_blocked: bool,
    /// Names that are pushed in groups on top of `last_acked`, because the client NACKed a push
    /// that changed all of them.
    bisection: NackBisection,
    /// Names that wait for what they refer to.
    pub(super) held: Vec<Arc<str>>,
    /// Names that are due, if they exist, whatever version the client has.
    explicitly_requested: BTreeSet<Arc<str>>,
    /// Whether a response is due even if nothing has changed.
    pub(super) owes_response: bool,
    /// The ACKed state of the client's earlier stream.
    kept: Option<AckedState>,
    /// The version that the client reported from an earlier stream, until it is evaluated.
    claimed: Option<String>,
    /// The state of the last push.
    push: ResourceMap,
}

impl Whole {
    pub(crate) fn new(resource_type: ResourceType, kept: Option<AckedState>) -> Self {
        Self {
            resource_type,
            exchange: Exchange::new(resource_type),
            sent: None,
            last_acked: ResourceMap::new(),
            last_acked_version: String::new(),
            knows_base: true,
            uncertain: UncertainState::default(),
            acked: Overlay::default(),
            nacked: BTreeMap::new(),
            nacked_state: None,
            is_blocked: false,
            bisection: NackBisection::default(),
            held: Vec::new(),
            explicitly_requested: BTreeSet::new(),
            owes_response: false,
            kept,
            claimed: None,
            push: ResourceMap::new(),
        }
    }

    /// Handles a request.
    pub(crate) fn on_request(
        &mut self,
        request: &SotwRequest,
        target: Option<&ResourceSet>,
    ) -> RequestOutcome {
        let parsed = self.exchange.on_request(request);
        if parsed.is_first {
            self.claimed = Some(request.version_info.clone());
        }
        let answer = match parsed.reply {
            Some(Reply::Acked) => RequestOutcome::Acked(self.on_ack(target)),
            Some(Reply::Nacked(error)) => RequestOutcome::Nacked(self.on_nack(error)),
            None if parsed.is_stale => RequestOutcome::Stale,
            None => RequestOutcome::None,
        };
        // The client no longer has what it has dropped.
        self.forget_dropped();
        self.owes_response |= parsed.is_first || parsed.added.wildcard;
        self.explicitly_requested.extend(parsed.added.names);
        answer
    }

    fn forget_dropped(&mut self) {
        let subscription = &self.exchange.subscription;
        if subscription.is_wildcard {
            return;
        }
        let is_dropped = |name: &Arc<str>| !subscription.covers(name);
        for state in self.sent.iter_mut().chain([&mut self.last_acked]) {
            let dropped: Vec<_> = state.keys().filter(|name| is_dropped(name)).cloned().collect();
            for name in dropped {
                state.remove(&name);
                self.acked.remove(&name);
            }
        }
        self.uncertain.retain(|name| !is_dropped(name));
        self.bisection.retain(|name| !is_dropped(name));
        self.explicitly_requested.retain(|name| !is_dropped(name));
    }

    fn is_nacked(&self, name: &str, target: Option<&ResourceSet>) -> bool {
        let wanted = target.and_then(|target| target.of(self.resource_type).get(name));
        wanted.is_some_and(|wanted| self.nacked.get(name) == Some(&wanted.version()))
    }

    /// The published state without bisection; each NACKed version is replaced by the last ACKed
    /// one.
    fn goal(&self, target: &ResourceSet) -> ResourceMap {
        let resources = target.of(self.resource_type);
        let subscription = &self.exchange.subscription;
        let mut goal = if subscription.is_wildcard {
            resources.clone()
        } else {
            let names = subscription.names.names();
            names.filter_map(|name| resources.get(name).cloned()).collect()
        };
        for (name, version) in &self.nacked {
            if goal.get(name).is_some_and(|resource| resource.version() == *version) {
                match self.last_acked.get(name) {
                    Some(resource) => goal.insert(Arc::clone(resource)),
                    None => goal.remove(name),
                };
            }
        }
        goal
    }

    /// The next state to send; `None` if nothing can be sent yet.
    ///
    /// With `keeps_gone` it still contains removed resources, because others may refer to them.
    /// Resources that must wait keep their last ACKed version. If that is unknown, nothing can be
    /// sent yet.
    fn next_state(
        &mut self,
        target: &ResourceSet,
        keeps_gone: bool,
        hold: impl Fn(&Resource) -> bool,
    ) -> Option<ResourceMap> {
        let resources = target.of(self.resource_type);
        let mut state = self.goal(target);
        // A bisection delays no other resource: those go first.
        let in_bisection: Vec<_> = self.bisection.names().cloned().collect();
        for name in &in_bisection {
            keep(&mut state, &self.last_acked, name);
        }
        self.held.clear();
        for name in differing(&self.last_acked, &state) {
            // To omit a resource that a client of unknown state may have would remove it.
            if self.knows_base && state.get(&name).is_some_and(|resource| hold(resource)) {
                keep(&mut state, &self.last_acked, &name);
                self.held.push(name);
            }
        }
        let is_free = |name: &str| !resources.get(name).is_some_and(|resource| hold(resource));
        let news = differing(&self.last_acked, &state);
        let is_idle =
            news.iter().all(|name| !state.contains_key(name)) || self.is_in_flight(&state);
        let mut is_bisecting = false;
        if is_idle && let Some(group) = self.bisection.next_of(is_free) {
            state.clone_from(&self.last_acked);
            for resource in group.iter().filter_map(|name| resources.get(name)) {
                state.insert(Arc::clone(resource));
                is_bisecting = true;
            }
        }
        if keeps_gone && !is_bisecting {
            let sent = self.sent.as_ref().unwrap_or(&self.last_acked);
            for name in differing(&state, sent) {
                if let (false, Some(gone)) = (resources.contains_key(&name), sent.get(&name)) {
                    state.insert(Arc::clone(gone));
                }
            }
        }
        let held = self.without_fallback(&state, resources, hold);
        let is_urgent = |name: &Arc<str>| state.get(name).is_some_and(|one| one.is_urgent());
        let must_wait = !held.is_empty() && !self.possibly_changed(&state).iter().any(is_urgent);
        self.held.extend(held);
        (!must_wait).then_some(state)
    }

    /// The names in `state` that the client may have in another version, or not at all.
    fn possibly_changed(&self, state: &ResourceMap) -> Vec<Arc<str>> {
        if !self.knows_base {
            return state.keys().cloned().collect();
        }
        let mut news: BTreeSet<_> = differing(&self.last_acked, state).into_iter().collect();
        news.extend(self.uncertain.names.iter().cloned());
        if self.exchange.is_unanswered() {
            news.extend(differing(&self.push, state));
        }
        news.into_iter().filter(|name| state.contains_key(name)).collect()
    }

    /// The names in `state` that must wait for a reference, and for which no version can be sent
    /// meanwhile, because it is unknown which one the client has. Nothing of the type is sent until
    /// they need not wait any more, unless it is urgent.
    fn without_fallback(
        &self,
        state: &ResourceMap,
        resources: &ResourceMap,
        hold: impl Fn(&Resource) -> bool,
    ) -> Vec<Arc<str>> {
        let is_certain = self.uncertain.names.is_empty() && !self.exchange.is_unanswered();
        if self.knows_base && is_certain {
            return Vec::new();
        }
        let must_wait = |name: &Arc<str>| {
            let wanted = resources.get(name);
            state.get(name).is_some_and(|one| wanted == Some(one) && hold(one))
        };
        self.possibly_changed(state).into_iter().filter(must_wait).collect()
    }

    /// Whether this state was sent last, and is unanswered.
    fn is_in_flight(&self, state: &ResourceMap) -> bool {
        self.exchange.is_unanswered() && differing(&self.push, state).is_empty()
    }

    /// The state to send now, if any. `hold` selects the resources that must wait.
    pub(crate) fn due(
        &mut self,
        target: &ResourceSet,
        keeps_gone: bool,
        hold: impl Fn(&Resource) -> bool,
    ) -> Option<ResourceMap> {
        if !self.exchange.subscription.has_begun {
            return None;
        }
        let resources = target.of(self.resource_type);
        let (last_acked, nacked) = (&self.last_acked, &self.nacked);
        self.bisection.retain(|name| {
            let wanted = resources.get(name).map(|resource| resource.version());
            let has = last_acked.get(name).map(|resource| resource.version());
            wanted.is_some() && wanted != has && nacked.get(name).copied() != wanted
        });
        let Some(state) = self.next_state(target, keeps_gone, hold) else {
            self.is_blocked = false;
            return None;
        };
        self.explicitly_requested.retain(|name| state.contains_key(name));
        let is_uncertain = |name: &Arc<str>| !self.is_nacked(name, Some(target));
        // To repeat a late push would make the reply to it stale.
        let is_in_flight = self.is_in_flight(&state);
        let is_due = self.owes_response
            || !self.explicitly_requested.is_empty()
            || self.sent.as_ref().is_none_or(|sent| !differing(sent, &state).is_empty())
            || (!is_in_flight && self.uncertain.names.iter().any(is_uncertain));
        self.is_blocked = is_due
            && self.nacked_state.is_some_and(|nacked| nacked == Version::of_all(state.values()));
        (is_due && !self.is_blocked).then_some(state)
    }

    /// Whether the target has `name` and it was never sent.
    pub(crate) fn is_unsent(&self, name: &str, target: &ResourceSet) -> bool {
        !self.is_blocked
            && self.exchange.subscription.covers(name)
            && target.of(self.resource_type).contains_key(name)
            && !self.is_nacked(name, Some(target))
            && !self.sent.as_ref().is_some_and(|sent| sent.contains_key(name))
    }

    /// Whether the target has `name` and the client has it in no version, or may have removed it by
    /// the time it reads the next push.
    pub(crate) fn is_lacking(&self, name: &str, target: &ResourceSet) -> bool {
        let may_have_gone = self.uncertain.gone.contains(name)
            || (self.exchange.is_unanswered() && !self.push.contains_key(name));
        !self.is_blocked
            && self.exchange.subscription.covers(name)
            && target.of(self.resource_type).contains_key(name)
            && !self.is_nacked(name, Some(target))
            && (may_have_gone || !self.last_acked.contains_key(name))
    }

    /// Whether the client is known to have all resources of the target, and no removal is in
    /// flight.
    pub(crate) fn lacks_none(&self, target: &ResourceSet) -> bool {
        self.last_acked.ptr_eq(target.of(self.resource_type))
            && self.uncertain.gone.is_empty()
            && !self.exchange.is_unanswered()
    }

    /// Whether the client may have `name`.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        let sent = self.sent.as_ref().is_some_and(|sent| sent.contains_key(name));
        sent || self.last_acked.contains_key(name)
    }

    /// Builds the push of `state`, with the names that may differ from what the client has.
    pub(crate) fn push(
        &mut self,
        state: ResourceMap,
        nonce: u64,
        now: Instant,
    ) -> (SotwResponse, BTreeSet<Arc<str>>) {
        if self.exchange.is_unanswered() {
            // The reply to it will be stale: the client may ACK it, or NACK it and apply a part.
            let push = std::mem::take(&mut self.push);
            self.uncertain.add(&self.last_acked, &push);
        }
        let mut changed = std::mem::take(&mut self.explicitly_requested);
        changed.extend(differing(&self.last_acked, &state));
        changed.extend(self.sent.iter().flat_map(|sent| differing(sent, &state)));
        changed.extend(self.uncertain.names.iter().cloned());
        changed.retain(|name| state.contains_key(name));
        self.bisection.retain(|name| {
            state.get(name).map(|r| r.version()) == self.last_acked.get(name).map(|r| r.version())
        });
        (self.owes_response, self.is_blocked) = (false, false);
        self.exchange.sent(nonce, now);
        let response = SotwResponse {
            resource_type: self.resource_type,
            version: Version::of_all(state.values()),
            nonce,
            resources: state.values().cloned().collect(),
        };
        self.sent = Some(state.clone());
        self.push = state;
        (response, changed)
    }
}

/// Keeps the last ACKed version of `name` in `state`.
fn keep(state: &mut ResourceMap, last_acked: &ResourceMap, name: &Arc<str>) {
    match last_acked.get(name) {
        Some(resource) => state.insert(Arc::clone(resource)),
        None => state.remove(name),
    };
}

/// The names that differ between two maps, or that only one of them has.
fn differing(old: &ResourceMap, new: &ResourceMap) -> Vec<Arc<str>> {
    ironmesh_xds_wire::changed_names(old, new)
}
