//! The trait of endpoints providers, and the reports that they publish.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_catalog::{Endpoint, MeshSpecification, Provider, ServiceName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::peer_clock::PeerClock;

/// An endpoints provider that queries an external source, and publishes its latest state.
///
/// It publishes states and not events: a reader sees the newest one, and never one older than its
/// wake-up (a removal may have cancelled an addition in between). It makes no decision about its
/// reports; holding back an empty answer, for example, is the task of the guards.
pub trait EndpointsProvider: fmt::Debug + Send + Sync {
    /// The kind of this provider.
    fn provider(&self) -> Provider;

    /// Sets the specification. The provider looks for the endpoints of its services that query this
    /// provider, and of no others. The report of a service whose query is unchanged stays.
    fn follow(&self, specification: &Arc<MeshSpecification>);

    /// The clock of the queried source, if its answers show it.
    fn peer_clock(&self) -> Option<PeerClock> {
        None
    }

    /// Returns a receiver of the latest report. Its first value is the report at the time of the
    /// subscription.
    fn reports(&self) -> watch::Receiver<ProviderReport>;
}

/// Everything that a provider knows at one time. A clone is cheap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderReport {
    /// The endpoints of each service that queries this provider and had an answer since the start.
    /// A service without an entry is unknown; an entry without endpoints is an answer.
    pub services: OrdMap<ServiceName, Arc<ServiceReport>>,
    /// Why services that never had an answer have none, for example because their query is
    /// rejected. For other services see [`ServiceReport::stale`].
    pub troubles: OrdMap<ServiceName, Stale>,
    /// Whether the set of services is known: where instances register themselves, the provider has
    /// read the registrations.
    pub has_discovered_services: bool,
    /// Whether every query of the specification has an answer. Then a service that is missing in
    /// `services` is not queried, or has no registration.
    pub is_complete: bool,
    /// Why no queried source is usable or reachable now; `None` while one is.
    pub stale: Option<Stale>,
}

/// The endpoints that a provider reports for one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// The endpoints, sorted by address and port. Shared with the previous report if they are
    /// equal.
    pub endpoints: Arc<Vec<Endpoint>>,
    /// The number of this state, in the provider's own count.
    pub index: u64,
    /// The time at which the provider learned of these endpoints.
    pub learned_at: Timestamp,
    /// Whether the answer is complete: the credential may read everything, the source has a leader,
    /// and it has not lost its memory since it reported more.
    #[serde(rename = "is_confirmed")]
    pub is_authoritative: bool,
    /// The unusable parts of the answer.
    pub problems: Arc<Vec<Problem>>,
    /// Why, and since when, this service has no newer answer.
    pub stale: Option<Stale>,
}

/// An unusable part of an answer. The last known endpoint of that instance stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The provider's name of the instance, if it has one.
    pub instance: String,
    /// The reason, as a sentence part after the name.
    pub reason: String,
}

/// Marks data that is kept because the source does not answer now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// The time of the first failure.
    pub since: Timestamp,
    /// The reason, and what to do.
    pub reason: String,
}
