//! Endpoints: the addresses of the processes of a service, and the proxies that serve them.
//!
//! This module owns endpoints as data. It never decides whether callers use them.

mod acceptance;
mod provider;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::labels::Labels;
use crate::locality::Locality;
use crate::name::ServiceName;
use crate::proxy::ProxyId;

pub use acceptance::EndpointAcceptance;
pub use provider::Provider;
pub(crate) use provider::ProviderKind;

/// One process of a service, as an endpoints provider reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The address of its machine.
    pub address: IpAddr,
    /// The port of the application. Default: the target of the service port.
    pub port: Option<u16>,
    /// Its share of the service's traffic, relative to the others.
    pub weight: u32,
    /// The proxy of the endpoint, if the provider has a key for it.
    pub proxy: Option<ProxyId>,
    /// The machine of the endpoint, if the provider has a key for it: in Azure, the `vmId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// Its labels, such as the version that it runs.
    pub labels: Labels,
    /// What its provider says of its health.
    pub health: Health,
    /// Whether a health check probes its application. Otherwise `health` is an assumption: it is shown as
    /// unknown, but callers use it all the same (docs/decisions/0032).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probed: bool,
    /// Its locality, if its provider reports one.
    pub locality: Locality,
    /// The provider that reports it.
    pub provider: Provider,
    /// The provider's name of the instance, if it has one: in Consul, `NODE/SERVICE-ID`.
    pub instance: Option<Arc<str>>,
    /// Whether the instance itself selected its service, by a tag in Consul. Its labels select nothing in
    /// identity bindings.
    #[serde(rename = "joined_by_tag", default, skip_serializing_if = "is_false")]
    pub selected_by_tag: bool,
    /// The labels that later providers report for the same address and port. They have no effect on
    /// traffic; an identity binding that trusts one of these providers selects by them.
    #[serde(skip)]
    pub other_labels: Arc<[(Provider, Labels)]>,
    /// Why its service excludes it, whatever its provider reports; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusion: Option<Exclusion>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// The address of an endpoint, with its port if it is known.
pub type EndpointPlace = (IpAddr, Option<u16>);

impl Endpoint {
    /// Its address and port.
    pub fn place(&self) -> EndpointPlace {
        (self.address, self.port)
    }

    /// A healthy endpoint without further properties.
    pub fn new(provider: Provider, address: IpAddr) -> Self {
        Self {
            address,
            port: None,
            weight: 1,
            proxy: None,
            machine: None,
            labels: Labels::default(),
            health: Health::Healthy,
            probed: false,
            locality: Locality::default(),
            provider,
            instance: None,
            selected_by_tag: false,
            other_labels: Arc::default(),
            exclusion: None,
        }
    }
}

/// Why an endpoint that a provider reports is excluded from its service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Its address is loopback or link-local: every machine has it.
    LocalAddress,
    /// Its port is one of the proxy's or of the control plane's.
    MeshPort,
    /// Policy does not allow its port.
    Port,
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LocalAddress => "its address is loopback or link-local",
            Self::MeshPort => "its port belongs to Ironmesh on every machine",
            Self::Port => "policy does not allow its port",
        })
    }
}

/// The health of an endpoint, as its provider reports it. Ordered from best to worst.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It accepts new calls.
    #[default]
    Healthy,
    /// It drains: current connections may end, and no new calls arrive.
    Draining,
    /// It accepts no calls.
    Unhealthy,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
        })
    }
}

/// The endpoints that providers report, by service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovered(pub OrdMap<ServiceName, Arc<Vec<Endpoint>>>);

/// The last-known-good endpoints of one provider for one service, as the store keeps them. They apply while the
/// provider is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEndpoints {
    /// The provider.
    pub provider: Provider,
    /// The service.
    pub service: ServiceName,
    /// When the provider reported them.
    pub learned_at: Timestamp,
    /// The endpoints, sorted by address and port.
    pub endpoints: Arc<Vec<Endpoint>>,
}

/// An endpoint as callers dial it: the mesh address of a proxy, with all its endpoints merged. (The same
/// address twice in one assignment would be one host with the first weight.)
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct MeshEndpoint {
    /// The proxy's mesh address; in plaintext, the application's own.
    #[schema(value_type = crate::network_address::SocketAddress)]
    pub address: SocketAddr,
    /// Its transport.
    pub transport: Transport,
    /// The sum of the weights of its healthy endpoints, or of all if none is healthy; at least 1.
    pub weight: u32,
    /// The best health of its endpoints. Only a healthy one gets new calls.
    pub health: Health,
    /// Its locality, if it is known.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
}

/// An application of a proxy that serves a service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// The port on which it listens.
    pub port: u16,
    /// Its share of the calls of the proxy, relative to the others.
    pub weight: u32,
    /// What its provider says of its health.
    pub health: Health,
    /// Whether a health check probes it. Otherwise its health is an assumption.
    pub probed: bool,
}

/// The transport between callers and an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Mutual TLS to the proxy of the endpoint.
    MutualTls,
    /// Plaintext to an endpoint without a proxy, of a permissive service.
    Plaintext,
}
