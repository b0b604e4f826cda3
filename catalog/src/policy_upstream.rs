//! Upstreams as policy declares them: local ports of a service's proxies that lead to other services.

use std::fmt;

use crate::finding::Spot;
use crate::name::{Name, ServiceName};

/// An upstream of a service in policy: a local port of its proxies that leads to another service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyUpstream {
    /// The service to call.
    pub service: ServiceName,
    /// The port of that service. Default: its only port.
    pub port: Option<PortReference>,
    /// The port on which the proxies listen for their applications.
    pub local_port: u16,
    /// Where policy declares it.
    pub spot: Spot,
}

/// A port of a service, as policy names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortReference {
    /// Its number.
    Number(u16),
    /// Its name.
    Name(Name),
}

impl fmt::Display for PortReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl PolicyUpstream {
    /// The least local port: programs need a privilege to listen on lower ones.
    pub const MIN_LOCAL_PORT: u16 = 1024;

    /// The most upstreams of one service.
    pub const MAX: usize = 256;

    /// Whether both differ at most in their locations.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.service, &self.port, self.local_port)
            == (&other.service, &other.port, other.local_port)
    }
}

/// The upstream in the form of the flag: `shop/api:web=9001`.
impl fmt::Display for PolicyUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.service)?;
        if let Some(port) = &self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "={}", self.local_port)
    }
}
