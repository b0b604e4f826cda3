//! OSM `Egress`: calls of accounts to hosts and addresses outside the mesh.

use std::fmt;

use crate::finding::Spot;
use crate::ip_range::IpRange;
use crate::name::{Hostname, Name, ServiceAccount};
use crate::policy::SplitMatch;

/// OSM `Egress`: these sources may call these hosts or addresses outside of the mesh on these ports.
///
/// Invariant: `sources` and `ports` are not empty, nor are `hosts` and `ip_addresses` both; with a port of
/// HTTP there are hosts.
#[derive(Debug, Clone, Eq)]
pub struct Egress {
    /// Its namespace, in which its matches are looked up.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The accounts that may call, of any namespace.
    pub sources: Vec<ServiceAccount>,
    /// The hosts that they may call.
    pub hosts: Vec<Hostname>,
    /// With hosts, the allowed addresses of these hosts (any if empty); without, the addresses that they may
    /// call.
    pub ip_addresses: Vec<IpRange>,
    /// The ports.
    pub ports: Vec<EgressPort>,
    /// On HTTP ports, the matches of allowed requests, any of which suffices. Every request if empty.
    pub matches: Vec<SplitMatch>,
    /// Its location in policy.
    pub spot: Spot,
}

impl PartialEq for Egress {
    fn eq(&self, other: &Self) -> bool {
        // Destructured, so that the compiler reports a forgotten field.
        let Self { namespace, name, sources, hosts, ip_addresses, ports, matches, spot: _ } = self;
        (namespace, name, sources) == (&other.namespace, &other.name, &other.sources)
            && (hosts, ip_addresses) == (&other.hosts, &other.ip_addresses)
            && (ports, matches) == (&other.ports, &other.matches)
    }
}

/// A port of an [`Egress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressPort {
    /// Its number.
    pub number: u16,
    /// Its protocol.
    pub protocol: EgressProtocol,
}

/// The protocol of a port outside the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EgressProtocol {
    /// Plain HTTP/1.1, where policy can distinguish requests.
    Http,
    /// The application's own TLS, carried as bytes.
    Https,
    /// Bytes of an unknown protocol: either side may speak first.
    Tcp,
}

impl EgressProtocol {
    /// All values, with their words in policy.
    pub const ALL: [(&'static str, Self); 3] =
        [("http", Self::Http), ("https", Self::Https), ("tcp", Self::Tcp)];
}

impl fmt::Display for EgressProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
        })
    }
}

/// The handling of calls to destinations outside the mesh that no egress allows, by the namespace of the
/// caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EgressMode {
    /// Proxies reject them.
    #[default]
    Policy,
    /// Proxies forward them to any destination.
    Passthrough,
}

impl EgressMode {
    /// All values, with their words in policy and settings.
    pub const ALL: [(&'static str, Self); 2] =
        [("policy", Self::Policy), ("passthrough", Self::Passthrough)];
}

impl fmt::Display for EgressMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "policy",
            Self::Passthrough => "passthrough",
        })
    }
}
