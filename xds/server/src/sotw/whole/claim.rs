//! What a client says that it has from an earlier stream: one version of everything.

use ironmesh_xds_wire::{ResourceMap, ResourceSet, Version};

use super::{UncertainState, Whole};
use crate::overlay::Overlay;
use crate::stream::Acked;

/// All clusters or all listeners that a client has taken, for its next stream: one that comes back
/// with their version has them, whatever it is to have now. A copy shares its structure with what was
/// published.
#[derive(Debug, Clone)]
pub struct AckedState {
    state: ResourceMap,
    /// The version by which the client knows it. (It may have dropped names since.)
    version: String,
    /// In what it may differ from that, because it has refused a push since.
    uncertain: UncertainState,
    /// The last push, if it has no answer yet. When the stream ends nobody knows how it was taken.
    in_flight: Option<ResourceMap>,
    /// Whether `state` is all that the client had. Where it is not, no version that the client names says
    /// what it has: it may have taken parts of pushes on top of a state that nobody knows.
    is_complete: bool,
}

impl AckedState {
    /// Whether it is known what a client has in force that names `version`. One that `has_named` something
    /// may have dropped something while a push was under way, and kept the version.
    pub(in crate::sotw) fn recognizes(&self, version: &str, has_named: bool) -> bool {
        let is_it = |push: &ResourceMap| Version::of_all(push.values()).to_string() == *version;
        let is_in_flight = || !has_named && self.in_flight.as_ref().is_some_and(is_it);
        self.is_complete && (self.version == version || is_in_flight())
    }

    /// What a client has in force that names `version`, if that is known; and in what it may differ from
    /// that, or from anything else.
    fn recall(mut self, version: &str, has_named: bool) -> (Option<ResourceMap>, UncertainState) {
        let is_state = self.is_complete && self.version == version;
        if !is_state && self.recognizes(version, has_named) {
            return (self.in_flight, self.uncertain.of_any_base());
        }
        if let Some(push) = &self.in_flight {
            self.uncertain.add(&self.state, push);
        }
        if is_state {
            (Some(self.state), self.uncertain)
        } else {
            (None, self.uncertain.of_any_base())
        }
    }
}

impl Whole {
    /// What the client has in force, for its next stream; `None` where that is not known, and it was sent
    /// nothing since.
    pub(crate) fn acked_state(&self) -> Option<AckedState> {
        (self.knows_base || self.exchange.has_sent()).then(|| AckedState {
            state: self.last_acked.clone(),
            version: self.last_acked_version.clone(),
            uncertain: self.uncertain.clone(),
            in_flight: self.exchange.is_unanswered().then(|| self.push.clone()),
            is_complete: self.knows_base,
        })
    }

    /// Judges what the client says that it has, when it is known what it is to have. Returns news of
    /// what it has, if there are any.
    pub(crate) fn settle_claim(&mut self, target: &ResourceSet) -> Option<Acked> {
        let claimed = self.claimed.take()?;
        // Who names something may have dropped something, and kept the version.
        let has_named = self.exchange.subscription.has_named;
        let kept = self.kept.take();
        let is_incomplete = kept.as_ref().is_some_and(|kept| !kept.is_complete);
        let kept = kept.map(|kept| kept.recall(&claimed, has_named)).unwrap_or_default();
        let (state, uncertain) = match kept {
            (Some(state), uncertain) => (state, uncertain),
            // It has never taken anything.
            _ if claimed.is_empty() => return None,
            (None, uncertain) => {
                // What it had in the place of what it refused is not known, so that is tried again.
                self.nacked.clear();
                let goal = self.goal(target);
                let is_goal = Version::of_all(goal.values()).to_string() == claimed;
                if has_named || is_incomplete || !is_goal {
                    self.knows_base = false;
                    return None;
                }
                // It took this too late for us to hear, and perhaps parts of what came after.
                (goal, uncertain)
            }
        };
        self.acked = Overlay::all_of(&state);
        for name in &uncertain.names {
            self.acked.remove(name);
        }
        self.sent = Some(state.clone());
        (self.last_acked, self.last_acked_version, self.uncertain) = (state, claimed, uncertain);
        // "The server may skip resending only if no new names are subscribed" (R12). Who has never
        // named anything has never dropped anything either.
        let subscription = &self.exchange.subscription;
        if subscription.is_wildcard
            && !subscription.has_named
            && !self.last_acked_version.is_empty()
        {
            self.owes_response = false;
        }
        self.forget_dropped();
        Some(Acked { resource_type: self.resource_type, names: Vec::new() })
    }
}
