//! The version that a client reports from an earlier stream, and the ACKed state behind it.

use ironmesh_xds_wire::{ResourceMap, ResourceSet, Version};

use super::{UncertainState, Whole};
use crate::overlay::Overlay;
use crate::stream::Acked;

/// All clusters or all listeners that a client has ACKed, kept for its next stream.
///
/// A client that resumes with their version has them, whatever is published now. A copy shares its
/// structure with the published set.
#[derive(Debug, Clone)]
pub struct AckedState {
    state: ResourceMap,
    /// The client's version of the state. (It may have dropped names since.)
    version: String,
    /// How the client may differ from the state, because it NACKed a push since.
    uncertain: UncertainState,
    /// The last push, if it is unanswered. When the stream ends, its result is unknown.
    in_flight: Option<ResourceMap>,
    /// Whether `state` is all that the client had. If not, no version that the client reports
    /// reveals what it has: it may have applied parts of pushes on top of an unknown state.
    is_complete: bool,
}

impl AckedState {
    /// Whether the state of a client that reports `version` is known. A client that `has_named`
    /// resources may have dropped some while a push was in flight, and kept the version.
    pub(in crate::sotw) fn recognizes(&self, version: &str, has_named: bool) -> bool {
        let is_it = |push: &ResourceMap| Version::of_all(push.values()).to_string() == *version;
        let is_in_flight = || !has_named && self.in_flight.as_ref().is_some_and(is_it);
        self.is_complete && (self.version == version || is_in_flight())
    }

    /// The state of a client that reports `version`, if known; and how the client may differ from
    /// it, or from any other state.
    fn recall(mut self, version: &str, has_named: bool) -> (Option<ResourceMap>, UncertainState) {
        let is_state = self.is_complete && self.version == version;
        if !is_state && self.recognizes(version, has_named) {
            return (self.in_flight, self.uncertain.relative_to_any_base());
        }
        if let Some(push) = &self.in_flight {
            self.uncertain.add(&self.state, push);
        }
        if is_state {
            (Some(self.state), self.uncertain)
        } else {
            (None, self.uncertain.relative_to_any_base())
        }
    }
}

impl Whole {
    /// The last ACKed state, for the client's next stream; `None` if it is unknown and nothing was
    /// sent since.
    pub(crate) fn acked_state(&self) -> Option<AckedState> {
        (self.knows_base || self.exchange.has_sent()).then(|| AckedState {
            state: self.last_acked.clone(),
            version: self.last_acked_version.clone(),
            uncertain: self.uncertain.clone(),
            in_flight: self.exchange.is_unanswered().then(|| self.push.clone()),
            is_complete: self.knows_base,
        })
    }

    /// Evaluates the reported version once a set is published. Returns what the client is found to
    /// have, if anything.
    pub(crate) fn settle_claim(&mut self, target: &ResourceSet) -> Option<Acked> {
        let claimed = self.claimed.take()?;
        // A client that has named resources may have dropped some, and kept the version.
        let has_named = self.exchange.subscription.has_named;
        let kept = self.kept.take();
        let is_incomplete = kept.as_ref().is_some_and(|kept| !kept.is_complete);
        let kept = kept.map(|kept| kept.recall(&claimed, has_named)).unwrap_or_default();
        let (state, uncertain) = match kept {
            (Some(state), uncertain) => (state, uncertain),
            // The client has never ACKed anything.
            _ if claimed.is_empty() => return None,
            (None, uncertain) => {
                // The versions in place of NACKed ones are unknown, so NACKed ones are tried again.
                self.nacked.clear();
                let goal = self.goal(target);
                let is_goal = Version::of_all(goal.values()).to_string() == claimed;
                if has_named || is_incomplete || !is_goal {
                    self.knows_base = false;
                    return None;
                }
                // The client ACKed this too late for the server to see, and perhaps applied parts
                // of later pushes.
                (goal, uncertain)
            }
        };
        self.acked = Overlay::all_of(&state);
        for name in &uncertain.names {
            self.acked.remove(name);
        }
        self.sent = Some(state.clone());
        (self.last_acked, self.last_acked_version, self.uncertain) = (state, claimed, uncertain);
        // "The server may skip resending only if no new names are subscribed" (R12). A client that
        // has never named anything has never dropped anything either.
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
