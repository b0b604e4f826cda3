//! Where the endpoints of a service come from, as policy says it: which providers are asked, and for what.
//!
//! Each provider has a module for its part. What a provider makes of its query is its own business
//! (docs/decisions/0055).

mod azure;
mod consul;

use std::net::IpAddr;

use crate::endpoint::Provider;
use crate::finding::Spot;
use crate::labels::Labels;
use crate::locality::Locality;
use crate::name::ServiceName;

pub use azure::{AddressFamily, AzureMachines, AzureQuery};
pub use consul::ConsulQuery;

/// Where the endpoints of a service come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointSource {
    /// Endpoints providers: what they find is the service's, all of it together.
    Providers(Providers),
    /// No endpoints that we know: proxies look up the hostname of an external service.
    Hostname,
    /// Those of another service that have these labels. Never no labels.
    Subset {
        /// The service that it is a part of.
        of: ServiceName,
        /// What its endpoints have.
        labels: Labels,
    },
}

impl EndpointSource {
    /// The proxies that joined as this service: each is one endpoint, at its own address.
    pub fn registered() -> Self {
        Self::Providers(Providers { registered: true, ..Providers::default() })
    }

    /// A list in policy.
    pub fn fixed(list: Vec<StaticEndpoint>) -> Self {
        Self::Providers(Providers { fixed: list, ..Providers::default() })
    }

    /// Whether policy asks for nobody but the proxies that joined, so that no endpoint is without one.
    pub fn is_registered(&self) -> bool {
        self.providers() == Some(&Providers { registered: true, ..Providers::default() })
    }

    /// The providers that are asked; none where nobody is.
    pub fn providers(&self) -> Option<&Providers> {
        match self {
            Self::Providers(providers) => Some(providers),
            Self::Hostname | Self::Subset { .. } => None,
        }
    }
}

/// Which endpoints providers are asked for the endpoints of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Providers {
    /// Whether the proxies that joined as the service are endpoints of it with no provider at all.
    pub registered: bool,
    /// Those that policy lists itself.
    pub fixed: Vec<StaticEndpoint>,
    /// What Consul is asked for.
    pub consul: Option<ConsulQuery>,
    /// What Azure is asked for, each once; all that is found is the service's.
    pub azure: Vec<AzureQuery>,
}

impl Providers {
    /// Whether policy asks this one.
    pub fn ask(&self, provider: Provider) -> bool {
        match provider {
            Provider::Static => !self.fixed.is_empty(),
            Provider::Consul => self.consul.is_some(),
            Provider::Azure => !self.azure.is_empty(),
            Provider::Registered => self.registered,
        }
    }
}

/// One endpoint of a list in policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticEndpoint {
    /// The machine's address.
    pub address: IpAddr,
    /// Where the application listens; the service port's target where it is left out.
    pub port: Option<u16>,
    /// Its share of the traffic, relative to the others.
    pub weight: u32,
    /// What is said of it besides.
    pub labels: Labels,
    /// Where it is; where its proxy is, if that is left out.
    pub locality: Locality,
    /// Where policy lists it.
    pub spot: Spot,
}
