//! The sources of the endpoints of a service, as policy sets them: the providers and their queries.
//!
//! Each provider has a module for its query. The provider itself decides what a query means
//! (docs/decisions/0055).

mod azure;
mod consul;

use std::fmt::Display;
use std::net::IpAddr;

use crate::endpoint::Provider;
use crate::finding::Spot;
use crate::labels::Labels;
use crate::locality::Locality;
use crate::name::ServiceName;

pub use azure::{AddressFamily, AzureMachines, AzureQuery, JoinRank};
pub use consul::ConsulQuery;

/// The source of the endpoints of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointSource {
    /// Endpoints providers; the service has the endpoints of all of them.
    Providers(Providers),
    /// None in the control plane: proxies resolve the hostname of an external service.
    Hostname,
    /// The endpoints of another service with these labels. The labels are never empty.
    Subset {
        /// The service of which it is a subset.
        of: ServiceName,
        /// The labels of its endpoints.
        labels: Labels,
    },
}

impl EndpointSource {
    /// The proxies enrolled for this service: each is one endpoint, at its own address.
    pub fn registered() -> Self {
        Self::Providers(Providers { registered: true, ..Providers::default() })
    }

    /// A list in policy.
    pub fn fixed(list: Vec<StaticEndpoint>) -> Self {
        Self::Providers(Providers { fixed: list, ..Providers::default() })
    }

    /// Whether the enrolled proxies are the only source, so that every endpoint has a proxy.
    pub fn is_registered(&self) -> bool {
        self.providers() == Some(&Providers { registered: true, ..Providers::default() })
    }

    /// Whether proxies resolve a hostname themselves, so that there are no endpoints to push.
    pub fn is_hostname(&self) -> bool {
        *self == Self::Hostname
    }

    /// The providers that policy queries; none if it queries none.
    pub fn providers(&self) -> Option<&Providers> {
        match self {
            Self::Providers(providers) => Some(providers),
            Self::Hostname | Self::Subset { .. } => None,
        }
    }
}

/// The providers of the endpoints of a service, with their queries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Providers {
    /// Whether the proxies enrolled for the service are endpoints without any provider.
    pub registered: bool,
    /// The endpoints that policy lists.
    pub fixed: Vec<StaticEndpoint>,
    /// The query to Consul.
    pub consul: Option<ConsulQuery>,
    /// The queries to Azure, each once; the service has the endpoints of all of them.
    pub azure: Vec<AzureQuery>,
}

impl Providers {
    /// Whether this provider is one of them.
    pub fn include(&self, provider: Provider) -> bool {
        match provider {
            Provider::Static => !self.fixed.is_empty(),
            Provider::Consul => self.consul.is_some(),
            Provider::Azure => !self.azure.is_empty(),
            Provider::Registered => self.registered,
        }
    }

    /// The external providers among them, in order of precedence.
    pub fn external(&self) -> impl Iterator<Item = Provider> {
        Provider::external().filter(|provider| self.include(*provider))
    }

    /// The queries to external providers, for messages.
    pub fn queries(&self) -> impl Iterator<Item = &dyn Display> {
        let Self { registered: _, fixed: _, consul, azure } = self;
        let consul = consul.iter().map(|query| query as &dyn Display);
        consul.chain(azure.iter().map(|query| query as &dyn Display))
    }
}

/// One endpoint of a list in policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticEndpoint {
    /// The machine's address.
    pub address: IpAddr,
    /// The port of the application. Default: the target of the service port.
    pub port: Option<u16>,
    /// Its share of the traffic, relative to the others.
    pub weight: u32,
    /// Its labels.
    pub labels: Labels,
    /// Its locality. Default: the locality of its proxy.
    pub locality: Locality,
    /// Where policy lists it.
    pub spot: Spot,
}
