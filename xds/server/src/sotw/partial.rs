//! Endpoints, routes or secrets of a stream: a response has some of them, and what it has not stays as
//! it is (R42).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::{
    ErrorDetail, Resource, ResourceMap, ResourceSet, ResourceType, SotwRequest, SotwResponse,
    Version,
};
use tokio::time::Instant;

use super::RequestOutcome;
use super::exchange::{Exchange, Reply};
use crate::nack_bisection::NackBisection;
use crate::overlay::Overlay;
use crate::stream::{Acked, FULL_RESPONSE, Nacked};

#[derive(Debug)]
pub(crate) struct Partial {
    resource_type: ResourceType,
    pub(crate) exchange: Exchange,
    /// What the client has or is being sent. What it refused is not in here: it may have that or what
    /// was before.
    sent: ResourceMap,
    /// What the client has taken last, of each name.
    last_acked: ResourceMap,
    /// The same without what is in doubt, because a push of it was refused.
    pub(crate) acked: Overlay<Version>,
    /// Versions that the client refused. They are not sent to it again.
    pub(crate) nacked: BTreeMap<Arc<str>, Version>,
    /// Names that may differ between the target and what is sent.
    dirty: BTreeSet<Arc<str>>,
    /// Names that are to be sent whatever the client has.
    explicitly_requested: BTreeSet<Arc<str>>,
    /// Names to be sent in parts, because a push that had them all was refused.
    bisection: NackBisection,
    /// Whether the client may ask once more for what it has had. Envoy does when what refers to that
    /// is pushed; others do so with every answer, and each would bring them a push.
    may_repeat: bool,
    /// Whether an answer is due even if it is empty.
    pub(crate) owes_response: bool,
    /// What the last push brought.
    push: Vec<Arc<Resource>>,
}

