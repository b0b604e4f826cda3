//! Services: logical names with ports, and where their endpoints come from.

use std::fmt;
use std::time::Duration;

use crate::endpoint_source::EndpointSource;
use crate::finding::Spot;
use crate::name::{Hostname, Name, ServiceAccount, ServiceName, ServicePort};
use crate::port_range::PortRange;

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
    /// What becomes of calls that no policy allows; what its namespace says where it is left out.
    pub mode: Option<Mode>,
    /// Who knows of it.
    pub visibility: Visibility,
    /// What becomes of requests with escaped slashes in their path.
    pub escaped_slashes: EscapedSlashes,
    /// How long its sidecars keep a caller's connection, and a request on it, at most; no bound where it is
    /// left out.
    pub max_connection_duration: Option<Duration>,
    /// Whether operators have taken it out of service: it keeps its name, and no endpoint of it is called.
    pub drained: bool,
    /// What it is outside of the mesh; none for a service of the mesh.
    pub external: Option<External>,
    /// The services that are parts of this one: those whose endpoints are some of its own.
    pub subsets: Vec<ServiceName>,
    /// Where policy defines it.
    pub spot: Spot,
}

impl Service {
    /// The words that policy uses for its `state`, with whether it is drained.
    pub const STATES: [(&'static str, bool); 2] = [("active", false), ("drained", true)];

    /// The port that callers call `number`.
    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// The service as which its endpoints are served and called: itself, or the one that it is a part of.
    pub fn served_as(&self) -> &ServiceName {
        match &self.endpoints {
            EndpointSource::Subset { of, .. } => of,
            EndpointSource::Providers(_) | EndpointSource::Hostname => &self.name,
        }
    }

    /// Whether it is a part of another.
    pub fn is_subset(&self) -> bool {
        matches!(self.endpoints, EndpointSource::Subset { .. })
    }

    /// Whether nobody who calls it can tell it from `other`: they differ in nothing but where endpoints
    /// are, and where they are written. (Whether they are those that joined decides how they are called.)
    pub fn differs_in_endpoints_only(&self, other: &Self) -> bool {
        (&self.account, &self.ports, self.mode) == (&other.account, &other.ports, other.mode)
            && (self.visibility, &self.external) == (other.visibility, &other.external)
            && (self.escaped_slashes, self.max_connection_duration)
                == (other.escaped_slashes, other.max_connection_duration)
            && (&self.subsets, self.served_as()) == (&other.subsets, other.served_as())
            && self.endpoints.is_registered() == other.endpoints.is_registered()
    }

    /// Whether accounts of `namespace` may know of it.
    pub fn is_visible_in(&self, namespace: &Name) -> bool {
        self.visibility == Visibility::Public || self.name.namespace == *namespace
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
    /// As permissive, and what strict would deny is told: the way into strict.
    Audit,
}

impl Mode {
    /// All of them, with the words that settings and policy use.
    pub const ALL: [(&'static str, Self); 3] =
        [("strict", Self::Strict), ("permissive", Self::Permissive), ("audit", Self::Audit)];

    /// Whether calls pass that no policy allows.
    pub fn allows_all(self) -> bool {
        match self {
            Self::Strict => false,
            Self::Permissive | Self::Audit => true,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Permissive => "permissive",
            Self::Audit => "audit",
        })
    }
}

/// A service outside of the mesh: no proxy serves it, and it is called as it is, without the mesh's TLS.
/// Who may call it is decided by the caller's own proxy, and by nobody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// What it is called there. Always there unless its endpoints are a list.
    pub hostname: Option<Hostname>,
    /// How its endpoints are found.
    pub resolution: Resolution,
}

/// How the endpoints of an external service are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// A list in policy.
    Static,
    /// The proxy looks its hostname up.
    Dns,
    /// The proxy looks up the host that the request asks for, which is below the hostname (`*.example.com`).
    Passthrough,
}

impl Resolution {
    /// All of them, with the words that policy uses.
    pub const ALL: [(&'static str, Self); 3] =
        [("static", Self::Static), ("dns", Self::Dns), ("passthrough", Self::Passthrough)];
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "static",
            Self::Dns => "dns",
            Self::Passthrough => "passthrough",
        })
    }
}

/// Who knows of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Visibility {
    /// All of the mesh, as far as they may call it.
    #[default]
    Public,
    /// Accounts of its own namespace, whatever else policy says.
    Private,
}

impl Visibility {
    /// All of them, with the words that policy uses.
    pub const ALL: [(&'static str, Self); 2] =
        [("public", Self::Public), ("private", Self::Private)];
}

impl fmt::Display for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Private => "private",
        })
    }
}

/// What becomes of requests with an escaped slash (`%2f`, `%5c`) in their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EscapedSlashes {
    /// They are answered with 400: some servers read `..%2f` as the way out of a grant on a path.
    #[default]
    Reject,
    /// They pass as they are, for an application that has such paths (`/projects/group%2Fname`).
    Keep,
}

impl EscapedSlashes {
    /// All of them, with the words that policy uses.
    pub const ALL: [(&'static str, Self); 2] = [("reject", Self::Reject), ("keep", Self::Keep)];
}

impl fmt::Display for EscapedSlashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reject => "reject",
            Self::Keep => "keep",
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
    /// The ports that a provider may report for an endpoint besides `target`, where this is the only port of
    /// its service.
    pub allowed_targets: Vec<PortRange>,
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
    /// gRPC-Web from callers, who may speak HTTP/1.1, and gRPC to the application.
    GrpcWeb,
    /// Bytes, of which nothing is known: either side may speak first.
    Tcp,
    /// HTTP in the application's own TLS, carried as bytes.
    Https,
    /// The application's own TLS, carried as bytes.
    Tls,
    /// MongoDB, carried as bytes.
    Mongo,
    /// MySQL, carried as bytes.
    Mysql,
    /// Redis, carried as bytes.
    Redis,
}

impl Protocol {
    /// All of them, with the words that policy uses.
    pub const ALL: [(&'static str, Self); 10] = [
        ("http", Self::Http),
        ("http2", Self::Http2),
        ("grpc", Self::Grpc),
        ("grpc-web", Self::GrpcWeb),
        ("tcp", Self::Tcp),
        ("https", Self::Https),
        ("tls", Self::Tls),
        ("mongo", Self::Mongo),
        ("mysql", Self::Mysql),
        ("redis", Self::Redis),
    ];

    /// Whether requests can be told apart on it.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// Whether the application is to be spoken to in HTTP/2.
    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// The word that policy uses.
    pub fn word(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, protocol)| *protocol == self);
        known.map_or("tcp", |(word, _)| word)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
