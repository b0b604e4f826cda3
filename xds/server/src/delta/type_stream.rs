//! The state of one resource type on a delta stream: what the client has, what it NACKed, and what
//! is in flight.
//!
//! On an aggregated stream each type is a stream of its own: nonces, versions and subscriptions of
//! one type never affect another. Dependencies between types are in `order`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ironmesh_xds_wire::{DeltaRequest, Resource, ResourceSet, ResourceType, Version};
use tokio::time::Instant;

use crate::nack_bisection::NackBisection;
use crate::overlay::Overlay;
use crate::stream::ACK_DEADLINE;
use crate::subscription::{self, Subscription};

mod pushes;
mod reply;
mod reported;

pub(crate) use reply::Reply;
use reported::Reported;

/// The number of unanswered pushes that are remembered.
const MAX_UNANSWERED: usize = 8;

/// The approximate bytes of a name in a response besides the name itself.
pub(super) const NAME_PREFIX: usize = 4;

/// A push that waits for its ACK or NACK.
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
    /// The approximate memory for the names of the initial versions.
    initial_versions_size: usize,
    /// The versions that the client has or is being sent. `None` is some version that the server
    /// cannot know.
    known: Overlay<Option<Version>>,
    /// The versions that the client ACKed on this stream, or had from an earlier one.
    pub(crate) acked: Overlay<Version>,
    /// Names of which the client has some version and NACKed another.
    kept_after_nack: BTreeSet<Arc<str>>,
    /// Names in pushes that were forgotten before the client answered them.
    forgotten: BTreeSet<Arc<str>>,
    /// Names that the client may have or not: it unsubscribed, subscribed again, and then ACKed an
    /// earlier push with them. They stay uncertain until they are sent again, or sent as removed.
    uncertain: BTreeSet<Arc<str>>,
    /// Versions that the client NACKed, which are not sent to it again.
    pub(crate) nacked: BTreeMap<Arc<str>, Version>,
    /// Names that may differ between the target and the known versions.
    pub(crate) dirty: BTreeSet<Arc<str>>,
    /// Names that are due because the client requested them, whatever version it has.
    explicitly_requested: BTreeSet<Arc<str>>,
    /// Names that are due with the response to the type's first request, whatever version the
    /// client has.
    pending_first_response: BTreeSet<Arc<str>>,
    /// Names to be sent in groups, because the client NACKed a push with all of them.
    bisection: NackBisection,
    /// Whether the client ever unsubscribed a name or was sent a removal: then a name in an unanswered push need not be
    /// subscribed or known any more.
    has_dropped: bool,
    /// Whether a response is due even if it is empty.
    pub(crate) owes_response: bool,
    pushes: VecDeque<Push>,
}

