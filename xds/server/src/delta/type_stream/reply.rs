//! How a client answers a push, and what that says of what it has.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::DeltaRequest;

use super::TypeStream;
use crate::stream::{Acked, Nacked};

/// How a client answered a push.
#[derive(Debug)]
pub(crate) enum Reply {
    Acked(Acked),
    Nacked(Nacked),
}

impl TypeStream {
    /// Takes the ACK or NACK that a request may be.
    pub(crate) fn on_reply(&mut self, request: &DeltaRequest) -> Option<Reply> {
        let at = self.pushes.iter().position(|push| push.nonce == request.nonce)?;
        let push = self.pushes.remove(at)?;
        // It answers again. What it was sent meanwhile, and we do not know the answer to, is sent again.
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
            for (name, version) in push.resources {
                if self.nacked.remove(&name).is_some() {
                    self.dirty.insert(Arc::clone(&name));
                }
                names.push(Arc::clone(&name));
                // What the client has dropped meanwhile it has no more.
                if !self.subscription.covers(&name) {
                    continue;
                }
                self.mark_uncertain(&name);
                self.kept_after_nack.remove(&name);
                self.acked.insert(name, version);
            }
            return Some(Reply::Acked(Acked { resource_type: self.resource_type, names }));
        };
        // Envoy may have taken the good resources of a push that it refused (it does for errors of
        // meaning, and not for malformed messages), so of none of them do we know the version. Those that
        // are in a later push wait for its answer, and are not sent once more.
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
        // A removal may have been applied, too: what refers to the name waits until it is sent again and ACKed.
        for name in &push.removed {
            self.acked.remove(name);
            self.kept_after_nack.remove(name);
        }
        if !push.resources.is_empty() {
            // Nor was it taken that something asked for is not there. (A push of nothing else, if
            // refused, would be refused again.) What is there by now was sent since, or will be.
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

    /// Sends `name` again although the client NACKed it. Says whether the client had.
    pub(crate) fn retry(&mut self, name: &Arc<str>) -> bool {
        let was_nacked = self.nacked.remove(name).is_some();
        if was_nacked {
            self.dirty.insert(Arc::clone(name));
        }
        was_nacked
    }

    /// If the client has a resource, it is not known in which version.
    fn mark_version_unknown(&mut self, name: &Arc<str>) {
        if self.known.contains_key(name) {
            self.known.insert(Arc::clone(name), None);
        }
    }

    /// A name of a push that was answered, and that the client wants. Where it is not known, the client
    /// has dropped it and wants it again, perhaps by the wildcard: it may have it, unless it is being told
    /// at this moment that it is gone.
    fn mark_uncertain(&mut self, name: &Arc<str>) {
        let is_being_removed = || self.pushes.iter().any(|push| push.removed.contains(name));
        if !self.known.contains_key(name) && !is_being_removed() {
            self.uncertain.insert(Arc::clone(name));
        }
    }
}
