//! Endpoints: where the processes of a service are, and through which proxy they are reached.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::labels::Labels;
use crate::locality::Locality;
use crate::name::ServiceName;
use crate::proxy::ProxyId;

/// What an endpoints provider found: one process of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The address of its machine.
    pub address: IpAddr,
    /// The port where the application listens; the service port's target where it is left out.
    pub port: Option<u16>,
    /// Its share of the service's traffic, relative to the others.
    pub weight: u32,
    /// The proxy in front of it, where the provider carries a key that tells.
    pub proxy: Option<ProxyId>,
    /// The machine that it is on, where the provider has a key for it: of Azure, the `vmId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// What is said of it besides: the version that it runs, say.
    pub labels: Labels,
    /// What its provider says of its health.
    pub health: Health,
    /// Whether somebody probes its application. Where nobody does, `health` is an assumption, and is shown as
    /// unknown; callers go by it all the same (docs/decisions/0032).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probed: bool,
    /// Where it is, as far as its provider knows.
    pub locality: Locality,
    /// Who has found it.
    pub provider: Provider,
    /// What its provider calls it, where it has a name for it: of Consul, `NODE/SERVICE-ID`.
    pub instance: Option<Arc<str>>,
    /// Whether the instance itself selected its service, by a tag in Consul. Its labels select nothing in
    /// identity bindings.
    #[serde(default, skip_serializing_if = "is_false")]
    pub joined_by_tag: bool,
    /// The labels that later providers report for the same address and port. They have no effect on
    /// traffic; an identity binding that trusts one of these providers selects by them.
    #[serde(skip)]
    pub other_labels: Arc<[(Provider, Labels)]>,
    /// Why its service does not use it, whatever its provider says; `None` where it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusion: Option<Exclusion>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Where an endpoint is: its address, and its port where that is known.
pub type EndpointPlace = (IpAddr, Option<u16>);

impl Endpoint {
    /// Where it is.
    pub fn place(&self) -> EndpointPlace {
        (self.address, self.port)
    }

    /// A healthy endpoint of which no more is known.
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
            joined_by_tag: false,
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

/// What an endpoints provider says of the health of an endpoint. Sorted: the first is the best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It takes traffic.
    #[default]
    Healthy,
    /// It is about to leave: what is connected may end, nothing new comes.
    Draining,
    /// It takes none.
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

/// Who finds endpoints. Sorted: what an earlier one says of an address and port beats what a later one
/// says of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Policy lists it itself.
    Static,
    /// Consul.
    Consul,
    /// Azure: its scale sets and virtual machines.
    Azure,
    /// A proxy that joined is an endpoint, with no provider at all.
    Registered,
}

impl Provider {
    /// Those that are systems of others, with the words that policy uses: whoever may register there chooses
    /// addresses, ports and labels (docs/decisions/0051). The others say what policy or join records state.
    pub const EXTERNAL: [(&'static str, Self); 2] =
        [("consul", Self::Consul), ("azure", Self::Azure)];

    /// The external ones, in their order.
    pub fn external() -> impl Iterator<Item = Self> {
        Self::EXTERNAL.into_iter().map(|(_, provider)| provider)
    }

    /// Whether it is an external one.
    pub fn is_external(self) -> bool {
        Self::external().any(|external| external == self)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "static",
            Self::Consul => "consul",
            Self::Azure => "azure",
            Self::Registered => "registered",
        })
    }
}

/// All that the providers know: the endpoints of each service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovered(pub OrdMap<ServiceName, Arc<Vec<Endpoint>>>);

/// What was last believed of a provider about one service, as it is kept: the last good state, with which
/// the mesh goes on when the provider cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEndpoints {
    /// Who found them.
    pub provider: Provider,
    /// Whose endpoints they are.
    pub service: ServiceName,
    /// When that was learned.
    pub learned_at: Timestamp,
    /// The endpoints, sorted by address and port.
    pub endpoints: Arc<Vec<Endpoint>>,
}

/// An endpoint as callers dial it: the mesh address of a proxy, with all that is behind it together.
/// (The same address twice in one answer would be one host with the first weight.)
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MeshEndpoint {
    /// The proxy's mesh address; in plaintext, the application's own.
    pub address: SocketAddr,
    /// How it is spoken to.
    pub transport: Transport,
    /// The sum of the weights of the healthy ones behind the address, at least 1; of all where none is.
    pub weight: u32,
    /// The best health of those behind the address. Only a healthy one gets anything new.
    pub health: Health,
    /// Where it is, as far as somebody knows.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
}

/// An application behind a proxy that serves a service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// Where it listens.
    pub port: u16,
    /// Its share of what comes to the proxy, relative to the others.
    pub weight: u32,
    /// What its provider says of its health.
    pub health: Health,
    /// Whether somebody probes it: where nobody does, its health is an assumption.
    pub probed: bool,
}

/// How an endpoint is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// By mutual TLS: a proxy is in front of it.
    MutualTls,
    /// In plaintext: no proxy is in front of it, and its service is permissive.
    Plaintext,
}
