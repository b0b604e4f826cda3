//! The JSON types of endpoints: their providers, statuses, and removals that are held back. docs/reference/json.md
//! describes them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::network_address;
use ironmesh_catalog::{
    ApplicationHealth, CordonMode, Health, HealthSource, Labels, Locality, Provider, ProxyId,
    ProxyName, ServiceName,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The endpoints of one service or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndpointList {
    /// The endpoints providers that query a source.
    pub providers: Vec<ProviderView>,
    /// The services, by name.
    pub services: Vec<ServiceEndpoints>,
}

/// The state of an endpoints provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderView {
    /// The provider.
    pub provider: Provider,
    /// Whether it has answered every query since the control plane started.
    pub synced: bool,
    /// Since when and why it has no usable source; none while it has one.
    pub stale: Option<StaleView>,
}

/// Since when and why there is nothing newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StaleView {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
}

/// A service with its endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceEndpoints {
    /// The service.
    pub service: ServiceName,
    /// Whether policy drains the service, so that no endpoint is called.
    pub drained: bool,
    /// The reports of providers that query a source.
    pub sources: Vec<SourceView>,
    /// The endpoints, ordered by provider, address and port.
    pub endpoints: Vec<EndpointRow>,
    /// Reports of different providers for one address and port.
    pub conflicts: Vec<ConflictView>,
    /// The proxies of the service without an endpoint.
    pub without_endpoint: Vec<ProxyWithoutEndpoint>,
}

/// The report of a provider about one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// The provider.
    pub provider: Provider,
    /// When it was received; none if the provider has never answered.
    pub learned_at: Option<Timestamp>,
    /// The provider's own index of its state; none while the stored endpoints are used.
    pub index: Option<u64>,
    /// Whether the report is authoritative.
    pub authoritative: bool,
    /// Since when and why there is no newer report; none where there is.
    pub stale: Option<StaleView>,
    /// The endpoint removal that is held back.
    pub held: Option<HeldView>,
    /// The parts of the report that cannot be used.
    pub problems: Vec<ProblemView>,
}

/// An endpoint removal that is held back: the endpoints from before stay in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldView {
    /// Since when.
    pub since: Timestamp,
    /// When it is accepted, unless the endpoints return; none until a report is authoritative.
    pub until: Option<Timestamp>,
    /// How many healthy endpoints there were.
    pub before: usize,
    /// How many of them are left.
    pub left: usize,
}

/// A part of a provider's report that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemView {
    /// The provider's name for it.
    pub instance: String,
    /// Why it cannot be used.
    pub reason: String,
}

/// An endpoint with its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndpointRow {
    /// The address of its machine.
    #[schema(value_type = network_address::IpAddress)]
    pub address: IpAddr,
    /// The port of the application; none where the service's ports define it.
    pub port: Option<u16>,
    /// The provider that reports it.
    pub provider: Provider,
    /// The provider's name for it.
    pub instance: Option<String>,
    /// Its health.
    pub health: ReportedHealth,
    /// The component that probes it: `provider`, or for the health check of its service `agent` or `envoy`; none if none
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_source: Option<HealthSource>,
    /// Since when its application has the health that its source reports, and why it fails or is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationHealth>,
    /// Its locality.
    pub locality: Locality,
    /// Its weight among the endpoints of the service.
    pub weight: u32,
    /// Its labels.
    pub labels: Labels,
    /// The proxy that serves it, if it is known.
    pub proxy: Option<ProxyId>,
    /// The name of that proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_name: Option<ProxyName>,
    /// Since when that proxy leaves the mesh or is cordoned, so that the endpoint drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving_since: Option<Timestamp>,
    /// How far an operator has taken that proxy out of service; none if it is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<CordonMode>,
    /// The address to which callers connect while it is healthy; none if they do not.
    #[schema(value_type = Option<network_address::SocketAddress>)]
    pub dialled_at: Option<SocketAddr>,
    /// The endpoint status: `participant`, `plaintext` or `external`; or the exclusion reason: `drained`, `excluded`,
    /// `no_proxy`, `several_proxies`, `unclaimed`, `not_acked`, `not_reported`, `not_configured`, `unreachable`, `revoked` or
    /// `expired`.
    pub status: String,
    /// The reason in words, if there is one.
    pub reason: Option<String>,
    /// Since when it is known; none where that is not recorded.
    pub since: Option<Timestamp>,
    /// Whether it is damped: its health changes all the time, so it gets no calls.
    pub flapping: bool,
}

impl EndpointRow {
    /// The health of the endpoint, or `flapping`; with its source, unless that is the provider.
    pub fn health_text(&self) -> String {
        match self.health_source {
            _ if self.flapping => "flapping".to_owned(),
            Some(source @ (HealthSource::Agent | HealthSource::Envoy)) => {
                format!("{} ({source})", self.health)
            }
            Some(HealthSource::Provider) | None => self.health.to_string(),
        }
    }
}

/// The health of an endpoint as it is reported: unknown without a probe, never healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportedHealth {
    /// A probe reports that it accepts calls.
    Healthy,
    /// It gets no new calls.
    Draining,
    /// It gets no calls.
    Unhealthy,
    /// No probe examines it; it gets calls.
    Unknown,
}

impl ReportedHealth {
    /// The reported health of an endpoint with this health, probed or not.
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

/// The contradicting reports of two providers for one address and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConflictView {
    /// The address.
    #[schema(value_type = network_address::IpAddress)]
    pub address: IpAddr,
    /// The port.
    pub port: Option<u16>,
    /// The provider whose report is used.
    pub used: Provider,
    /// The provider whose report is ignored.
    pub ignored: Provider,
}

/// A proxy of a service that serves no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProxyWithoutEndpoint {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// The address to which callers would connect.
    #[schema(value_type = network_address::SocketAddress)]
    pub mesh_address: SocketAddr,
}

/// The result of accepting an endpoint removal that was held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedEndpoints {
    /// The service.
    pub service: ServiceName,
}
