//! Services: logical names with ports and with the sources of their endpoints.

use std::fmt;
use std::time::Duration;

use crate::endpoint_source::EndpointSource;
use crate::finding::Spot;
use crate::health_check::HealthCheck;
use crate::name::{Hostname, Name, ServiceAccount, ServiceName, ServicePort};
use crate::policy_upstream::PolicyUpstream;
use crate::port_range::PortRange;

/// A logical name with ports. A service has no endpoints of its own; providers find them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: ServiceName,
    /// The service account of its processes. Default: the name of the service.
    pub account: ServiceAccount,
    /// Its ports, by number, each number once. None for a pure client.
    pub ports: Vec<Port>,
    /// The sources of its endpoints.
    pub endpoints: EndpointSource,
    /// The mode. Default: that of its namespace.
    pub mode: Option<Mode>,
    /// Its visibility.
    pub visibility: Visibility,
    /// The handling of escaped slashes in paths.
    pub escaped_slashes: EscapedSlashes,
    /// The longest duration of a caller's connection, and of a request on it, at its sidecars. Default: no
    /// limit.
    pub max_connection_duration: Option<Duration>,
    /// How its applications are probed on their machines; none if they are not.
    pub health: Option<HealthCheck>,
    /// Whether operators drain the service: it keeps its name, and callers use none of its endpoints.
    pub drained: bool,
    /// Its hostname and resolution outside the mesh; none for a service of the mesh.
    pub external: Option<External>,
    /// Its subsets: services with some of its endpoints.
    pub subsets: Vec<ServiceName>,
    /// The local ports of its proxies that lead to other services.
    pub upstreams: Vec<PolicyUpstream>,
    /// Where policy defines it.
    pub spot: Spot,
}

impl Service {
    /// The values of `state` in policy, with whether they drain the service.
    pub const STATES: [(&'static str, bool); 2] = [("active", false), ("drained", true)];

    /// The port with this number.
    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// The service as which proxies serve its endpoints: itself, or for a subset its service.
    pub fn served_as(&self) -> &ServiceName {
        match &self.endpoints {
            EndpointSource::Subset { of, .. } => of,
            EndpointSource::Providers(_) | EndpointSource::Hostname => &self.name,
        }
    }

    /// Whether it is a subset.
    pub fn is_subset(&self) -> bool {
        matches!(self.endpoints, EndpointSource::Subset { .. })
    }

    /// Whether both differ only in the sources of their endpoints and in their location in policy. (Whether enrolled
    /// proxies are the only source matters to callers.)
    pub fn differs_in_endpoints_only(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.upstreams, &other.upstreams);
        self.is_same_to_callers(other)
            && ours.len() == theirs.len()
            && ours.iter().zip(theirs).all(|(ours, theirs)| ours.is_same(theirs))
    }

    /// Whether callers cannot distinguish it from `other`: both differ only in the sources of their endpoints, in
    /// their own upstreams and in their location in policy.
    pub fn is_same_to_callers(&self, other: &Self) -> bool {
        (&self.account, &self.ports, self.mode) == (&other.account, &other.ports, other.mode)
            && (self.visibility, &self.external) == (other.visibility, &other.external)
            && (self.escaped_slashes, self.max_connection_duration)
                == (other.escaped_slashes, other.max_connection_duration)
            && (&self.subsets, self.served_as()) == (&other.subsets, other.served_as())
            && self.endpoints.is_registered() == other.endpoints.is_registered()
            && self.endpoints.is_hostname() == other.endpoints.is_hostname()
    }

    /// Whether the service is visible to accounts of `namespace`.
    pub fn is_visible_in(&self, namespace: &Name) -> bool {
        self.visibility == Visibility::Public || self.name.namespace == *namespace
    }

    /// The accounts that may call it in `mode` without a traffic target; `None` if the mode requires one.
    pub fn open_callers(&self, mode: Mode) -> Option<OpenCallers<'_>> {
        mode.allows_all().then_some(match self.visibility {
            Visibility::Public => OpenCallers::All,
            Visibility::Private => OpenCallers::Namespace(&self.name.namespace),
        })
    }

    /// Its ports with their full names.
    pub fn service_ports(&self) -> impl Iterator<Item = (ServicePort, &Port)> {
        self.ports.iter().map(|port| (ServicePort::new(self.name.clone(), port.number), port))
    }
}

/// The accounts that may call a service without a traffic target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenCallers<'a> {
    /// Every account of the mesh.
    All,
    /// Every account of a namespace, since the service is private.
    Namespace(&'a Name),
}

/// The handling of calls that no policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Proxies deny them, and callers do not use endpoints without a proxy.
    Strict,
    /// Every account of the mesh may call, by mutual TLS. Callers dial endpoints without a proxy in plaintext.
    Permissive,
    /// Like permissive, with reports of the calls that strict would deny: the migration path to strict.
    Audit,
}

impl Mode {
    /// All values, with their words in policy and settings.
    pub const ALL: [(&'static str, Self); 3] =
        [("strict", Self::Strict), ("permissive", Self::Permissive), ("audit", Self::Audit)];

    /// Whether calls are allowed without a traffic target.
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

/// A service outside the mesh: it has no proxy, and proxies call it without mutual TLS. The caller's own proxy
/// alone authorizes its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// Its hostname. Required unless its endpoints are a list.
    pub hostname: Option<Hostname>,
    /// How proxies resolve its endpoints.
    pub resolution: Resolution,
}

/// How the endpoints of an external service are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// A list in policy.
    Static,
    /// The proxy resolves its hostname by DNS.
    Dns,
    /// The proxy resolves the host of each request, which is below the hostname (`*.example.com`).
    Passthrough,
}

impl Resolution {
    /// All values, with their words in policy and settings.
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

/// The accounts to which a service is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Visibility {
    /// All accounts of the mesh, as far as they may call it.
    #[default]
    Public,
    /// Accounts of its own namespace, whatever traffic targets allow.
    Private,
}

impl Visibility {
    /// All values, with their words in policy and settings.
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

/// The handling of requests with an escaped slash (`%2f`, `%5c`) in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EscapedSlashes {
    /// Sidecars answer 400, because some servers read `..%2f` as an escape from a granted path.
    #[default]
    Reject,
    /// They pass unchanged, for applications with such paths (`/projects/group%2Fname`).
    Keep,
}

impl EscapedSlashes {
    /// All values, with their words in policy and settings.
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
    /// Its protocol.
    pub protocol: Protocol,
    /// The port of the application, unless its endpoint has one.
    pub target: u16,
    /// Further ports that a provider may report for an endpoint, if this is the only port of its service.
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
    /// Bytes of an unknown protocol: either side may speak first.
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
    /// All values, with their words in policy and settings.
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

    /// Whether policy can distinguish requests on it.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// Whether the application speaks HTTP/2.
    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// The word in policy.
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
