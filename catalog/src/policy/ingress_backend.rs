//! `[[ingress_backend]]` (OSM's IngressBackend): callers outside the mesh.

use std::fmt;
use std::sync::Arc;

use super::SplitMatch;
use crate::finding::Spot;
use crate::ip_range::IpRange;
use crate::name::{Hostname, Name, ServiceName, ServicePort};

/// OSM `IngressBackend`: callers outside of the mesh may call these service ports.
///
/// Invariants: `backends` and `sources` are not empty. With HTTP there is a source by address and none by
/// certificate. With HTTPS there is one by certificate, or one by address if certificates are not required.
#[derive(Debug, Clone, Eq)]
pub struct IngressBackend {
    /// Its namespace, which is also that of its backends: the owner of a namespace alone decides about calls
    /// into it.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The service ports that may be called.
    pub backends: Vec<IngressPort>,
    /// The callers.
    pub sources: Vec<IngressSource>,
    /// The matches of allowed requests, any of which suffices. Every request if empty.
    pub matches: Vec<SplitMatch>,
    /// Its location in policy.
    pub spot: Spot,
}

/// A service port that callers outside the mesh may call.
#[derive(Debug, Clone, Eq)]
pub struct IngressPort {
    /// The service port, of an HTTP protocol.
    pub port: ServicePort,
    /// The listener of its proxies.
    pub entry: IngressEntry,
    /// Its location in policy.
    pub spot: Spot,
}

/// The listener of a proxy for callers outside the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngressEntry {
    /// `protocol = "http"`: plaintext, at a separate port of the mesh address.
    Http {
        /// The port.
        port: u16,
    },
    /// `protocol = "https"`: TLS at the mesh port, with one of these names in SNI.
    Https {
        /// The names, each once.
        hosts: Vec<Hostname>,
        /// Whether callers need no certificate.
        skips_client_certificates: bool,
    },
}

impl IngressEntry {
    /// The protocol, in the words of policy.
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::Https { .. } => "https",
        }
    }
}

impl fmt::Display for IngressEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { port } => write!(f, "http at port {port}"),
            Self::Https { hosts, skips_client_certificates } => {
                let hosts: Vec<_> = hosts.iter().map(Hostname::as_str).collect();
                let skips = if *skips_client_certificates { ", without a certificate" } else { "" };
                write!(f, "https by {}{skips}", hosts.join(", "))
            }
        }
    }
}

/// A condition on callers outside the mesh. One of the conditions on certificates must hold, and one of those
/// on addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngressSource {
    /// `kind = "AuthenticatedPrincipal"`: callers with this SPIFFE ID or DNS name in their certificate.
    Principal(Arc<str>),
    /// `kind = "IPRange"`: callers that connect from this range.
    Range(IpRange),
    /// `kind = "Service"`: callers that connect from an address of this service.
    Service(ServiceName),
}

impl fmt::Display for IngressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(name) => f.write_str(name),
            Self::Range(range) => range.fmt(f),
            Self::Service(service) => write!(f, "where {service} runs"),
        }
    }
}

equal_by_what_they_say! {
    IngressBackend { namespace, name, backends, sources, matches }
    IngressPort { port, entry }
}
