//! The JSON types of one proxy: its details, and the resources that it should have.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use ironmesh_catalog::network_address;
use ironmesh_catalog::{
    Application, ProxyId, ProxyUpstream, ServiceAccount, ServiceName, Upstream,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::endpoints::ReportedHealth;
use crate::proxies::ProxyView;
use crate::revocation::ReachView;

/// A proxy with all its details.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProxyDetail {
    /// The fields of the list.
    #[serde(flatten)]
    pub proxy: ProxyView,
    /// Its SPIFFE ID towards the control plane.
    pub identity: String,
    /// The service account as which it calls; none if policy does not define its first service.
    pub account: Option<ServiceAccount>,
    /// The node that it reported last; none if it has not connected since the control plane started.
    pub node: Option<NodeView>,
    /// The service ports that it may serve.
    pub endpoints: Vec<EndpointView>,
    /// Its upstreams: the local ports that policy or its bootstrap declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<UpstreamView>,
    /// What was pushed to it, ACKed and NACKed, by resource type.
    #[serde(default)]
    pub exchanges: Vec<ExchangeView>,
    /// How many of its resources have which sync status, such as `acked`, `nacked` or `stale`.
    pub resources: BTreeMap<String, usize>,
    /// The service ports that the certificates of a revoked proxy let it call, at peers that have not received the
    /// revocation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<ReachView>,
}

/// An upstream of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpstreamView {
    /// The port on which the proxy listens for its applications.
    pub local_port: u16,
    /// The service that it leads to.
    pub service: ServiceName,
    /// The port of the service; none if a flag names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The place that declares it: `flag`, or the service in policy with its location.
    pub source: String,
}

impl From<&ProxyUpstream> for UpstreamView {
    fn from(ProxyUpstream { upstream, source }: &ProxyUpstream) -> Self {
        let Upstream { service, port, local_port } = upstream;
        Self {
            local_port: *local_port,
            service: service.clone(),
            port: *port,
            source: source.to_string(),
        }
    }
}

impl fmt::Display for UpstreamView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local_port, service, port, source } = self;
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        write!(f, "{local_port} leads to {service}{port}, by {source}")
    }
}

/// The node that a proxy reports.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// The node id.
    pub id: String,
    /// The version of Envoy, if it reports one.
    pub envoy_version: Option<String>,
    /// The node metadata under `ironmesh`: bind address, upstreams and so on.
    #[serde(rename = "statement")]
    pub metadata: Option<serde_json::Value>,
}

impl NodeView {
    /// What its bootstrap cannot do, if it is older than this version.
    pub fn bootstrap_limits(&self) -> Option<&'static str> {
        let of = |field| self.metadata.as_ref().and_then(|one| one.get(field));
        let version = of("bootstrap_version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let has_agent = of("certificates").is_some_and(|source| source == "agent");
        match version {
            0 => Some(
                "older than this version: a TCP withdrawal ends all callers' connections, and a revocation ends none. \
                 Restart ironmesh-envoy; without the agent, enroll the proxy again",
            ),
            1 if !has_agent => Some(
                "older than this version: Envoy does not probe its applications, so their health is unknown. \
                 Enroll the proxy again",
            ),
            _ => None,
        }
    }
}

/// A service port of a proxy.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EndpointView {
    /// The service.
    pub service: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// The address to which callers connect; none until the proxy has ACKed the port, or if it may not serve it.
    #[schema(value_type = Option<network_address::SocketAddress>)]
    pub dialled_at: Option<SocketAddr>,
    /// The applications that the proxy serves on it.
    pub applications: Vec<ApplicationView>,
}

/// An application of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApplicationView {
    /// The port on which it listens.
    pub port: u16,
    /// Its weight among the applications of the proxy.
    pub weight: u32,
    /// Its health.
    pub health: ReportedHealth,
}

impl From<&Application> for ApplicationView {
    fn from(Application { port, weight, health, probed }: &Application) -> Self {
        let health = ReportedHealth::of(*health, *probed);
        Self { port: *port, weight: *weight, health }
    }
}

/// All resources that a proxy should have. Private keys are `[redacted]`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProxyConfig {
    /// The proxy.
    pub id: ProxyId,
    /// The count of its open xDS streams: without one it should have nothing until it reconnects.
    pub streams: usize,
    /// The resources, by type and then by name.
    pub resources: Vec<ResourceView>,
}

/// A resource that a proxy should have, or has and should drop.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ResourceView {
    /// The type of the resource.
    pub resource_type: String,
    /// The name of the resource.
    pub name: String,
    /// The sync status: `acked`, `nacked`, `stale` (the proxy has a different version), `not_sent` (the proxy has no
    /// version), or `removing` (the proxy should drop it).
    pub state: String,
    /// The version that the proxy should have.
    pub version: Option<String>,
    /// The version that the proxy ACKed last.
    pub acked: Option<String>,
    /// The version that the proxy NACKs: the wanted one, or one that a fallback replaces.
    pub nacked: Option<NackedVersion>,
    /// The content of the resource.
    pub content: Option<serde_json::Value>,
}

/// A version that a proxy NACKs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NackedVersion {
    /// The version.
    pub version: String,
    /// The message of the NACK.
    pub message: String,
}

/// The exchange of one resource type with a proxy since the control plane started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExchangeView {
    /// The type of the resources.
    pub resource_type: String,
    /// The count of pushes.
    pub pushes: u64,
    /// Their size in bytes, without compression.
    pub bytes: u64,
    /// When the last one was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_push: Option<Timestamp>,
    /// The count of ACKs.
    pub acks: u64,
    /// When the last one arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ack: Option<Timestamp>,
    /// The count of NACKs.
    pub nacks: u64,
    /// When the last one arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_nack: Option<Timestamp>,
}
