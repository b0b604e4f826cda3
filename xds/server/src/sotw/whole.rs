//! Clusters or listeners of a stream: a response has all of them, and what it has not is gone (R41).

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
    /// The last state that was sent and not refused; `None` where what the client has is not known.
    sent: Option<ResourceMap>,
    /// The last state that the client has taken. Names that it has dropped are not in it.
    last_acked: ResourceMap,
    /// The version by which the client knows that state; empty before there is one.
    last_acked_version: String,
    /// Whether `last_acked` is all that the client can have. It is not when the client comes with a
    /// version of a state that we do not know.
    pub(super) knows_base: bool,
    /// In what the client may differ from `last_acked`.
    uncertain: UncertainState,
    /// What is in force and not in doubt.
    pub(crate) acked: Overlay<Version>,
    /// Versions that the client refused. They are not sent to it again.
    pub(crate) nacked: BTreeMap<Arc<str>, Version>,
    /// A state that the client refused, and of which no single resource can be blamed.
    nacked_state: Option<Version>,
    /// Whether it is that state which the client is to have.
    pub(super) is_blocked: bool,
    /// Names that are tried in parts, on top of what is in force, because a push that changed them all
    /// was refused.
    bisection: NackBisection,
    /// Names that wait for what they refer to.
    pub(super) held: Vec<Arc<str>>,
    /// Names that are to be sent, if they are there, whatever the client has.
    explicitly_requested: BTreeSet<Arc<str>>,
    /// Whether an answer is due even if nothing has changed.
    pub(super) owes_response: bool,
    /// What an earlier stream of the client left.
    kept: Option<AckedState>,
    /// The version that the client says it has from an earlier stream, as long as it is not judged.
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

    /// Takes a request.
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
        // What the client has dropped it has no more.
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

    /// What the client is to have when nothing of it is tried by itself; in place of what it refuses,
    /// what it has taken before.
    fn goal(&self, target: &ResourceSet) -> ResourceMap {
        let resources = target.of(self.resource_type);
        let subscription = &self.exchange.subscription;
        let mut goal = if subscription.is_wildcard {
            resources.clone()
        } else {
            let names = subscription.names.names();
            names
                .filter_map(|name| Some((Arc::clone(name), resources.get(name)?.clone())))
                .collect()
        };
        for (name, version) in &self.nacked {
            if goal.get(name).is_some_and(|resource| resource.version() == *version) {
                match self.last_acked.get(name) {
                    Some(resource) => goal.insert(Arc::clone(name), Arc::clone(resource)),
                    None => goal.remove(name),
                };
            }
        }
        goal
    }

    /// The state that is to be sent next. Where `keeps_gone`, what the client has and is to have no
    /// more is still in it, because something may refer to it. In place of what is to wait there is
    /// what is in force. `None` where that is not known: then nothing can be sent yet.
    fn next_state(
        &mut self,
        target: &ResourceSet,
        keeps_gone: bool,
        hold: impl Fn(&Resource) -> bool,
    ) -> Option<ResourceMap> {
        let resources = target.of(self.resource_type);
        let mut state = self.goal(target);
        // What is being tried holds up nothing else: that goes first.
        let in_bisection: Vec<_> = self.bisection.names().cloned().collect();
        for name in &in_bisection {
            keep(&mut state, &self.last_acked, name);
        }
        self.held.clear();
        for name in differing(&self.last_acked, &state) {
            // (To leave out what a client of an unknown state may have would be to remove it.)
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
                state.insert(Arc::clone(resource.name()), Arc::clone(resource));
                is_bisecting = true;
            }
        }
        if keeps_gone && !is_bisecting {
            let sent = self.sent.as_ref().unwrap_or(&self.last_acked);
            for name in differing(&state, sent) {
                if let (false, Some(gone)) = (resources.contains_key(&name), sent.get(&name)) {
                    state.insert(name, Arc::clone(gone));
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

    /// The names in `state` that must wait for what they refer to, and for which no version can be sent
    /// meanwhile: each one may be news to the client, because it is not known which one it has. Nothing of
    /// the type is sent until they need not wait any more, unless it is urgent.
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

    /// Whether this is what was sent last, and it has no answer yet.
    fn is_in_flight(&self, state: &ResourceMap) -> bool {
        self.exchange.is_unanswered() && differing(&self.push, state).is_empty()
    }

    /// The state that is to be sent now, if one is. `hold` says what is to wait.
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
        // To send again what is late would make the answer to that a stale one.
        let is_in_flight = self.is_in_flight(&state);
        let is_due = self.owes_response
            || !self.explicitly_requested.is_empty()
            || self.sent.as_ref().is_none_or(|sent| !differing(sent, &state).is_empty())
            || (!is_in_flight && self.uncertain.names.iter().any(is_uncertain));
        self.is_blocked = is_due
            && self.nacked_state.is_some_and(|nacked| nacked == Version::of_all(state.values()));
        (is_due && !self.is_blocked).then_some(state)
    }

    /// Whether the client is to have `name` and was never sent it.
    pub(crate) fn is_unsent(&self, name: &str, target: &ResourceSet) -> bool {
        !self.is_blocked
            && self.exchange.subscription.covers(name)
            && target.of(self.resource_type).contains_key(name)
            && !self.is_nacked(name, Some(target))
            && !self.sent.as_ref().is_some_and(|sent| sent.contains_key(name))
    }

    /// Whether the client is to have `name` and does not have it in any version, or may have let it go
    /// by the time that it reads what is sent now.
    pub(crate) fn is_lacking(&self, name: &str, target: &ResourceSet) -> bool {
        let may_have_gone = self.uncertain.gone.contains(name)
            || (self.exchange.is_unanswered() && !self.push.contains_key(name));
        !self.is_blocked
            && self.exchange.subscription.covers(name)
            && target.of(self.resource_type).contains_key(name)
            && !self.is_nacked(name, Some(target))
            && (may_have_gone || !self.last_acked.contains_key(name))
    }

    /// Whether it is known that the client has all that it is to have, and may let nothing go.
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

    /// The push of `state`, and the names that are perhaps other than the client has them.
    pub(crate) fn push(
        &mut self,
        state: ResourceMap,
        nonce: u64,
        now: Instant,
    ) -> (SotwResponse, BTreeSet<Arc<str>>) {
        if self.exchange.is_unanswered() {
            // Its answer is late, and will be stale: it may be taken, or refused and taken in part.
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

/// Keeps of `name` in `state` what is in force.
fn keep(state: &mut ResourceMap, last_acked: &ResourceMap, name: &Arc<str>) {
    match last_acked.get(name) {
        Some(resource) => state.insert(Arc::clone(name), Arc::clone(resource)),
        None => state.remove(name),
    };
}

/// The names that stand for another version, or for none, or newly, in one of the two.
fn differing(old: &ResourceMap, new: &ResourceMap) -> Vec<Arc<str>> {
    ironmesh_xds_wire::changed_names(old, new)
}
