//! Cordons: an operator takes a proxy out of service, until an operator returns it.
//!
//! This module owns the form of a cordon in the join record. It never decides what callers get.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::unknown_fields::UnknownFields;

/// The cordon of a proxy: callers send it no new requests. It has no end of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// Since when callers send it no new requests. A later drain keeps this time.
    pub since: Timestamp,
    /// Who made the latest change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The latest reason that an operator gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The order to drain its machine; none if it is only cordoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// The fields of a newer version, which are stored again with the record.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The order to drain a machine: its Envoy finishes what it has, and ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// When it was ordered. A machine carries out each order once.
    pub since: Timestamp,
    /// How far the machine is; none before its agent has reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineDrain>,
    /// The fields of a newer version, which are stored again with the record.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// How far a machine has carried out the order to drain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineDrain {
    /// Its state.
    pub state: MachineDrainState,
    /// Since when it is in this state.
    pub since: Timestamp,
}

/// The state of a machine that is to be drained, by its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MachineDrainState {
    /// Its Envoy finishes its connections.
    Draining,
    /// Its Envoy has ended.
    Drained,
    /// No supervisor runs, so that the agent cannot drain its Envoy.
    Unsupervised,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

/// How far a proxy is out of service.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CordonMode {
    /// Callers send it no new requests.
    Cordon,
    /// Its machine is drained, too.
    Drain,
}

impl Cordon {
    /// Its mode.
    pub fn mode(&self) -> CordonMode {
        if self.drain.is_some() { CordonMode::Drain } else { CordonMode::Cordon }
    }

    /// The cordon after a request for `mode`; none if that changes nothing. A cordon never ends a drain.
    pub fn requested(
        before: Option<&Self>,
        mode: CordonMode,
        by: Option<String>,
        reason: Option<String>,
        now: Timestamp,
    ) -> Option<Self> {
        let order = || Drain { since: now, machine: None, unknown: UnknownFields::default() };
        let drain = (mode == CordonMode::Drain).then(order);
        match before {
            Some(before) if before.drain.is_some() || drain.is_none() => None,
            Some(before) => {
                let reason = reason.or_else(|| before.reason.clone());
                Some(Self { by, reason, drain, ..before.clone() })
            }
            None => Some(Self { since: now, by, reason, drain, unknown: UnknownFields::default() }),
        }
    }
}

impl CordonMode {
    /// The word for it in a sentence.
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Cordon => "cordoned",
            Self::Drain => "drained",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn drain_of_a_cordoned_proxy_keeps_its_time_and_reason() {
        let request = |before: Option<&Cordon>, mode, by: &str, reason: Option<&str>, now| {
            let (by, reason) = (Some(by.to_owned()), reason.map(str::to_owned));
            Cordon::requested(before, mode, by, reason, second(now))
        };
        let cordon = request(None, CordonMode::Cordon, "ann", Some("a disk"), 1).unwrap();
        assert_eq!((cordon.mode(), cordon.since), (CordonMode::Cordon, second(1)));
        assert_eq!(request(Some(&cordon), CordonMode::Cordon, "bob", Some("other"), 2), None);
        let drain = request(Some(&cordon), CordonMode::Drain, "bob", None, 3).unwrap();
        assert_eq!((drain.mode(), drain.since), (CordonMode::Drain, second(1)));
        assert_eq!(drain.drain.as_ref().unwrap().since, second(3));
        assert_eq!((drain.by.as_deref(), drain.reason.as_deref()), (Some("bob"), Some("a disk")));
        for mode in [CordonMode::Cordon, CordonMode::Drain] {
            assert_eq!(request(Some(&drain), mode, "cid", None, 4), None, "a drain stays");
        }
    }

    #[test]
    fn fields_and_states_of_a_newer_version_are_readable() {
        let stored = json!({
            "since": "1970-01-01T00:00:01Z", "until": "2100-01-01T00:00:00Z",
            "drain": {
                "since": "1970-01-01T00:00:02Z", "force": true,
                "machine": { "state": "asleep", "since": "1970-01-01T00:00:03Z" },
            },
        });
        let cordon: Cordon = serde_json::from_value(stored).unwrap();
        let machine = cordon.drain.as_ref().unwrap().machine.unwrap();
        assert_eq!(machine.state, MachineDrainState::Unknown);
        let again = serde_json::to_value(&cordon).unwrap();
        assert_eq!(again["until"], "2100-01-01T00:00:00Z");
        assert_eq!(again["drain"]["force"], true);
    }
}
