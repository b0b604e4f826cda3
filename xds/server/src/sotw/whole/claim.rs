//! What a client says that it has from an earlier stream: one version of everything.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::{ResourceMap, ResourceSet, Version};

use super::Whole;
use crate::overlay::Overlay;
use crate::stream::Taken;

/// All clusters or all listeners that a client has taken, for its next stream: one that comes back
/// with their version has them, whatever it is to have now. A copy shares its structure with what was
/// published.
#[derive(Debug, Clone)]
pub struct InForce {
    state: ResourceMap,
    /// The version by which the client knows it. (It may have dropped names since.)
    pub(in crate::sotw) version: String,
    /// Names of which it may have another version, because it has refused a push since.
    in_doubt: BTreeSet<Arc<str>>,
}

impl Whole {
    /// What the client has in force, for its next stream.
    pub(crate) fn in_force(&self) -> Option<InForce> {
        self.knows_base.then(|| InForce {
            state: self.in_force.clone(),
            version: self.in_force_version.clone(),
            in_doubt: self.doubts.names.clone(),
        })
    }

    /// Judges what the client says that it has, when it is known what it is to have. Returns news of
    /// what it has, if there are any.
    pub(crate) fn settle_claim(&mut self, target: &ResourceSet) -> Option<Taken> {
        let claimed = self.claimed.take()?;
        let kept = self.kept.take();
        let is_kept = |kept: &InForce| kept.version == claimed;
        let (state, version, in_doubt) = match kept.filter(is_kept) {
            Some(kept) => (kept.state, kept.version, kept.in_doubt),
            // It has never taken anything.
            None if claimed.is_empty() => return None,
            None => {
                // What it had in the place of what it refused is not known, so that is tried again.
                self.refused.clear();
                let goal = self.goal(target);
                // Who names something may have dropped something, and kept the version.
                let has_named = self.exchange.subscription.has_named;
                if has_named || Version::of_all(goal.values()).to_string() != claimed {
                    self.knows_base = false;
                    return None;
                }
                (goal, claimed.clone(), BTreeSet::new())
            }
        };
        self.acked = Overlay::all_of(&state);
        for name in &in_doubt {
            self.acked.remove(name);
        }
        self.sent = Some(state.clone());
        (self.in_force, self.in_force_version) = (state, version);
        self.doubts.names = in_doubt;
        // "The server may skip resending only if no new names are subscribed" (R12). Who has never
        // named anything has never dropped anything either.
        let subscription = &self.exchange.subscription;
        if subscription.is_wildcard && !subscription.has_named && !claimed.is_empty() {
            self.owes_answer = false;
        }
        self.forget_dropped();
        Some(Taken { resource_type: self.resource_type, names: Vec::new() })
    }
}