impl TypeStream {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            resource_type,
            subscription: Subscription::new(resource_type),
            initial_versions_size: 0,
            known: Overlay::default(),
            acked: Overlay::default(),
            kept_after_nack: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            uncertain: BTreeSet::new(),
            nacked: BTreeMap::new(),
            dirty: BTreeSet::new(),
            explicitly_requested: BTreeSet::new(),
            pending_first_response: BTreeSet::new(),
            bisection: NackBisection::default(),
            has_dropped: false,
            owes_response: false,
            pushes: VecDeque::new(),
        }
    }

    /// Applies the subscriptions of a request. Returns whether this compared the client's initial
    /// versions with the target.
    pub(crate) fn on_subscriptions(
        &mut self,
        request: &DeltaRequest,
        target: &ResourceSet,
    ) -> bool {
        let is_first = !self.subscription.has_begun;
        // A name in both lists is unsubscribed first, then subscribed.
        let dropped = self.subscription.unsubscribe(&request.unsubscribe);
        self.has_dropped |= dropped.wildcard || !dropped.names.is_empty();
        if dropped.wildcard {
            // Names that the client ACKed after it unsubscribed are not known, but ACKed.
            let names = self.known.names().chain(self.acked.names());
            let names = names.chain(&self.explicitly_requested).chain(&self.uncertain);
            let lost: Vec<_> =
                names.filter(|name| !self.subscription.covers(name)).cloned().collect();
            for name in lost {
                self.forget(&name);
            }
        }
        for name in dropped.names {
            if self.subscription.covers(&name) {
                // The wildcard still covers the name, and the client has forgotten it.
                self.explicitly_requested.insert(name);
            } else {
                self.forget(&name);
            }
        }
        let resources = target.of(self.resource_type);
        let wanted = self.subscription.subscribe(&request.subscribe, resources);
        // A name with an initial version need not be sent if it is current.
        let initial_versions = &request.initial_versions;
        let reported = if is_first {
            Reported::compare(initial_versions, resources)
        } else {
            Reported::nothing()
        };
        let pending = &self.pending_first_response;
        let is_requested = |name: &Arc<str>| !reported.contains(name) || pending.contains(name);
        if wanted.all {
            if reported.contains_all(resources) {
                let names = pending.iter().filter(|name| resources.contains_key(name));
                self.explicitly_requested.extend(names.cloned());
            } else {
                let names = resources.keys().filter(|name| is_requested(name));
                add_all(&mut self.explicitly_requested, names.cloned());
            }
        }
        self.explicitly_requested.extend(wanted.names.into_iter().filter(is_requested));
        if is_first {
            self.pending_first_response.clear();
            self.initial_versions_size = subscription::size_of_names_in(initial_versions);
            // A client with initial versions has been served before; one without them waits for a
            // response.
            self.owes_response = initial_versions.is_empty();
        }
        let is_compared = is_first && !initial_versions.is_empty();
        if is_compared {
            self.adopt(&reported, resources);
        } else if is_first {
            self.known = Overlay::none_of(resources);
            self.acked = Overlay::none_of(resources);
        }
        if is_first || wanted.wildcard {
            self.review_all(target);
        }
        is_compared
    }

    /// The approximate memory for subscribed names and initial versions.
    pub(crate) fn size(&self) -> usize {
        self.subscription.size() + self.initial_versions_size
    }

    /// Forgets the NACKs of resources that the set does not have. [`Hub`](crate::Hub) does not report them any
    /// more, so they must not withhold a resource that comes back.
    pub(crate) fn forget_nacks_outside(&mut self, set: &ResourceSet) {
        self.nacked.retain(|name, _| set.contains(self.resource_type, name));
    }

    /// The number of names that it stores itself.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let sets = [
            &self.kept_after_nack,
            &self.forgotten,
            &self.uncertain,
            &self.dirty,
            &self.explicitly_requested,
            &self.pending_first_response,
        ];
        let pushed = self.pushes.iter().map(|push| push.resources.len() + push.removed.len());
        let overlays = self.subscription.names.held() + self.known.held() + self.acked.held();
        sets.iter().map(|set| set.len()).chain(pushed).sum::<usize>() + overlays
    }

    /// Shares structure with the target where both are equal.
    pub(crate) fn share(&mut self, target: &ResourceSet) {
        let resources = target.of(self.resource_type);
        self.subscription.share(resources);
        self.known.share(resources);
        self.acked.share(resources);
    }

    fn forget(&mut self, name: &Arc<str>) {
        self.known.remove(name);
        self.acked.remove(name);
        self.kept_after_nack.remove(name);
        self.forgotten.remove(name);
        self.uncertain.remove(name);
        self.explicitly_requested.remove(name);
        self.dirty.remove(name);
        self.bisection.retain(|one| one != name);
    }

    /// Marks all names that differ between the target and the known versions.
    pub(crate) fn review_all(&mut self, target: &ResourceSet) {
        let names = self.known.differing_from(target.of(self.resource_type));
        add_all(&mut self.dirty, names.into_iter());
    }

    /// Marks `name` to be sent again, if the client is subscribed to it or subscribes with its
    /// first request.
    pub(crate) fn resend(&mut self, name: &Arc<str>) {
        if !self.subscription.has_begun {
            self.pending_first_response.insert(Arc::clone(name));
        } else if self.subscription.covers(name) {
            self.explicitly_requested.insert(Arc::clone(name));
        }
    }

    /// Cancels [`TypeStream::resend`] for `names`: the resources that they belong to are gone.
    pub(crate) fn release(&mut self, names: &[Arc<str>]) {
        for name in names {
            self.pending_first_response.remove(name);
        }
    }

    /// Whether nothing more may be sent now, because a push waits for its ACK or NACK.
    pub(crate) fn is_busy(&self) -> bool {
        self.pushes.iter().any(|push| !push.is_late)
    }

    /// Whether no name needs attention.
    fn is_idle(&self) -> bool {
        self.dirty.is_empty()
            && self.explicitly_requested.is_empty()
            && self.bisection.is_empty()
            && self.uncertain.is_empty()
    }

    /// Whether something may be due now.
    pub(crate) fn may_have_updates(&self) -> bool {
        self.owes_response || !self.is_idle()
    }

    /// Whether resources remain to be sent. Drops names that need no attention, up to the first of
    /// those: a connecting client has thousands that do, and this is asked for each message.
    pub(crate) fn has_updates(&mut self, target: &ResourceSet) -> bool {
        if self.is_idle() {
            return false;
        }
        self.settle_uncertain(target);
        let (known, subscription, nacked) = (&self.known, &self.subscription, &self.nacked);
        let resources = target.of(self.resource_type);
        let is_outdated = |name: &Arc<str>, resource: &Resource| {
            let version = Some(resource.version());
            known.get(name) != Some(version) && nacked.get(name).copied() != version
        };
        let (mut settled, mut has_changed) = (Vec::new(), false);
        for name in &self.dirty {
            let is_covered = subscription.covers(name);
            match resources.get(name).filter(|_| is_covered) {
                Some(resource) if is_outdated(name, resource) => {
                    has_changed = true;
                    break;
                }
                None if is_covered && known.contains_key(name) => {}
                _ => settled.push(Arc::clone(name)),
            }
        }
        self.bisection.retain(|name| {
            subscription.covers(name)
                && resources.get(name).is_some_and(|resource| is_outdated(name, resource))
        });
        for name in settled {
            self.dirty.remove(&name);
        }
        has_changed || !self.explicitly_requested.is_empty() || !self.bisection.is_empty()
    }

    /// Marks uncertain names that the target no longer has for removal.
    fn settle_uncertain(&mut self, target: &ResourceSet) {
        let resources = target.of(self.resource_type);
        let (known, dirty) = (&mut self.known, &mut self.dirty);
        self.uncertain.retain(|name| {
            let is_gone = !resources.contains_key(name) && !known.contains_key(name);
            if is_gone {
                known.insert(Arc::clone(name), None);
                dirty.insert(Arc::clone(name));
            }
            // A name that waits for its removal stays uncertain, in case it returns first.
            !matches!(known.get(name), Some(Some(_)))
        });
    }

    /// Whether the target has `name` and it was never sent, or the client may have dropped it
    /// since.
    pub(crate) fn is_unsent(&self, name: &str, target: &ResourceSet) -> bool {
        let resources = target.of(self.resource_type);
        if self.uncertain.is_empty() && self.known.has_all_of(resources) {
            return false;
        }
        let resource = resources.get(name);
        let version = resource.map(|resource| resource.version());
        version.is_some()
            && self.subscription.covers(name)
            && (!self.known.contains_key(name) || self.uncertain.contains(name))
            && self.nacked.get(name).copied() != version
    }

    /// Whether the target has `name` and the client has it in no version, or may have removed it by
    /// the time it reads the next push.
    pub(crate) fn is_lacking(&self, name: &str, target: &ResourceSet) -> bool {
        let resource = target.of(self.resource_type).get(name);
        resource.is_some_and(|resource| {
            let is_being_removed = || {
                let mut removed = self.pushes.iter().flat_map(|push| &push.removed);
                removed.any(|removed| **removed == *name)
            };
            self.subscription.covers(name)
                && (!(self.acked.contains_key(name) || self.kept_after_nack.contains(name))
                    || is_being_removed())
                && self.nacked.get(name) != Some(&resource.version())
        })
    }

    /// Whether the client is known to have all resources of the target, and no removal is in
    /// flight.
    pub(crate) fn lacks_none(&self, target: &ResourceSet) -> bool {
        self.acked.has_all_of(target.of(self.resource_type))
            && self.pushes.iter().all(|push| push.removed.is_empty())
    }

    /// Whether the client has not ACKed the version of `name` in the target.
    pub(crate) fn is_outdated(&self, name: &str, target: &ResourceSet) -> bool {
        let resource = target.of(self.resource_type).get(name);
        resource.is_some_and(|resource| {
            let version = resource.version();
            self.subscription.covers(name)
                && self.acked.get(name) != Some(version)
                && self.nacked.get(name) != Some(&version)
        })
    }

    /// Whether the client still has names that are gone from the target.
    pub(crate) fn has_removals(&self, target: &ResourceSet) -> bool {
        let resources = target.of(self.resource_type);
        if let Some(mut others) = self.known.names_outside(resources) {
            // Far fewer than the dirty names of a connecting client.
            return others.any(|name| self.dirty.contains(name));
        }
        let is_removed =
            |name: &Arc<str>| !resources.contains_key(name) && self.known.contains_key(name);
        self.dirty.iter().any(is_removed)
    }

    /// The names in unanswered pushes.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pushes.iter().flat_map(|push| &push.resources).map(|(name, _)| name)
    }

    /// Whether a push is late.
    pub(crate) fn is_lagging(&self) -> bool {
        self.pushes.iter().any(|push| push.is_late)
    }

    /// Stops waiting for late pushes. Returns whether there was one.
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

/// Adds names, all at once if there are no others: that is much cheaper than one by one.
fn add_all(set: &mut BTreeSet<Arc<str>>, names: impl Iterator<Item = Arc<str>>) {
    if set.is_empty() {
        *set = names.collect();
    } else {
        set.extend(names);
    }
}
