//! The trait that endpoints providers fulfil, and what they tell.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_catalog::{Endpoint, MeshSpecification, Provider, ServiceName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::peer_clock::PeerClock;

/// An endpoints provider that asks somebody else: it is told of whom it is to know, and tells what it
/// knows now.
///
/// It tells states and not events: whoever looks sees the newest one, and never one that is older than
/// what woke it (a removal may have cancelled an addition in between). Nothing is decided about what it
/// tells: that an empty answer is doubted, say, is the matter of whoever combines it with others.
pub trait EndpointsProvider: fmt::Debug + Send + Sync {
    /// What it is called.
    fn provider(&self) -> Provider;

    /// From now on it looks for the endpoints of the services of this specification that ask it, and for no
    /// others. What it knows of a service whose question has not changed stays.
    fn follow(&self, specification: &Arc<MeshSpecification>);

    /// The clock of whoever answers it, if an answer shows it.
    fn peer_clock(&self) -> Option<PeerClock> {
        None
    }

    /// What it knows, and news of it. What a receiver sees first is what is known when it subscribes.
    fn sightings(&self) -> watch::Receiver<ProviderReport>;
}

/// All that a provider knows, of one moment. A copy costs nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderReport {
    /// What it has found for each service that asks it, and had an answer since the provider began. While
    /// it is not there, nothing is known; that there is no endpoint is an answer.
    pub services: OrdMap<ServiceName, Arc<ServiceReport>>,
    /// Since when and why there is no answer about services of which there has been none yet: their question
    /// is refused, say. Of the others that is in [`ServiceReport::stale`].
    pub troubles: OrdMap<ServiceName, Stale>,
    /// Whether it knows of whom to tell: where instances join by themselves, it has heard which do.
    pub has_discovered_services: bool,
    /// Whether it has had an answer to all that it was told to follow: what is not in `services` now is
    /// not asked for, or nobody has said anything about it.
    pub is_complete: bool,
    /// Why nobody whom it asks can be believed or reached now; none while all is well.
    pub stale: Option<Stale>,
}

/// What a provider has found for one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// The endpoints, sorted by address and port. Shared with the sighting before where it says the same.
    pub endpoints: Arc<Vec<Endpoint>>,
    /// Which state of the provider it is, in its own count.
    pub index: u64,
    /// When it was learned that these are the endpoints.
    pub learned_at: Timestamp,
    /// Whether the provider vouches for it: whoever answered has the right to know all of them, has a
    /// leader, and has not lost its memory since it knew more.
    #[serde(rename = "is_confirmed")]
    pub is_authoritative: bool,
    /// What of the answer could not be used, and why.
    pub problems: Arc<Vec<Problem>>,
    /// Since when and why there is no newer answer about this one service.
    pub stale: Option<Stale>,
}

/// A part of an answer that could not be used. What was known of it before stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What the provider calls the endpoint, as far as it says.
    pub instance: String,
    /// What is wrong with it.
    pub reason: String,
}

/// That what is known is not what is, perhaps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// Since when.
    pub since: Timestamp,
    /// Why, and what to do.
    pub reason: String,
}
