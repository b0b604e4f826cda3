//! Resources of a stream of any type but clusters and listeners: a response has some of them, and
//! others stay unchanged (R42).

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
    pub(crate) resource_type: ResourceType,
    pub(crate) exchange: Exchange,
    /// The resources that the client has or is being sent, except NACKed ones: it may have those,
    /// or the earlier version.
    sent: ResourceMap,
    /// The last ACKed version of each name.
    last_acked: ResourceMap,
    /// The same without uncertain names, which were in a NACKed push.
    pub(crate) acked: Overlay<Version>,
    /// Versions that the client NACKed, which are not sent to it again.
    pub(crate) nacked: BTreeMap<Arc<str>, Version>,
    /// Names that may differ between the target and `sent`.
    dirty: BTreeSet<Arc<str>>,
    /// Names that are due whatever version the client has.
    explicitly_requested: BTreeSet<Arc<str>>,
    /// Names to be sent in groups, because the client NACKed a push with all of them.
    bisection: NackBisection,
    /// Whether the client may request once more what it has had. Envoy does so when a referring
    /// resource is pushed. Other clients do so with every ACK, and each would bring them a push.
    may_repeat: bool,
    /// Whether a response is due even if it is empty.
    pub(crate) owes_response: bool,
    /// The resources of the last push.
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

    /// Handles a request.
    pub(crate) fn on_request(
        &mut self,
        request: &SotwRequest,
        target: Option<&ResourceSet>,
    ) -> RequestOutcome {
        let parsed = self.exchange.on_request(request);
        // First the names: the client no longer has what it has dropped.
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
        // The client's single version does not reveal which resources it has from an earlier
        // stream, so all are sent.
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
            let before = self.last_acked.insert(Arc::clone(&resource));
            self.acked.insert(Arc::clone(name), resource.version());
            // An ACK of the last ACKed version, or of one sent in place of a NACKed one, does not
            // clear the NACK. (And the version that the client had when the stream began is
            // unknown.)
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

    /// Handles a NACK. Envoy may have applied the good resources of the push, so none of their
    /// versions is known (rule 5).
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
        // The versions that a client had when the stream began are unknown for these types.
        Nacked { resource_type, resources, error, is_final, keeps_earlier: true }
    }

    /// Sends `name` again although the client NACKed it. Returns whether it had.
    pub(super) fn retry(&mut self, name: &Arc<str>) -> bool {
        let was_nacked = self.nacked.remove(name).is_some();
        if was_nacked {
            self.dirty.insert(Arc::clone(name));
        }
        was_nacked
    }

    /// Marks names whose version may have changed.
    pub(crate) fn changed(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        self.dirty.extend(names);
    }

    /// Records a push of referring resources, possibly on another stream: it may make the client
    /// request these again.
    pub(crate) fn allow_repeat(&mut self) {
        self.may_repeat = true;
    }

    /// Marks `name` to be sent again, if the client is subscribed to it. (If it has not requested
    /// the type yet, it will receive it anyway.)
    pub(crate) fn resend(&mut self, name: &Arc<str>) {
        if self.exchange.subscription.covers(name) {
            self.explicitly_requested.insert(Arc::clone(name));
        }
    }

    fn is_nacked(&self, name: &str, target: Option<&ResourceSet>) -> bool {
        let wanted = target.and_then(|target| target.of(self.resource_type).get(name));
        wanted.is_some_and(|wanted| self.nacked.get(name) == Some(&wanted.version()))
    }

    /// The resource of `name` to send now, if any.
    fn due<'a>(&'a self, name: &Arc<str>, target: &'a ResourceSet) -> Option<&'a Arc<Resource>> {
        let wanted = target.of(self.resource_type).get(name)?;
        if !self.exchange.subscription.covers(name) {
            return None;
        }
        let is_requested = self.explicitly_requested.contains(name);
        if self.nacked.get(name) == Some(&wanted.version()) {
            // Without a response Envoy would wait for 15 s: the earlier version is better.
            return self.last_acked.get(name).filter(|_| is_requested);
        }
        let is_sent = self.sent.get(name).is_some_and(|sent| sent.version() == wanted.version());
        (is_requested || !is_sent).then_some(wanted)
    }

    /// Whether the client has not ACKed the version of `name` in the target.
    pub(crate) fn is_outdated(&self, name: &str, target: &ResourceSet) -> bool {
        let resource = target.of(self.resource_type).get(name);
        resource.is_some_and(|resource| {
            let version = resource.version();
            self.exchange.subscription.covers(name)
                && self.acked.get(name) != Some(version)
                && self.nacked.get(name) != Some(&version)
        })
    }

    /// Drops names that need no attention any more. Returns whether something remains to be sent.
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
            // A requested resource that is missing: the variant cannot express that. It is sent
            // when it appears.
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

    /// Builds the next push, if there is anything to send. `hold` selects the names that must wait.
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
        // A bisection delays no other resource.
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
        // An unanswered push may have been NACKed with everything in it. It is repeated with this
        // one, so that the reply to this push covers that one too.
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
            self.sent.insert(Arc::clone(&resource));
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
