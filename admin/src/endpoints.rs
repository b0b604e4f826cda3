//! Endpoints on the wire: who finds them, how each stands, and what is doubted. Its form is told in
//! docs/reference/json.md.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::{Health, Labels, Locality, Provider, ProxyId, ServiceName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The endpoints of one service or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointList {
    /// Those who are asked where endpoints are.
    pub providers: Vec<ProviderView>,
    /// The services, by name.
    pub services: Vec<ServiceEndpoints>,
}

/// An endpoints provider as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderView {
    /// Who it is.
    pub provider: Provider,
    /// Whether it has answered all that it was asked since the control plane began.
    pub synced: bool,
    /// Why nobody whom it asks can be believed or reached now; none while all is well.
    pub stale: Option<StaleView>,
}

/// That there is nothing newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleView {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
}

/// A service with its endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEndpoints {
    /// The service.
    pub service: ServiceName,
    /// Whether policy says that no endpoint of it is called.
    pub drained: bool,
    /// What the providers that have to ask somebody say of it.
    pub sources: Vec<SourceView>,
    /// The endpoints, in the order of providers, addresses and ports.
    pub endpoints: Vec<EndpointRow>,
    /// What was said of the same address and port by another provider, and is not taken.
    pub conflicts: Vec<ConflictView>,
    /// The proxies that joined as the service, and where none of its endpoints is.
    pub without_endpoint: Vec<ProxyWithout>,
}

/// What a provider says of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceView {
    /// The provider.
    pub provider: Provider,
    /// When it was learned; none where the provider has never answered.
    pub learned_at: Option<Timestamp>,
    /// Which state of the provider it is, in its own count; none as long as it is what was kept from before.
    pub index: Option<u64>,
    /// Whether the provider vouches for it.
    pub confirmed: bool,
    /// Why there is nothing newer of this service; none where there is.
    pub stale: Option<StaleView>,
    /// A loss that is doubted.
    pub held: Option<HeldView>,
    /// What it says that cannot be used.
    pub problems: Vec<ProblemView>,
}

/// A loss of endpoints that is doubted: those from before stay in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldView {
    /// Since when.
    pub since: Timestamp,
    /// When it will be believed, unless they come back; none as long as nobody vouches for it.
    pub until: Option<Timestamp>,
    /// How many healthy endpoints there were.
    pub before: usize,
    /// How many of them are left.
    pub left: usize,
}

/// A part of an answer that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemView {
    /// What the provider calls it.
    pub instance: String,
    /// What is wrong with it.
    pub reason: String,
}

/// An endpoint as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointRow {
    /// The address of its machine.
    pub address: IpAddr,
    /// Where the application listens there; none where the service's ports say.
    pub port: Option<u16>,
    /// Who has found it.
    pub provider: Provider,
    /// What its provider calls it.
    pub instance: Option<String>,
    /// What is known of its health.
    pub health: ReportedHealth,
    /// Where it is.
    pub locality: Locality,
    /// Its share of the calls, relative to the others.
    pub weight: u32,
    /// What is said of it besides.
    pub labels: Labels,
    /// The proxy in front of it, if it is known which one.
    pub proxy: Option<ProxyId>,
    /// Where callers dial it, as long as it is healthy; none where they do not.
    pub dialled_at: Option<SocketAddr>,
    /// `participant`, `plaintext` or `outside`; or why it is not called: `drained`, `excluded`, `no_proxy`,
    /// `several_proxies`, `unclaimed`, `not_taken`, `suspect`, `revoked` or `expired`.
    pub standing: String,
    /// The same in words, where there is something to say.
    pub reason: Option<String>,
    /// Since when it is known; none where that is not kept.
    pub since: Option<Timestamp>,
    /// Whether it gets no calls because its health changes all the time.
    pub flapping: bool,
}

/// The health of an endpoint as it is shown: what nobody probes is unknown, and never healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedHealth {
    /// A probe says that it takes calls.
    Healthy,
    /// It is about to leave: it gets no new calls.
    Draining,
    /// It gets no calls.
    Unhealthy,
    /// Nobody probes it; it is called.
    Unknown,
}

impl ReportedHealth {
    /// What is shown of `health`, which somebody probes or not.
    pub fn of(health: Health, is_probed: bool) -> Self {
        match health {
            Health::Healthy if is_probed => Self::Healthy,
            Health::Healthy => Self::Unknown,
            Health::Draining => Self::Draining,
            Health::Unhealthy => Self::Unhealthy,
        }
    }
}

impl fmt::Display for ReportedHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
            Self::Unknown => "unknown",
        })
    }
}

/// What a provider says of an address and port of which another says something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictView {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: Option<u16>,
    /// Who is believed.
    pub taken: Provider,
    /// Who is not.
    pub ignored: Provider,
}

/// A proxy that joined as a service, and where none of its endpoints is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyWithout {
    /// The proxy.
    pub id: ProxyId,
    /// Where others would dial it.
    pub mesh_address: SocketAddr,
}

/// A loss that was doubted, and is believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The service.
    pub service: ServiceName,
}
