//! The stream of events: its query, the ids of events, and the content of each kind.
//!
//! Entries of the journal are facts, which a reader gets once each. All other events tell of a changed state, and not of
//! each change: several changes within a second are one event.

use std::fmt;
use std::str::FromStr;

use ironmesh_catalog::{ObjectRef, Provider, ProxyId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::ProviderStatus;

/// The path of the stream.
pub const EVENTS_PATH: &str = "/v1/events";

/// The most readers of events together.
pub const MAX_EVENT_READERS: usize = 1_024;

/// The most objects that a list of an event names. Its count has all of them.
pub const MAX_EVENT_OBJECTS: usize = 100;

/// What `/v1/events` is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// The id of the last event that the reader has; `Last-Event-ID` without it. None begins now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Whether the stream goes on after the stored events, as by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<bool>,
}

/// The id of an event.
///
/// The number of the journal is the same at all control planes and over restarts. The place in the ring of events is known
/// only to the process that assigned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    /// The number of the newest entry of the journal up to this event.
    pub journal: u64,
    /// The process that assigned the id, and the place of the event in its ring; none for an entry that was sent again.
    pub place: Option<(u32, u64)>,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((process, place)) => write!(f, "{}-{process:08x}-{place}", self.journal),
            None => write!(f, "{}", self.journal),
        }
    }
}

impl FromStr for EventId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u64>().ok()).flatten()
        };
        let parse = || {
            let mut parts = text.split('-');
            let journal = number(parts.next()?)?;
            let place = match (parts.next(), parts.next(), parts.next()) {
                (None, ..) => None,
                (Some(process), Some(place), None)
                    if process.len() == 8
                        && process.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
                {
                    Some((u32::from_str_radix(process, 16).ok()?, number(place)?))
                }
                _ => return None,
            };
            Some(Self { journal, place })
        };
        parse().ok_or_else(|| {
            "the id of an event is that of an earlier one, such as `120-5f3a91c0-17`, or a number of the journal; \
             `0` begins with its first stored entry"
                .to_owned()
        })
    }
}

/// The kind of an event, which is the field `event` of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// An entry of the journal.
    Journal,
    /// The begin of what follows: observed states must be read again.
    Reset,
    /// The reader was too slow, and the stream ends.
    Lagged,
    /// Whether the control plane is ready has changed.
    Readiness,
    /// The active policy has changed.
    Policy,
    /// The set of active findings has changed.
    Findings,
    /// Proxies have connected, disconnected or ACKed everything.
    Proxies,
    /// The state of an endpoints provider has changed.
    Providers,
}

impl EventKind {
    /// The word for it in the stream.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Reset => "reset",
            Self::Lagged => "lagged",
            Self::Readiness => "readiness",
            Self::Policy => "policy",
            Self::Findings => "findings",
            Self::Proxies => "proxies",
            Self::Providers => "providers",
        }
    }
}

/// The content of `reset`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetEvent {
    /// The paths whose answers may have changed without an event. The journal is among them only if the id is of another
    /// store.
    pub read_again: Vec<String>,
}

/// The content of `lagged`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaggedEvent {
    /// What to do.
    pub message: String,
}

/// The content of `readiness`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadinessEvent {
    /// Whether the control plane is ready.
    pub ready: bool,
}

/// The content of `policy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyEvent {
    /// The active revision; null without one.
    pub revision: Option<String>,
}

/// The content of `findings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingsEvent {
    /// The count of active errors that no silence covers.
    pub errors: usize,
    /// The count of active warnings that no silence covers.
    pub warnings: usize,
    /// The count of silenced findings.
    pub silenced: usize,
    /// The findings that have become active or silenced, at most [`MAX_EVENT_OBJECTS`].
    pub changed: Vec<FindingChange>,
    /// The count of all of these.
    pub changed_count: usize,
    /// The findings that are gone, at most [`MAX_EVENT_OBJECTS`].
    pub cleared: Vec<FindingChange>,
    /// The count of all of these.
    pub cleared_count: usize,
}

/// A finding in an event. `/v1/findings` has its message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FindingChange {
    /// The code, such as `IM0101`.
    pub code: String,
    /// The severity: `error` or `warning`.
    pub severity: String,
    /// The objects that have the problem.
    pub objects: Vec<ObjectRef>,
    /// Whether a silence covers it.
    pub silenced: bool,
}

/// The content of `proxies`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxiesEvent {
    /// The proxies that have lost their connection.
    pub disconnected: ChangedProxies,
    /// The proxies that are no longer disconnected.
    pub reconnected: ChangedProxies,
    /// The connected proxies that have ACKed everything since the last event.
    pub synced: ChangedProxies,
    /// The count of connected proxies that have not ACKed everything.
    pub updating: usize,
}

/// Proxies in an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedProxies {
    /// The count of all of them.
    pub count: usize,
    /// The first of them, at most [`MAX_EVENT_OBJECTS`].
    pub ids: Vec<ProxyId>,
}

/// The content of `providers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidersEvent {
    /// The providers whose state has changed.
    pub changed: Vec<ProviderChange>,
}

/// The new state of an endpoints provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderChange {
    /// The provider.
    pub provider: Provider,
    /// Its state.
    pub state: ProviderStatus,
}

/// An event as a reader gets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceivedEvent {
    /// Its id, by which the stream resumes; null for `lagged`.
    pub id: Option<String>,
    /// Its kind. A newer control plane may send others.
    pub event: String,
    /// Its content.
    pub data: serde_json::Value,
}

impl ReceivedEvent {
    /// The time of the event; none from a control plane of an earlier version.
    pub fn at(&self) -> Option<Timestamp> {
        self.data.get("at")?.as_str()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_as_they_are_printed() {
        for id in [
            EventId { journal: 0, place: None },
            EventId { journal: u64::MAX, place: Some((0, 0)) },
            EventId { journal: 7, place: Some((0x5f3a_91c0, u64::MAX)) },
        ] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        let bad = ["", "-", "x", "+1", "1-", "1-5f3a91c0", "1-5f3a91c0-", "1-5f3a91c0-1-1"];
        for text in bad.into_iter().chain(["1-+f3a91c0-1", "1-f-1", "99999999999999999999"]) {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }
}
