//! The acceptance of a removal of endpoints that a guard holds back.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Provider;

/// How long an acceptance is kept. A control plane that was stopped for longer holds the removal back once more.
const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A removal of endpoints of one service that an operator has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointAcceptance {
    /// When the operator accepted it. Endpoints that a provider reported later are not part of it.
    pub at: Timestamp,
    /// How many healthy endpoints the removal left, by provider.
    pub left: BTreeMap<Provider, usize>,
}

impl EndpointAcceptance {
    /// Whether it need not be kept any longer.
    pub fn is_outdated(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) > RETENTION
    }
}
