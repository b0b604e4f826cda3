//! One resource type of a stream: what the client has, what it refused, and what is under way.
//!
//! On an aggregated stream each type is a stream of its own: nonces, versions and subscriptions of
//! one never touch another. What they have to do with each other is in `order`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_xds_wire::{
    DeltaRequest, DeltaResponse, Resource, ResourceSet, ResourceType, Version,
};
use tokio::time::Instant;

use crate::stream::{ACK_DEADLINE, FULL_RESPONSE};
use crate::subscription::{self, Subscription};
use crate::trials::Trials;

mod answer;

pub(crate) use answer::Answer;

/// How many pushes without an answer are remembered.
const MAX_UNANSWERED: usize = 8;

/// What a name takes in a response besides its bytes, about.
pub(super) const NAME_PREFIX: usize = 4;

/// A push that waits for its answer.
#[derive(Debug)]
struct Push {
    nonce: String,
    sent_at: Instant,
    is_late: bool,
    resources: Vec<(Arc<str>, Version)>,
    removed: Vec<Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct TypeStream {
    resource_type: ResourceType,
    pub(crate) subscription: Subscription,
    /// What the names that the client brought along take in memory, about.
    brought: usize,
    /// What the client has or is being sent. `None` = something, in a version we cannot know.
    known: OrdMap<Arc<str>, Option<Version>>,
    /// What the client has taken on this stream, or had from an earlier one.
    pub(crate) acked: OrdMap<Arc<str>, Version>,
    /// Names that the client has in some version, and refused another of.
    unsure: BTreeSet<Arc<str>>,
    /// Names in pushes that were forgotten before they were answered.
    forgotten: BTreeSet<Arc<str>>,
    /// Names that the client dropped and wants again, and took from a push of before: it may have
    /// them, though they are not known. They are sent again, or told to be gone.
    doubtful: BTreeSet<Arc<str>>,
    /// Versions that the client refused. They are not sent to it again.
    pub(crate) refused: BTreeMap<Arc<str>, Version>,
    /// Names that may differ between the target and what is known.
    pub(crate) dirty: BTreeSet<Arc<str>>,
    /// Names that are to be sent, or told to be gone, whatever is known.
    asked: BTreeSet<Arc<str>>,
    /// Names to be sent with the answer to the type's first request, also where the client has them.
    owed: BTreeSet<Arc<str>>,
    /// Names to be sent in parts, because a push that had them all was refused.
    trials: Trials,
    /// Whether an answer is due even if it is empty.
    pub(crate) owes_answer: bool,
    pushes: VecDeque<Push>,
}

impl TypeStream {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            resource_type,
            subscription: Subscription::new(resource_type),
            brought: 0,
            known: OrdMap::new(),
            acked: OrdMap::new(),
            unsure: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            refused: BTreeMap::new(),
            dirty: BTreeSet::new(),
            asked: BTreeSet::new(),
            owed: BTreeSet::new(),
            trials: Trials::default(),
            owes_answer: false,
            pushes: VecDeque::new(),
        }
    }

    /// Takes the subscriptions of a request. Says whether the client told what it has from an earlier
    /// stream.
    pub(crate) fn on_subscriptions(
        &mut self,
        request: &DeltaRequest,
        target: Option<&ResourceSet>,
    ) -> bool {
        let is_first = !self.subscription.has_begun;
        // A name in both lists: dropped, then wanted.
        let dropped = self.subscription.unsubscribe(&request.unsubscribe);
        if dropped.wildcard {
            // (What it took of a push from before it dropped the names is not known, and taken.)
            let names = self.known.keys().chain(&self.asked);
            let names = names.chain(self.acked.keys()).chain(&self.doubtful);
            let lost: Vec<_> =
                names.filter(|name| !self.subscription.covers(name)).cloned().collect();
            for name in lost {
                self.forget(&name);
            }
        }
        for name in dropped.names {
            if self.subscription.covers(&name) {
                // It is still wanted by the wildcard, and the client has forgotten it.
                self.asked.insert(name);
            } else {
                self.forget(&name);
            }
        }
        let wanted = self.subscription.subscribe(&request.subscribe);
        self.asked.extend(wanted.names);
        if is_first {
            let owed = std::mem::take(&mut self.owed);
            self.brought = subscription::size_of(request.initial_versions.keys());
            for (name, version) in &request.initial_versions {
                if self.subscription.covers(name) {
                    let name: Arc<str> = name.as_str().into();
                    // What the client asks for by name and has already need not be sent, if it is
                    // current.
                    if !owed.contains(&name) {
                        self.asked.remove(&name);
                    }
                    self.take_over(name, version.parse().ok());
                }
            }
            // A client that brings versions has been served before; one that brings none waits.
            self.owes_answer = request.initial_versions.is_empty();
        }
        if let (true, Some(target)) = (is_first || wanted.wildcard, target) {
            self.review_all(target);
        }
        is_first && !request.initial_versions.is_empty()
    }

    /// What the names that the client wants, and has brought along, take in memory, about.
    pub(crate) fn size(&self) -> usize {
        self.subscription.size() + self.brought
    }

    /// Takes over what the client says that it has from an earlier stream.
    fn take_over(&mut self, name: Arc<str>, version: Option<Version>) {
        self.known.insert(Arc::clone(&name), version);
        if let Some(version) = version {
            self.acked.insert(Arc::clone(&name), version);
            if self.refused.get(&name) == Some(&version) {
                self.refused.remove(&name);
            }
        }
        self.dirty.insert(name);
    }

    fn forget(&mut self, name: &Arc<str>) {
        self.known.remove(name);
        self.acked.remove(name);
        self.unsure.remove(name);
        self.forgotten.remove(name);
        self.doubtful.remove(name);
        self.asked.remove(name);
        self.dirty.remove(name);
        self.trials.retain(|one| one != name);
    }

    /// Marks all names as perhaps different from what is known.
    pub(crate) fn review_all(&mut self, target: &ResourceSet) {
        self.dirty.extend(target.of(self.resource_type).keys().cloned());
        self.dirty.extend(self.known.keys().cloned());
    }

    /// Wants `name` sent again, if the client is subscribed to it or will be with its first request.
    pub(crate) fn resend(&mut self, name: &Arc<str>) {
        if !self.subscription.has_begun {
            self.owed.insert(Arc::clone(name));
        } else if self.subscription.covers(name) {
            self.asked.insert(Arc::clone(name));
        }
    }

    /// Wants `names` sent again no longer: what they belonged to has gone.
    pub(crate) fn release(&mut self, names: &[Arc<str>]) {
        for name in names {
            self.owed.remove(name);
        }
    }

    /// Whether nothing more may be sent now: a push waits for its answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.pushes.iter().any(|push| !push.is_late)
    }

    /// Drops what need not be looked at any more, and says whether resources are left to be sent.
    pub(crate) fn has_updates(&mut self, target: &ResourceSet) -> bool {
        self.settle_doubts(target);
        let (known, subscription, refused) = (&self.known, &self.subscription, &self.refused);
        let resources = target.of(self.resource_type);
        self.dirty.retain(|name| {
            subscription.covers(name)
                && match resources.get(name) {
                    Some(resource) => {
                        let version = Some(resource.version());
                        known.get(name) != Some(&version) && refused.get(name).copied() != version
                    }
                    None => known.contains_key(name),
                }
        });
        self.trials.retain(|name| {
            let version = resources.get(name).map(|resource| resource.version());
            version.is_some()
                && subscription.covers(name)
                && known.get(name) != Some(&version)
                && refused.get(name).copied() != version
        });
        let has_changed = self.dirty.iter().any(|name| resources.contains_key(name));
        has_changed || !self.asked.is_empty() || !self.trials.is_empty()
    }

    /// What the client may have and is to have no more, it is told to be gone.
    fn settle_doubts(&mut self, target: &ResourceSet) {
        let resources = target.of(self.resource_type);
        let (known, dirty) = (&mut self.known, &mut self.dirty);
        self.doubtful.retain(|name| {
            let is_gone = !resources.contains_key(name) && !known.contains_key(name);
            if is_gone {
                known.insert(Arc::clone(name), None);
                dirty.insert(Arc::clone(name));
            }
            !is_gone && !known.contains_key(name)
        });
    }

    /// Whether the client is to have `name` and was never sent it.
    pub(crate) fn is_to_come(&self, name: &str, target: &ResourceSet) -> bool {
        let resource = target.of(self.resource_type).get(name);
        let version = resource.map(|resource| resource.version());
        version.is_some()
            && self.subscription.covers(name)
            && !self.known.contains_key(name)
            && self.refused.get(name).copied() != version
    }

    /// Whether the client is to have `name` and does not have it in any version, or may have let it go
    /// by the time that it reads what is sent now.
    pub(crate) fn is_lacking(&self, name: &str, target: &ResourceSet) -> bool {
        let resource = target.of(self.resource_type).get(name);
        resource.is_some_and(|resource| {
            let is_being_removed = || {
                let mut removed = self.pushes.iter().flat_map(|push| &push.removed);
                removed.any(|removed| **removed == *name)
            };
            self.subscription.covers(name)
                && (!(self.acked.contains_key(name) || self.unsure.contains(name))
                    || is_being_removed())
                && self.refused.get(name) != Some(&resource.version())
        })
    }

    /// Whether the client is to have `name` in a version that it has not taken.
    pub(crate) fn is_outdated(&self, name: &str, target: &ResourceSet) -> bool {
        let resource = target.of(self.resource_type).get(name);
        resource.is_some_and(|resource| {
            let version = resource.version();
            self.subscription.covers(name)
                && self.acked.get(name) != Some(&version)
                && self.refused.get(name) != Some(&version)
        })
    }

    /// The names that have gone from the target and that the client still has.
    pub(crate) fn has_removals(&self, target: &ResourceSet) -> bool {
        let resources = target.of(self.resource_type);
        self.dirty.iter().any(|name| !resources.contains_key(name) && self.known.contains_key(name))
    }

    /// The next push of what is new, changed or asked for. `hold` says which names are to wait.
    /// `None` where there is nothing to say.
    pub(crate) fn next_updates(
        &mut self,
        target: &ResourceSet,
        nonce: u64,
        hold: impl Fn(&str) -> bool,
    ) -> Option<DeltaResponse> {
        let resources = target.of(self.resource_type);
        let mut response = DeltaResponse::new(self.resource_type, nonce);
        // What is being tried holds up nothing else.
        let on_trial: BTreeSet<_> = self.trials.names().cloned().collect();
        let is_free = |name: &&Arc<str>| !on_trial.contains(*name) && !hold(name);
        let mut names: Vec<_> = self.asked.union(&self.dirty).filter(is_free).cloned().collect();
        if !names.iter().any(|name| resources.get(name).is_some_and(|one| self.is_to_be_sent(one)))
        {
            names.extend(self.trials.next_of(|name| !hold(name)).unwrap_or_default());
        }
        let mut size = 0;
        for name in names {
            match resources.get(&name) {
                Some(resource) if self.is_to_be_sent(resource) => {
                    size += resource.delta_entry().len();
                    response.resources.push(Arc::clone(resource));
                    self.dirty.remove(&name);
                    self.trials.retain(|one| *one != name);
                }
                // Asked for, and not there, or refused without an older one: that is told at once, so
                // that it does not wait for it. What has merely gone waits.
                resource => {
                    let is_there = resource.is_some() && self.known.contains_key(&name);
                    if self.asked.contains(&name) && !is_there {
                        size += name.len() + NAME_PREFIX;
                        response.removed.push(Arc::clone(&name));
                        self.dirty.remove(&name);
                    }
                }
            }
            self.asked.remove(&name);
            if size >= FULL_RESPONSE {
                break;
            }
        }
        let is_empty = response.resources.is_empty() && response.removed.is_empty();
        (!is_empty || std::mem::take(&mut self.owes_answer)).then_some(response)
    }

    fn is_to_be_sent(&self, resource: &Resource) -> bool {
        let (name, version) = (resource.name(), resource.version());
        if self.refused.get(name) == Some(&version) {
            return false;
        }
        self.asked.contains(name) || self.known.get(name) != Some(&Some(version))
    }

    /// The push of what has gone, as much as one response may have.
    pub(crate) fn next_removals(&mut self, target: &ResourceSet, nonce: u64) -> DeltaResponse {
        let resources = target.of(self.resource_type);
        let known = &self.known;
        let gone = |name: &&Arc<str>| !resources.contains_key(*name) && known.contains_key(*name);
        let mut size = 0;
        let fits = |name: &&Arc<str>| {
            let before = size;
            size += name.len() + NAME_PREFIX;
            before < FULL_RESPONSE
        };
        let removed: Vec<_> = self.dirty.iter().filter(gone).take_while(fits).cloned().collect();
        for name in &removed {
            self.dirty.remove(name);
        }
        DeltaResponse { removed, ..DeltaResponse::new(self.resource_type, nonce) }
    }

    /// Takes note that `response` is sent.
    pub(crate) fn sent(&mut self, response: &DeltaResponse, now: Instant) {
        for resource in &response.resources {
            self.known.insert(Arc::clone(resource.name()), Some(resource.version()));
        }
        for name in &response.removed {
            self.known.remove(name);
        }
        self.owes_answer = false;
        let resources = response.resources.iter().map(|r| (Arc::clone(r.name()), r.version()));
        self.pushes.push_back(Push {
            nonce: response.nonce.to_string(),
            sent_at: now,
            is_late: false,
            resources: resources.collect(),
            removed: response.removed.clone(),
        });
        if self.pushes.len() > MAX_UNANSWERED
            && let Some(push) = self.pushes.pop_front()
        {
            self.forgotten.extend(push.resources.into_iter().map(|(name, _)| name));
        }
    }

    /// The names in pushes that are not answered.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pushes.iter().flat_map(|push| &push.resources).map(|(name, _)| name)
    }

    /// Whether a push is not answered though its time is over.
    pub(crate) fn is_lagging(&self) -> bool {
        self.pushes.iter().any(|push| push.is_late)
    }

    /// Gives up waiting for pushes that are late. Says whether there was one.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let mut expired = false;
        for push in self.pushes.iter_mut().filter(|push| !push.is_late) {
            push.is_late = now >= push.sent_at + ACK_DEADLINE;
            expired |= push.is_late;
        }
        expired
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pushes
            .iter()
            .filter(|push| !push.is_late)
            .map(|push| push.sent_at + ACK_DEADLINE)
            .min()
    }
}
