//! Services: logical names with ports, and where their endpoints come from.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::Provider;
use crate::finding::Spot;
use crate::labels::Labels;
use crate::locality::Locality;
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
    pub fn lets_all_in(self) -> bool {
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

/// What Consul is asked for: the instances of one of its services.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsulQuery {
    /// What the service is called in Consul.
    pub service: Arc<str>,
    /// Where it is asked for; what the settings say where it is left out.
    pub datacenter: Option<Arc<str>>,
    /// Consul's namespace, of its Enterprise edition; likewise.
    pub namespace: Option<Arc<str>>,
    /// Consul's partition, of its Enterprise edition; likewise.
    pub partition: Option<Arc<str>>,
    /// Which instances, in Consul's filter language; all of them where it is left out.
    pub filter: Option<Arc<str>>,
    /// Which of the tagged addresses of an instance is taken (`lan_ipv4`, `wan`); its own where it is left
    /// out, or where the instance has no such one.
    pub tagged_address: Option<Arc<str>>,
}

impl ConsulQuery {
    /// All instances of the service of this name, where the settings say.
    pub fn of(service: impl Into<Arc<str>>) -> Self {
        Self {
            service: service.into(),
            datacenter: None,
            namespace: None,
            partition: None,
            filter: None,
            tagged_address: None,
        }
    }
}

impl fmt::Display for ConsulQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "those of `{}` in Consul", self.service)?;
        let parts = [
            ("datacenter", &self.datacenter),
            ("namespace", &self.namespace),
            ("partition", &self.partition),
            ("filter", &self.filter),
            ("tagged address", &self.tagged_address),
        ];
        let mut told = parts.iter().filter_map(|(what, value)| Some((what, value.as_ref()?)));
        told.try_for_each(|(what, value)| write!(f, ", {what} `{value}`"))
    }
}

/// What Azure is asked for: some of its machines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AzureQuery {
    /// Which machines.
    pub machines: AzureMachines,
    /// The subscription that they are in; what the settings say where it is left out. A GUID, in lower case.
    pub subscription: Option<Arc<str>>,
    /// The resource group that they are in; likewise. In lower case.
    pub resource_group: Option<Arc<str>>,
    /// The tags that they have, with their values: of a scale set its own ones. (Azure compares the names of
    /// tags without case, and they are in lower case here; values as they are.)
    pub tags: BTreeMap<Arc<str>, Arc<str>>,
    /// The port where the application listens; the service port's target where it is left out.
    pub port: Option<u16>,
    /// Which of a machine's addresses is taken.
    pub address_family: AddressFamily,
}

/// Which machines of Azure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AzureMachines {
    /// Those of scale sets: of the one of this name (in lower case), or of all that have the tags. Never
    /// without both.
    ScaleSet(Option<Arc<str>>),
    /// Those that have the tags, and are in no scale set. Never without tags.
    VirtualMachines,
}

/// A family of IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum AddressFamily {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl AddressFamily {
    /// Both, with the words that policy uses.
    pub const ALL: [(&'static str, Self); 2] = [("ipv4", Self::Ipv4), ("ipv6", Self::Ipv6)];
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        })
    }
}

impl fmt::Display for AzureQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.machines {
            AzureMachines::ScaleSet(Some(name)) => {
                write!(f, "those of the scale set `{name}` in Azure")?;
            }
            AzureMachines::ScaleSet(None) => f.write_str("those of scale sets in Azure")?,
            AzureMachines::VirtualMachines => f.write_str("virtual machines in Azure")?,
        }
        let tags = self.tags.iter().map(|(name, value)| format!(", tag `{name}` = `{value}`"));
        let places =
            [("subscription", &self.subscription), ("resource group", &self.resource_group)];
        let told = places.iter().filter_map(|(what, value)| Some((what, value.as_ref()?)));
        let places = told.map(|(what, value)| format!(", {what} `{value}`"));
        let port = self.port.map(|port| format!(", port {port}"));
        let family = (self.address_family != AddressFamily::default())
            .then(|| format!(", by {}", self.address_family));
        tags.chain(places).chain(port).chain(family).try_for_each(|part| f.write_str(&part))
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
