//! ACKs and NACKs of a delta client, and what they reveal about its resources.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::DeltaRequest;

use super::TypeStream;
use crate::stream::{Acked, Nacked};

/// A client's reply to a push.
#[derive(Debug)]
pub(crate) enum Reply {
    Acked(Acked),
    Nacked(Nacked),
}

impl TypeStream {
    /// Handles the ACK or NACK in a request, if it has one.
    pub(crate) fn on_reply(&mut self, request: &DeltaRequest) -> Option<Reply> {
        let at = self.pushes.iter().position(|push| push.nonce == request.nonce)?;
        let push = self.pushes.remove(at)?;
        // The client replies again. Resources of pushes whose replies are unknown are sent again.
        for name in std::mem::take(&mut self.forgotten) {
            self.mark_version_unknown(&name);
            self.dirty.insert(name);
        }
        let Some(error) = request.error.clone() else {
            let mut names = push.removed;
            for name in &names {
                self.acked.remove(name);
                self.kept_after_nack.remove(name);
            }
            names.extend(push.resources.iter().map(|(name, _)| Arc::clone(name)));
            if self.nacked.is_empty() && self.kept_after_nack.is_empty() && !self.has_dropped {
                // Nearly always. All of these are subscribed and known.
                self.acked.insert_all(push.resources);
                return Some(Reply::Acked(Acked { resource_type: self.resource_type, names }));
            }
            for (name, version) in push.resources {
                if self.nacked.remove(&name).is_some() {
                    self.dirty.insert(Arc::clone(&name));
                }
                // The client has unsubscribed meanwhile and no longer has it.
                if !self.subscription.covers(&name) {
                    continue;
                }
                self.mark_uncertain(&name);
                self.kept_after_nack.remove(&name);
                self.acked.insert(name, version);
            }
            return Some(Reply::Acked(Acked { resource_type: self.resource_type, names }));
        };
        // Envoy may have applied the good resources of a NACKed push (it does for semantic errors,
        // not for malformed messages). So none of their versions is known. Those that a later push
        // contains wait for its reply, and are not sent once more.
        let later = self.pushes.iter().flat_map(|push| &push.resources);
        let later: BTreeSet<_> = later.map(|(name, _)| Arc::clone(name)).collect();
        for (name, _) in &push.resources {
            if !later.contains(name) {
                self.mark_version_unknown(name);
            }
            if self.acked.remove(name).is_some() {
                self.kept_after_nack.insert(Arc::clone(name));
            }
            if self.subscription.covers(name) {
                self.mark_uncertain(name);
            }
        }
        // Envoy may have applied a removal too: what refers to the name waits until it is sent
        // again and ACKed.
        for name in &push.removed {
            self.acked.remove(name);
            self.kept_after_nack.remove(name);
        }
        if !push.resources.is_empty() {
            // The client did not learn that a requested name is missing. (A push of removals only
            // would be NACKed again.) What exists by now was sent since, or will be.
            let (subscription, known) = (&self.subscription, &self.known);
            let is_unreported =
                |name: &Arc<str>| subscription.covers(name) && !known.contains_key(name);
            self.explicitly_requested.extend(push.removed.into_iter().filter(is_unreported));
        }
        let is_final = push.resources.len() == 1;
        let keeps_earlier =
            push.resources.iter().all(|(name, _)| self.kept_after_nack.contains(name));
        if is_final {
            self.nacked.extend(push.resources.iter().cloned());
        } else {
            let names = push.resources.iter().map(|(name, _)| name);
            self.bisection.split(names.filter(|name| !later.contains(*name)).cloned().collect());
        }
        let (resource_type, resources) = (self.resource_type, push.resources);
        Some(Reply::Nacked(Nacked { resource_type, resources, error, is_final, keeps_earlier }))
    }

    /// Sends `name` again although the client NACKed it. Returns whether it had.
    pub(crate) fn retry(&mut self, name: &Arc<str>) -> bool {
        let was_nacked = self.nacked.remove(name).is_some();
        if was_nacked {
            self.dirty.insert(Arc::clone(name));
        }
        was_nacked
    }

    /// Records that the client may have any version of `name`.
    fn mark_version_unknown(&mut self, name: &Arc<str>) {
        if self.known.contains_key(name) {
            self.known.insert(Arc::clone(name), None);
        }
    }

    /// Marks a subscribed name of an answered push as uncertain if its version is unknown.
    ///
    /// The client has then unsubscribed and subscribed again, perhaps by the wildcard. It may have
    /// the resource, unless a removal is in flight.
    fn mark_uncertain(&mut self, name: &Arc<str>) {
        let is_being_removed = || self.pushes.iter().any(|push| push.removed.contains(name));
        if !self.known.contains_key(name) && !is_being_removed() {
            self.uncertain.insert(Arc::clone(name));
        }
    }
}
