//! OSM `Egress`: what accounts may call outside of the mesh, by host or by address.

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
    /// Who may call. Of any namespace.
    pub sources: Vec<ServiceAccount>,
    /// By which hosts they may call.
    pub hosts: Vec<Hostname>,
    /// With hosts, where these may be, anywhere if it is empty; without, what may be called by address.
    pub ip_addresses: Vec<IpRange>,
    /// On which ports.
    pub ports: Vec<EgressPort>,
    /// On ports of HTTP the requests that it is about: those that any of these matches. All of them where
    /// the list is empty.
    pub matches: Vec<SplitMatch>,
    /// Where it is written.
    pub spot: Spot,
}

impl PartialEq for Egress {
    fn eq(&self, other: &Self) -> bool {
        // Taken apart, so that no field is forgotten.
        let Self { namespace, name, sources, hosts, ip_addresses, ports, matches, spot: _ } = self;
        (namespace, name, sources) == (&other.namespace, &other.name, &other.sources)
            && (hosts, ip_addresses) == (&other.hosts, &other.ip_addresses)
            && (ports, matches) == (&other.ports, &other.matches)
    }
}

/// A port of an [`Egress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressPort {
    /// Its number, outside of the mesh.
    pub number: u16,
    /// What is spoken there.
    pub protocol: EgressProtocol,
}

/// What is spoken on a port outside of the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EgressProtocol {
    /// HTTP/1.1 in the clear, where requests can be told apart.
    Http,
    /// The application's own TLS, carried as bytes.
    Https,
    /// Bytes, of which nothing is known: either side may speak first.
    Tcp,
}

impl EgressProtocol {
    /// All of them, with the words that policy uses.
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

/// What becomes of calls to the outside that no policy allows, by whose namespace the caller is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EgressMode {
    /// They are refused.
    #[default]
    Policy,
    /// They pass, wherever they go.
    Passthrough,
}

impl EgressMode {
    /// Both, with the words that settings and policy use.
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
