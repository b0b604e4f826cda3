//! The domain model of the mesh: names, services, policy, proxies, certificates as values, and the [`Snapshot`]
//! from which everything is compiled.
//!
//! This crate owns the vocabulary of all other crates, the trait of the certificate store, and the meaning of
//! policy: access, destinations and treatment of calls. `ironmesh-analysis`, beside it, answers questions about
//! a snapshot. This crate never does IO, never reads a clock, never handles a protobuf, and imports none of our
//! other crates.
//!
//! Start reading at [`Snapshot`], one consistent state of the mesh.

pub mod allowed_traffic;
mod application_health;
pub mod backoff;
pub mod certificate;
pub mod cited;
pub mod codes;
mod driver_name;
pub mod egress_rules;
pub mod endpoint;
pub mod endpoint_source;
mod exclusion;
pub mod finding;
pub mod grants;
mod health_check;
pub mod hosts;
pub mod http_routes;
pub mod identity;
pub mod ingress;
pub mod ip_range;
pub mod join_token;
pub mod journal;
pub mod labels;
mod listeners;
pub mod locality;
mod log_directives;
mod login;
pub mod name;
pub mod network_address;
mod object_ref;
mod operator;
pub mod policy;
mod policy_object;
pub mod policy_record;
pub mod policy_upstream;
pub mod port_range;
pub mod proxy;
mod proxy_index;
mod proxy_name;
pub mod removals;
pub mod reserved_headers;
pub mod reserved_ports;
mod schema;
pub mod service;
mod service_labels;
mod service_secret;
mod silence;
pub mod snapshot;
pub mod specification;
pub mod splits;
pub mod tcp_access;
pub mod telemetries;
pub mod text;
mod token_id;
pub mod traffic;
mod unknown_fields;
pub mod upstream_settings;
pub mod upstreams;

pub use allowed_traffic::{AllowedTraffic, AllowingRule, ApplicableRules};
pub use application_health::{
    ApplicationHealth, ApplicationState, HealthSource, PortHealth, ProbedApplication,
    ReportedApplications,
};
pub use certificate::{
    CertificateHistory, CertificateStore, RenewedCertificate, RevocationLists, Secret,
    ServiceCertificate, SharedCertificate, StoreError, TrustBundle,
};
pub use cited::Cited;
pub use driver_name::DriverName;
pub use egress_rules::{EgressRuleByAddress, EgressRules, EgressRulesByHost};
pub use endpoint::{
    Application, Discovered, Endpoint, EndpointAcceptance, EndpointPlace, Exclusion, Health,
    KeptEndpoints, MeshEndpoint, Provider, Transport,
};
pub use endpoint_source::{
    AddressFamily, AzureMachines, AzureQuery, ConsulQuery, EndpointSource, JoinRank, Providers,
    StaticEndpoint,
};
pub use finding::{Code, Finding, InvalidCode, Severity, Spot};
pub use grants::{Grant, Grants};
pub use health_check::{HealthCheck, Probe, StatusRange};
pub use identity::{ControlPlaneId, ProxySpiffeId, SpiffeId, TrustDomain};
pub use ingress::{IngressRule, IngressRules};
pub use ip_range::{InvalidIpRange, IpRange};
pub use join_token::{JoinToken, TokenMisuse, TokenState, TokenUse};
pub use journal::{Actor, JournalEntry, JournalKind, JournalOutcome, JournalQuery, JournalSubject};
pub use labels::Labels;
pub use locality::Locality;
pub use log_directives::{InvalidLogDirectives, LogDirectives};
pub use login::{Login, LoginState, LoginUser};
pub use name::{Domain, Hostname, InvalidName, Name, ServiceAccount, ServiceName, ServicePort};
pub use object_ref::{InvalidObject, ObjectRef};
pub use operator::{
    CredentialState, OperatorCredential, OperatorName, OperatorRecord, OperatorRole,
};
pub use policy::telemetry::{
    AccessLog, Collector, LogFilter, LogFormat, LogSink, LogValue, Sampling, Telemetry, Tracing,
};
pub use policy::{
    Abort, AbortWith, BoundIdentity, CallSettings, Delay, Descriptor, DescriptorEntry,
    Distribution, Egress, EgressMode, EgressPort, EgressProtocol, Failover, Fault, GlobalHttpLimit,
    GlobalTcpLimit, HeaderChanges, HeaderCondition, HeaderPattern, HttpConnections, HttpMatch,
    HttpRoute, HttpRouteGroup, IdentityBinding, IngressBackend, IngressEntry, IngressPort,
    IngressSource, Level, LimitedRoute, LocalHttpLimit, LocalitySetting, Method, Mirror, Namespace,
    Nearness, OutlierDetection, PathChange, PathRegex, Percent, PlaceRank, Rate, RateLimitService,
    RateUnit, Reach, Redirect, Retries, Retry, RetryDestination, RetryLimit, Rewrite, RouteRule,
    SplitBackend, SplitMatch, Subject, TcpConnections, TcpRoute, TrafficSplit, TrafficTarget,
    UpstreamTrafficSetting,
};
pub use policy_object::PolicyObject;
pub use policy_record::{PolicyPin, PolicyRecord};
pub use policy_upstream::{PolicyUpstream, PortReference};
pub use port_range::PortRange;
pub use proxy::{
    AzureBinding, CertificateRecognition, CertificateSource, CertificateState, Cordon, CordonMode,
    Drain, HostUpstream, IssuedCertificate, IssuedWorkloadCertificate, JoinRecord, KeyHash,
    LogFolder, MachineDrain, MachineDrainState, NodeMetadata, OutsideAuthority, OutsideHost,
    Participation, PresentedCertificate, Proxy, ProxyCredentials, ProxyId, ProxyKind,
    ProxyVersions, Revocation, RevocationCause, TooManyCertificates, Upstream,
    WorkloadCertificates,
};
pub use proxy_name::ProxyName;
pub use removals::Removals;
pub use service::{
    EscapedSlashes, External, Mode, OpenCallers, Port, Protocol, Resolution, Service, Visibility,
};
pub use service_secret::{InvalidServiceSecret, ServiceSecret};
pub use silence::{
    ActiveSilences, InvalidSilenceId, Silence, SilenceId, SilenceRemoval, SilenceState,
};
pub use snapshot::{
    EndpointState, EndpointStatus, ExclusionReason, Inputs, LeavingProxies, Mesh, Records,
    RevokedCallers, Snapshot, have_same_members,
};
pub use specification::{MeshSpecification, PolicyRevision};
pub use tcp_access::{Callers, TcpAccess, TcpAccesses};
pub use token_id::{InvalidTokenId, TokenId};
pub use traffic::{LatencyHistogram, LatencyQuantiles, TrafficCounts};
pub use unknown_fields::{UnknownFields, UnknownFieldsTooLarge};
pub use upstream_settings::{EffectiveSetting, UpstreamSettings};
pub use upstreams::{DeclaredUpstreams, ProxyUpstream, ProxyUpstreams, UpstreamSource};
