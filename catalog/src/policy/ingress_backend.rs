//! `[[ingress_backend]]` (OSM's IngressBackend): who may call from outside of the mesh, and how.

use std::fmt;
use std::sync::Arc;

use super::SplitMatch;
use crate::finding::Spot;
use crate::ip_range::IpRange;
use crate::name::{Hostname, Name, ServiceName, ServicePort};

/// OSM `IngressBackend`: callers outside of the mesh may call these service ports.
///
/// Invariants: `backends` and `sources` are not empty. Over HTTP there is a source by address, and none by
/// certificate; over HTTPS there is one by certificate, or where certificates are not asked for, one by
/// address.
#[derive(Debug, Clone, Eq)]
pub struct IngressBackend {
    /// Its namespace, which is also that of its backends: who owns it alone decides who may call into it.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// What may be called.
    pub backends: Vec<IngressPort>,
    /// Who may call.
    pub sources: Vec<IngressSource>,
    /// Which requests they may make: those that any of these matches. All of them where the list is empty.
    pub matches: Vec<SplitMatch>,
    /// Where it is written.
    pub spot: Spot,
}

/// A service port that may be called from outside of the mesh.
#[derive(Debug, Clone, Eq)]
pub struct IngressPort {
    /// The service port, of an HTTP protocol.
    pub port: ServicePort,
    /// Where the proxies in front of it are called for that.
    pub entry: IngressEntry,
    /// Where it is written.
    pub spot: Spot,
}

/// Where a proxy is called from outside of the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngressEntry {
    /// `protocol = "http"`: in plaintext, at a port of its own on the mesh address.
    Http {
        /// The port.
        port: u16,
    },
    /// `protocol = "https"`: at the mesh port, by one of these names in SNI.
    Https {
        /// The names, each once.
        hosts: Vec<Hostname>,
        /// Whether callers need no certificate.
        skips_client_certificates: bool,
    },
}

impl IngressEntry {
    /// The protocol, as policy says it.
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

/// Who may call from outside of the mesh. Of those that are named by certificate one must hold, and of those
/// that are named by address one must.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngressSource {
    /// `kind = "AuthenticatedPrincipal"`: who has a certificate with this SPIFFE ID, or this name of DNS.
    Principal(Arc<str>),
    /// `kind = "IPRange"`: who connects from there.
    Range(IpRange),
    /// `kind = "Service"`: who connects from where this service runs.
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