impl Partial {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            resource_type,
            exchange: Exchange::new(resource_type),
            sent: ResourceMap::new(),
            last_acked: ResourceMap::new(),
            acked: Overlay::default(),
            nacked: BTreeMap::new(),
            dirty: BTreeSet::new(),
            explicitly_requested: BTreeSet::new(),
            bisection: NackBisection::default(),
            may_repeat: false,
            owes_response: false,
            push: Vec::new(),
        }
    }

    /// Takes a request.
    pub(crate) fn on_request(
        &mut self,
        request: &SotwRequest,
        target: Option<&ResourceSet>,
    ) -> RequestOutcome {
        let parsed = self.exchange.on_request(request);
        // First the names: what the client has dropped it has no more.
        let subscription = &self.exchange.subscription;
        let is_dropped = |name: &Arc<str>| !subscription.covers(name);
        let dropped: Vec<_> = self.sent.keys().chain(self.last_acked.keys()).cloned().collect();
        for name in dropped.iter().filter(|name| is_dropped(name)) {
            self.sent.remove(name);
            self.last_acked.remove(name);
            self.acked.remove(name);
        }
        self.explicitly_requested.retain(|name| !is_dropped(name));
        self.bisection.retain(|name| !is_dropped(name));
        let answer = match parsed.reply {
            Some(Reply::Acked) => RequestOutcome::Acked(self.on_ack(target)),
            Some(Reply::Nacked(error)) => RequestOutcome::Nacked(self.on_nack(error, target)),
            None if parsed.is_stale => RequestOutcome::Stale,
            None => RequestOutcome::None,
        };
        self.explicitly_requested.extend(parsed.added.names);
        if parsed.is_repeated && std::mem::take(&mut self.may_repeat) {
            self.explicitly_requested.extend(self.exchange.subscription.names.names().cloned());
        }
        // What the client has from an earlier stream its one version does not tell, so all is sent.
        self.owes_response |= parsed.is_first;
        answer
    }

    fn on_ack(&mut self, target: Option<&ResourceSet>) -> Acked {
        let mut names = Vec::new();
        for resource in std::mem::take(&mut self.push) {
            let name = resource.name();
            if !self.exchange.subscription.covers(name) {
                continue;
            }
            let before = self.last_acked.insert(Arc::clone(name), Arc::clone(&resource));
            self.acked.insert(Arc::clone(name), resource.version());
            // What was in force before, or is sent in the place of what is refused, says nothing new of
            // that: it is refused still. (And what was in force when the stream began is not known.)
            if self.is_nacked(name, target) {
                continue;
            }
            if before.is_some_and(|before| before != resource) && self.nacked.remove(name).is_some()
            {
                self.dirty.insert(Arc::clone(name));
            }
            names.push(Arc::clone(name));
        }
        Acked { resource_type: self.resource_type, names }
    }

    /// Envoy may have taken the good resources of a push that it refused, so of none of them do we
    /// know the version (rule 5).
    fn on_nack(&mut self, error: ErrorDetail, target: Option<&ResourceSet>) -> Nacked {
        let push = std::mem::take(&mut self.push);
        let is_final = push.len() == 1;
        if !is_final {
            let wanted = |name: &&Arc<str>| self.exchange.subscription.covers(name);
            let names = push.iter().map(|resource| resource.name());
            self.bisection.split(names.filter(wanted).cloned().collect());
        }
        for resource in &push {
            let name = resource.name();
            self.sent.remove(name);
            self.acked.remove(name);
            if !is_final {
                continue;
            }
            if self.last_acked.get(name).is_some_and(|r| r.version() == resource.version()) {
                self.last_acked.remove(name);
            }
            if !self.is_nacked(name, target) {
                self.nacked.insert(Arc::clone(name), resource.version());
            }
        }
        let resources = push.iter().map(|r| (Arc::clone(r.name()), r.version())).collect();
        let resource_type = self.resource_type;
        // What a client had when the stream began is not known of these types.
        Nacked { resource_type, resources, error, is_final, keeps_earlier: true }
    }

    /// Sends `name` again although the client NACKed it. Says whether the client had.
    pub(super) fn retry(&mut self, name: &Arc<str>) -> bool {
        let was_nacked = self.nacked.remove(name).is_some();
        if was_nacked {
            self.dirty.insert(Arc::clone(name));
        }
        was_nacked
    }

    /// Takes note of names that may be there in another version.
    pub(crate) fn changed(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        self.dirty.extend(names);
    }

    /// What refers to these resources is pushed, or may be on another stream: it may make the client
    /// ask for them again.
    pub(crate) fn allow_repeat(&mut self) {
        self.may_repeat = true;
    }

    /// Wants `name` sent again, if the client is subscribed to it. (If it has not asked for the type
    /// yet, it will be sent it anyway.)
    pub(crate) fn resend(&mut self, name: &Arc<str>) {
        if self.exchange.subscription.covers(name) {
            self.explicitly_requested.insert(Arc::clone(name));
        }
    }

    fn is_nacked(&self, name: &str, target: Option<&ResourceSet>) -> bool {
        let wanted = target.and_then(|target| target.of(self.resource_type).get(name));
        wanted.is_some_and(|wanted| self.nacked.get(name) == Some(&wanted.version()))
    }

    /// What is to be sent of `name` now, if anything.
    fn due<'a>(&'a self, name: &Arc<str>, target: &'a ResourceSet) -> Option<&'a Arc<Resource>> {
        let wanted = target.of(self.resource_type).get(name)?;
        if !self.exchange.subscription.covers(name) {
            return None;
        }
        let is_requested = self.explicitly_requested.contains(name);
        if self.nacked.get(name) == Some(&wanted.version()) {
            // Silence would let Envoy wait for 15 s: what it had before is better.
            return self.last_acked.get(name).filter(|_| is_requested);
        }
        let is_sent = self.sent.get(name).is_some_and(|sent| sent.version() == wanted.version());
        (is_requested || !is_sent).then_some(wanted)
    }

    /// Whether the client is to have `name` in a version that it has not taken.
    pub(crate) fn is_outdated(&self, name: &str, target: &ResourceSet) -> bool {
        let resource = target.of(self.resource_type).get(name);
        resource.is_some_and(|resource| {
            let version = resource.version();
            self.exchange.subscription.covers(name)
                && self.acked.get(name) != Some(version)
                && self.nacked.get(name) != Some(&version)
        })
    }

    /// Drops what need not be looked at any more, and says whether something is left to be sent.
    pub(crate) fn has_updates(&mut self, target: &ResourceSet) -> bool {
        let all: BTreeSet<_> = self
            .explicitly_requested
            .iter()
            .chain(&self.dirty)
            .chain(self.bisection.names())
            .cloned()
            .collect();
        for name in all {
            if self.due(&name, target).is_some() {
                continue;
            }
            // Asked for and not there: that cannot be said. It is sent when it appears.
            if self.explicitly_requested.remove(&name) {
                self.sent.remove(&name);
            }
            self.dirty.remove(&name);
            self.bisection.retain(|one| *one != name);
        }
        !self.explicitly_requested.is_empty()
            || !self.dirty.is_empty()
            || !self.bisection.is_empty()
    }

    /// The next push, or `None` where there is nothing to say. `hold` says which names are to wait.
    pub(crate) fn next(
        &mut self,
        target: &ResourceSet,
        nonce: u64,
        now: Instant,
        hold: impl Fn(&str) -> bool,
    ) -> Option<SotwResponse> {
        if !self.exchange.subscription.has_begun || self.exchange.is_busy() {
            return None;
        }
        self.has_updates(target);
        // What is being tried holds up nothing else.
        let in_bisection: BTreeSet<_> = self.bisection.names().cloned().collect();
        let is_free = |name: &&Arc<str>| !in_bisection.contains(*name) && !hold(name);
        let mut names: Vec<_> =
            self.explicitly_requested.union(&self.dirty).filter(is_free).cloned().collect();
        if names.is_empty() {
            names.extend(self.bisection.next_of(|name| !hold(name)).unwrap_or_default());
        }
        if names.is_empty() && !self.owes_response {
            return None;
        }
        // A push that nobody answered may have been refused, and then all that it brought: it is
        // brought again, so that what the client says to this one is said of that one too.
        if self.exchange.is_unanswered() {
            for resource in std::mem::take(&mut self.push) {
                if self.exchange.subscription.covers(resource.name()) {
                    self.sent.remove(resource.name());
                    self.dirty.insert(Arc::clone(resource.name()));
                    let is_next = self.bisection.is_empty() && !hold(resource.name());
                    if is_next && !names.contains(resource.name()) {
                        names.push(Arc::clone(resource.name()));
                    }
                }
            }
        }
        self.push.clear();
        let mut size = 0;
        for name in names {
            let due = self.due(&name, target).cloned();
            self.explicitly_requested.remove(&name);
            self.dirty.remove(&name);
            self.bisection.retain(|one| *one != name);
            let Some(resource) = due else { continue };
            size += resource.sotw_entry().len();
            self.sent.insert(name, Arc::clone(&resource));
            self.push.push(resource);
            if size >= FULL_RESPONSE {
                break;
            }
        }
        self.owes_response = false;
        self.exchange.sent(nonce, now);
        let there = target.of(self.resource_type);
        let version =
            Version::of_all(self.sent.values().filter(|sent| there.contains_key(sent.name())));
        let (resource_type, resources) = (self.resource_type, self.push.clone());
        Some(SotwResponse { resource_type, version, nonce, resources })
    }
}
