//! The next push of a type, and the pushes that wait for their replies.
//!
//! A connecting client gets thousands of names in their order. So names are looked up, and taken from sets, one after the
//! other along the order, and not each by itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::{DeltaResponse, Resource, ResourceSet};
use tokio::time::Instant;

use super::{MAX_UNANSWERED, NAME_PREFIX, Push, TypeStream};
use crate::stream::FULL_RESPONSE;

impl TypeStream {
    /// The names of the next push of new, changed or requested resources, up to the size of one
    /// response, each with its resource if that is due. `hold` selects the names that must wait; it
    /// is asked for no more names than that.
    pub(in crate::delta) fn next_names(
        &self,
        target: &ResourceSet,
        hold: impl Fn(&str) -> bool,
    ) -> Vec<(Arc<str>, Option<Arc<Resource>>)> {
        let resources = target.of(self.resource_type);
        // A bisection delays no other resource.
        let in_bisection: BTreeSet<_> = self.bisection.names().cloned().collect();
        let covers_all = self.subscription.covers_all(resources);
        let mut lookup = resources.lookup_in_order();
        let (mut names, mut size, mut has_resources) = (Vec::new(), 0, false);
        let mut requested = self.explicitly_requested.iter().peekable();
        for name in self.explicitly_requested.union(&self.dirty) {
            let is_requested = requested.next_if(|one| *one == name).is_some();
            let resource =
                lookup.get(name).filter(|one| self.is_due(one, is_requested, covers_all));
            // A name that is gone waits for the push of removals.
            let is_due = resource.is_some() || is_requested;
            if !is_due || in_bisection.contains(name) || hold(name) {
                continue;
            }
            if let Some(resource) = resource {
                has_resources = true;
                size += resource.delta_entry().len();
            } else {
                size += name.len() + NAME_PREFIX;
            }
            names.push((Arc::clone(name), resource.cloned()));
            if size >= FULL_RESPONSE {
                break;
            }
        }
        if !has_resources {
            let group = self.bisection.next_of(|name| !hold(name)).unwrap_or_default();
            for name in group {
                if size >= FULL_RESPONSE {
                    break;
                }
                let is_requested = self.explicitly_requested.contains(&name);
                let resource = resources.get(&name);
                let resource =
                    resource.filter(|one| self.is_due(one, is_requested, covers_all)).cloned();
                size += resource.as_ref().map_or(0, |resource| resource.delta_entry().len());
                names.push((name, resource));
            }
        }
        names
    }

    /// Builds the next push, of [`TypeStream::next_names`], if anything is due.
    pub(crate) fn next_updates(
        &mut self,
        names: Vec<(Arc<str>, Option<Arc<Resource>>)>,
        target: &ResourceSet,
        nonce: u64,
    ) -> Option<DeltaResponse> {
        let resources = target.of(self.resource_type);
        let mut response = DeltaResponse::new(self.resource_type, nonce);
        let sent = names.iter().filter(|(_, resource)| resource.is_some());
        remove_in_order(&mut self.dirty, names.len(), sent.map(|(name, _)| name));
        for (name, _) in names.iter().filter(|(_, resource)| resource.is_none()) {
            // A requested name that is missing, or NACKed without an older version, is reported at
            // once, so that the client does not wait. A mere removal waits.
            let is_there = resources.contains_key(name) && self.known.contains_key(name);
            if !is_there && self.explicitly_requested.contains(name) {
                self.dirty.remove(name);
                response.removed.push(Arc::clone(name));
            }
        }
        let all = names.iter().map(|(name, _)| name);
        remove_in_order(&mut self.explicitly_requested, names.len(), all);
        if !self.bisection.is_empty() {
            let sent = |name: &Arc<str>| {
                names.iter().any(|(one, resource)| resource.is_some() && one == name)
            };
            self.bisection.retain(|name| !sent(name));
        }
        response.resources = names.into_iter().filter_map(|(_, resource)| resource).collect();
        let is_empty = response.resources.is_empty() && response.removed.is_empty();
        (!is_empty || std::mem::take(&mut self.owes_response)).then_some(response)
    }

    fn is_due(&self, resource: &Resource, is_requested: bool, covers_all: bool) -> bool {
        let (name, version) = (resource.name(), resource.version());
        self.nacked.get(name) != Some(&version)
            && (is_requested
                || (self.known.get(name) != Some(Some(version))
                    && (covers_all || self.subscription.covers(name))))
    }

    /// Builds the next push of removals, up to the size of one response.
    pub(crate) fn next_removals(&mut self, target: &ResourceSet, nonce: u64) -> DeltaResponse {
        let resources = target.of(self.resource_type);
        let known = &self.known;
        let gone = |name: &&Arc<str>| !resources.contains_key(name) && known.contains_key(name);
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

    /// Records that `response` was sent.
    pub(crate) fn sent(&mut self, response: &DeltaResponse, now: Instant) {
        let sent = response.resources.iter();
        self.known.insert_all(sent.map(|one| (Arc::clone(one.name()), Some(one.version()))));
        if !self.uncertain.is_empty() {
            for resource in &response.resources {
                self.uncertain.remove(resource.name());
            }
        }
        for name in &response.removed {
            self.known.remove(name);
            self.uncertain.remove(name);
            self.has_dropped = true;
        }
        self.owes_response = false;
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
}

/// Removes up to `count` names from a set, which are mostly in the order of the set.
fn remove_in_order<'a>(
    set: &mut BTreeSet<Arc<str>>,
    count: usize,
    names: impl Iterator<Item = &'a Arc<str>>,
) {
    if set.is_empty() {
        return;
    }
    let are_few = count < 16 || 4 * count < set.len();
    let mut names = names.peekable();
    if !are_few {
        let is_other = |name: &Arc<str>| names.next_if(|one| **one == *name).is_none();
        *set = std::mem::take(set).into_iter().filter(is_other).collect();
    }
    for name in names {
        set.remove(name);
    }
}
