//! Services: logical names with ports, and where their endpoints come from.

use std::fmt;
use std::net::IpAddr;

use crate::endpoint::Labels;
use crate::finding::Spot;
use crate::name::{Name, ServiceAccount, ServiceName, ServicePort};

/// A logical name with ports. A service has no endpoints of its own; providers find them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: ServiceName,
    /// The identity that its processes run as; the service's own name unless policy says another.
    pub account: ServiceAccount,
    /// Its ports, by number, each number once. None for a pure client.
    pub ports: Vec<Port>,
    /// Where its endpoints come from.
    pub endpoints: EndpointSource,
    /// What becomes of calls that no policy allows; what the mesh does where it is left out.
    pub mode: Option<Mode>,
    /// Where policy defines it.
    pub spot: Spot,
}

impl Service {
    /// The port that callers call `number`.
    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// Its ports with their full names.
    pub fn service_ports(&self) -> impl Iterator<Item = (ServicePort, &Port)> {
        self.ports.iter().map(|port| (ServicePort::new(self.name.clone(), port.number), port))
    }
}

/// What becomes of calls that no policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are denied, and endpoints without a proxy are left out.
    Strict,
    /// All of the mesh may call, by mutual TLS. Endpoints without a proxy are called in plaintext.
    Permissive,
}

impl Mode {
    /// All of them, with the words that settings and policy use.
    pub const ALL: [(&'static str, Self); 2] =
        [("strict", Self::Strict), ("permissive", Self::Permissive)];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Permissive => "permissive",
        })
    }
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name, unique in the service.
    pub name: Name,
    /// The number that callers use.
    pub number: u16,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// The port on which the application listens, where its endpoint does not say.
    pub target: u16,
}

/// The protocol of a port, as the application speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1 to the application.
    Http,
    /// HTTP/2 without TLS to the application.
    Http2,
    /// gRPC, that is HTTP/2 without TLS to the application.
    Grpc,
    /// Bytes, of which nothing is known: either side may speak first.
    Tcp,
}

impl Protocol {
    /// All of them, with the words that policy uses.
    pub const ALL: [(&'static str, Self); 4] =
        [("http", Self::Http), ("http2", Self::Http2), ("grpc", Self::Grpc), ("tcp", Self::Tcp)];

    /// Whether requests can be told apart on it.
    pub fn is_http(self) -> bool {
        self != Self::Tcp
    }

    /// Whether the application is to be spoken to in HTTP/2.
    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Grpc => "grpc",
            Self::Tcp => "tcp",
        })
    }
}

/// Where the endpoints of a service come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointSource {
    /// The proxies that joined as this service: each is one endpoint, at its own address.
    Registered,
    /// A list in policy.
    Static(Vec<StaticEndpoint>),
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
    /// Where policy lists it.
    pub spot: Spot,
}
