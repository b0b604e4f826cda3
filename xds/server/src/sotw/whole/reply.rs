//! ACKs and NACKs of a complete state, and what they reveal about the client.

use std::sync::Arc;

use ironmesh_xds_wire::{ErrorDetail, ResourceSet, Version};

use super::{UncertainState, Whole, differing};
use crate::stream::{Acked, Nacked};

impl Whole {
    /// Handles an ACK: the client has exactly the last push.
    pub(super) fn on_ack(&mut self, target: Option<&ResourceSet>) -> Acked {
        let state = std::mem::take(&mut self.push);
        let mut names = differing(&self.last_acked, &state);
        for name in &names {
            // The client has another version now: the NACKed one may be tried again later.
            if !self.is_nacked(name, target) {
                self.nacked.remove(name);
            }
        }
        names.extend(std::mem::take(&mut self.uncertain).names);
        for name in &names {
            if let Some(resource) = state.get(name) {
                self.acked.insert(Arc::clone(name), resource.version());
            } else {
                self.acked.remove(name);
            }
        }
        // An ACK of the version sent in place of a NACKed one does not clear the NACK.
        names.retain(|name| !self.is_nacked(name, target));
        self.last_acked_version = Version::of_all(state.values()).to_string();
        // Also names that were dropped while the push was in flight and are added again.
        self.sent = Some(state.clone());
        self.last_acked = state;
        self.knows_base = true;
        Acked { resource_type: self.resource_type, names }
    }

    /// Sends `name` again although the client NACKed it. Returns whether it had.
    pub(in crate::sotw) fn retry(&mut self, name: &Arc<str>) -> bool {
        // Any resource may be the reason for a NACK of a whole state.
        let was_blocked = self.nacked_state.take().is_some();
        self.nacked.remove(name).is_some() || was_blocked
    }

    /// Handles a NACK: the client has the earlier state, and perhaps the good part of the last push
    /// (rule 5).
    pub(super) fn on_nack(&mut self, error: ErrorDetail) -> Nacked {
        let state = std::mem::take(&mut self.push);
        let differing = differing(&self.last_acked, &state);
        for name in &differing {
            self.acked.remove(name);
        }
        self.uncertain.add(&self.last_acked, &state);
        let changed = differing.iter().filter_map(|name| state.get(name));
        let resources: Vec<_> = changed.map(|r| (Arc::clone(r.name()), r.version())).collect();
        let keeps_earlier = !self.knows_base
            || resources.iter().all(|(name, _)| self.last_acked.contains_key(name));
        let mut is_final = false;
        match &resources[..] {
            // With an unknown base, the bad resources cannot be separated from what the client has:
            // to omit one would remove it. So the state stays unchanged as a whole until another is
            // published, and the client's error says which resource is bad.
            _ if !self.knows_base => {
                self.nacked_state = Some(Version::of_all(state.values()));
                self.sent = None;
                self.uncertain = UncertainState::default();
                is_final = true;
            }
            [(name, version)] => {
                self.nacked.insert(Arc::clone(name), *version);
                self.sent = Some(self.last_acked.clone());
                is_final = true;
            }
            [] => {
                self.nacked_state = Some(Version::of_all(state.values()));
                self.sent = Some(self.last_acked.clone());
            }
            several => {
                self.bisection.split(several.iter().map(|(name, _)| Arc::clone(name)).collect());
                self.sent = Some(self.last_acked.clone());
            }
        }
        let resource_type = self.resource_type;
        Nacked { resource_type, resources, error, is_final, keeps_earlier }
    }
}
