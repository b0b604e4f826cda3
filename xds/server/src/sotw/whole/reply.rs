//! What an answer to a whole state says of what the client has.

use std::sync::Arc;

use ironmesh_xds_wire::{ErrorDetail, ResourceSet, Version};

use super::{UncertainState, Whole, differing};
use crate::stream::{Acked, Nacked};

impl Whole {
    /// The client has all of the last push, and nothing else.
    pub(super) fn on_ack(&mut self, target: Option<&ResourceSet>) -> Acked {
        let state = std::mem::take(&mut self.push);
        let mut names = differing(&self.last_acked, &state);
        for name in &names {
            // Another version is in force: what was refused before may be tried again some day.
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
        // Where the version of before was sent in the place of what is refused, that is refused
        // still.
        names.retain(|name| !self.is_nacked(name, target));
        self.last_acked_version = Version::of_all(state.values()).to_string();
        // Also what it dropped while this was under way and wants again.
        self.sent = Some(state.clone());
        self.last_acked = state;
        self.knows_base = true;
        Acked { resource_type: self.resource_type, names }
    }

    /// Sends `name` again although the client NACKed it. Says whether the client had.
    pub(in crate::sotw) fn retry(&mut self, name: &Arc<str>) -> bool {
        // Of a state that was NACKed as a whole, any resource may be the reason.
        let was_blocked = self.nacked_state.take().is_some();
        self.nacked.remove(name).is_some() || was_blocked
    }

    /// The client has the state of before, and perhaps what was good in the last push (rule 5).
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
            // What stood in the place of what the client has cannot be told apart from what it has:
            // to leave something out would be to remove it. So it stays as it is, all of it, until
            // there is another state; and the client's words say whose fault it is.
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
