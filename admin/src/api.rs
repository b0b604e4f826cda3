//! The JSON types of the admin API.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::{
    Application, Finding, Labels, Locality, PolicyPin, PolicyRecord, PolicyRevision, ProxyId,
    ProxyName, Removals, ServiceAccount, ServiceName, Spot, Upstream,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::endpoints::ReportedHealth;
use crate::join_record::{JoinRecordView, RevocationView};
use crate::proxies::{ExchangeView, SyncView};
use crate::removals::HeldRemoval;

/// The answer of `/readyz`: whether the control plane is ready, and the state of policy and mesh.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether xDS is served.
    pub ready: bool,
    /// What delays readiness, one entry each.
    pub waiting_for: Vec<String>,
    /// The state of policy.
    pub policy: PolicyView,
    /// The findings about the mesh as a whole, such as endpoints without a proxy.
    pub findings: Vec<FindingView>,
    /// The failed TLS handshakes with xDS clients.
    #[serde(default)]
    pub handshakes: HandshakesView,
}

/// The TLS handshakes that failed since the control plane started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakesView {
    /// How many handshakes failed.
    pub rejected: u64,
    /// The last failed handshake.
    pub last: Option<RejectedHandshake>,
    /// The last failed handshake of each address in the last five minutes, newest first; at most 20.
    #[serde(default)]
    pub recent: Vec<RejectedAddress>,
}

/// The failed TLS handshakes of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedAddress {
    /// The address of the client.
    pub address: IpAddr,
    /// How many handshakes failed.
    pub count: u64,
    /// Why the last one failed.
    pub reason: String,
    /// When the last one failed.
    pub at: Timestamp,
}

/// A failed TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedHandshake {
    /// The address of the client.
    pub address: SocketAddr,
    /// Why it failed.
    pub reason: String,
    /// When it failed.
    pub at: Timestamp,
}

/// The state of policy: the active revision, and the findings about the newest one in the source.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PolicyView {
    /// The name of the source.
    pub source: String,
    /// Whether the source is a policy folder, and its name the path.
    #[serde(default)]
    pub is_folder: bool,
    /// Whether the source is the releases in the state folder.
    #[serde(default)]
    pub is_releases: bool,
    /// The active revision; none before the first.
    pub revision: Option<String>,
    /// The facts about that revision: since when it is active or when it was pushed, by whom and
    /// why, and its git commit.
    #[serde(rename = "active", default)]
    pub active_record: Option<PolicyRecord>,
    /// Since when the source has held a policy that is not active, or could not be read.
    pub stale_since: Option<Timestamp>,
    /// Why the last reading of the source failed.
    #[serde(default)]
    pub unreadable: Option<String>,
    /// The revision to which policy is rolled back, if it is active in place of the policy folder.
    #[serde(default)]
    pub rolled_back: Option<PolicyPin>,
    /// A change of the policy folder that removes many objects and is not yet active.
    #[serde(default)]
    pub held: Option<HeldRemoval>,
    /// The findings about the policy that the source holds now.
    pub findings: Vec<FindingView>,
    /// The findings rendered as text: messages, locations and help, without lines of policy.
    pub rendered: String,
    /// The findings rendered with the lines of policy. Only the admin socket has them: every user of the machine reads
    /// the TCP listener, and not every user may read policy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub annotated: String,
}

/// The stored policy revisions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevisionList {
    /// The revisions, newest first.
    pub revisions: Vec<RevisionView>,
    /// The revision to which policy is rolled back, if it is active in place of the policy folder.
    pub rolled_back: Option<PolicyPin>,
}

/// A stored policy revision, to which policy may be rolled back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevisionView {
    /// The revision and its facts.
    #[serde(flatten)]
    pub record: PolicyRecord,
    /// Whether it is the active one, or, in etcd, the one pushed last.
    pub current: bool,
}

/// The request to make an earlier policy revision active again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RollbackRequest {
    /// The revision, or a prefix of it that no other stored revision has.
    pub revision: String,
    /// The revision that must be active, or a prefix of it; none for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
    /// The user who rolls back.
    pub by: Option<String>,
    /// The reason.
    pub message: Option<String>,
}

/// The result of a rollback.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RolledBack {
    /// The revision, and since when, by whom and why it is active.
    pub policy: PolicyRecord,
    /// Whether it was active before.
    pub is_old: bool,
    /// The warnings about it.
    pub findings: Vec<FindingView>,
    /// Whether the policy folder holds the same revision.
    pub is_folder: bool,
    /// The revision that the policy folder holds in place of it, if it is known.
    pub folder: Option<PolicyRevision>,
    /// The objects that it lacks of the policy that was active before.
    #[serde(default)]
    pub removals: Removals,
}

/// A finding in the API, as docs/reference/findings.md describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingView {
    /// The code, such as `IM0101`.
    pub code: String,
    /// The severity: `error` or `warning`.
    pub severity: String,
    /// What is wrong.
    pub message: String,
    /// The location in a file; all its fields are null without one.
    #[serde(flatten)]
    pub place: PlaceView,
    /// A label for the location, in a word or two; empty where none is needed.
    pub label: String,
    /// Other locations that belong to the finding.
    pub related: Vec<RelatedView>,
    /// What to do.
    pub help: Option<String>,
}

/// A location in a file, in the API. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceView {
    /// The file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The column.
    pub column: Option<u32>,
    /// The line of the first character after it.
    pub end_line: Option<u32>,
    /// The column of the first character after it.
    pub end_column: Option<u32>,
}

/// A related location of a finding, in the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedView {
    /// The location.
    #[serde(flatten)]
    pub place: PlaceView,
    /// The label for it.
    pub label: String,
}

impl From<&Finding> for FindingView {
    fn from(finding: &Finding) -> Self {
        let related = finding.related.iter();
        Self {
            code: finding.code.to_string(),
            severity: finding.severity.to_string(),
            message: finding.message.clone(),
            place: finding.spot.as_ref().map(PlaceView::from).unwrap_or_default(),
            label: finding.label.clone(),
            related: related
                .map(|(spot, label)| RelatedView { place: spot.into(), label: label.clone() })
                .collect(),
            help: finding.help.clone(),
        }
    }
}

impl From<&Spot> for PlaceView {
    fn from(spot: &Spot) -> Self {
        Self {
            file: Some(spot.file.to_string()),
            line: Some(spot.line),
            column: Some(spot.column),
            end_line: Some(spot.end_line),
            end_column: Some(spot.end_column),
        }
    }
}

/// A proxy in the list of proxies.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyView {
    /// The join record.
    #[serde(flatten)]
    pub record: JoinRecordView,
    /// `connected`, or why it is not: `disconnected`, `unclaimed` (it never connected), `enrollment_expired`,
    /// `expired` or `revoked`; `reconnecting` in the first minute after a start of the control plane.
    pub state: String,
    /// When its last xDS stream was lost, if it is disconnected.
    #[serde(default)]
    pub disconnected_since: Option<Timestamp>,
    /// The version of its Envoy, if it has reported one since the control plane started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy_version: Option<String>,
    /// Since when it has been connected, by its newest xDS stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<Timestamp>,
    /// How far it has ACKed its resources; absent if it is neither connected nor expected to reconnect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncView>,
    /// Whether callers connect to it on any of its service ports.
    #[serde(default)]
    pub called: bool,
    /// The count of its open xDS streams.
    pub streams: usize,
    /// The client addresses of its streams.
    pub stream_addresses: Vec<SocketAddr>,
    /// The resources that it NACKs.
    pub nacks: Vec<NackView>,
    /// The resources that are withheld from it because every recipient NACKs them.
    pub withheld: Vec<NackView>,
    /// The findings about what it requests.
    pub findings: Vec<FindingView>,
}

/// A resource that a proxy NACKs, or that is withheld from it because others NACK it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NackView {
    /// The type of the resource.
    pub resource_type: String,
    /// The name of the resource.
    pub name: String,
    /// The NACKed version.
    pub version: String,
    /// The message of the NACK.
    pub message: String,
    /// The active fallback: `last_good`, the version before, if any; for a resource with authorization, `narrowed` to
    /// what was also allowed before, or `closed`.
    pub fallback: String,
    /// The policy objects from which it was compiled, the likeliest first.
    pub policy: Vec<OriginView>,
}

/// A policy object and its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginView {
    /// The kind and name of the object.
    pub object: String,
    /// The file, relative to the policy folder.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// A proxy with all its details.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// What was pushed to it, ACKed and NACKed, by resource type.
    #[serde(default)]
    pub exchanges: Vec<ExchangeView>,
    /// How many of its resources have which sync status, such as `acked`, `nacked` or `stale`.
    pub resources: BTreeMap<String, usize>,
}

/// The node that a proxy reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeView {
    /// The node id.
    pub id: String,
    /// The version of Envoy, if it reports one.
    pub envoy_version: Option<String>,
    /// The node metadata under `ironmesh`: bind address, upstreams and so on.
    #[serde(rename = "statement")]
    pub metadata: Option<serde_json::Value>,
}

/// A service port of a proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndpointView {
    /// The service.
    pub service: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// The address to which callers connect; none until the proxy has ACKed the port, or if it may not serve it.
    pub dialled_at: Option<SocketAddr>,
    /// The applications that the proxy serves on it.
    pub applications: Vec<ApplicationView>,
}

/// An application of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyConfig {
    /// The proxy.
    pub id: ProxyId,
    /// The count of its open xDS streams: without one it should have nothing until it reconnects.
    pub streams: usize,
    /// The resources, by type and then by name.
    pub resources: Vec<ResourceView>,
}

/// A resource that a proxy should have, or has and should drop.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NackedVersion {
    /// The version.
    pub version: String,
    /// The message of the NACK.
    pub message: String,
}

/// The calls that strict mode would deny, of services in audit mode. They are kept in memory only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditView {
    /// When the recording started: the start of the control plane.
    pub since: Timestamp,
    /// The denied callers, ordered by service port.
    pub denied: Vec<DeniedView>,
    /// Denied calls beyond the bound of recorded callers, since the last change of policy.
    pub others: Vec<OthersView>,
}

/// Denied calls of a service port by callers beyond the bound.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OthersView {
    /// The service.
    pub service: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// How many calls.
    pub count: u64,
    /// When the last was reported. Entries are forgotten after a day.
    pub last_seen: Timestamp,
}

/// The calls of one caller to one service port that strict mode would deny.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeniedView {
    /// The caller.
    pub caller: ServiceAccount,
    /// The service.
    pub service: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// How many requests; for a TCP port, how many connections.
    pub count: u64,
    /// When the first was reported.
    pub first_seen: Timestamp,
    /// When the last was reported. Entries are forgotten after a day.
    pub last_seen: Timestamp,
    /// The kinds of requests, within a bound; none for a TCP port.
    pub requests: Vec<DeniedRequest>,
}

/// Requests of one method, with paths that begin alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeniedRequest {
    /// The method; `OTHER` where it is not one of HTTP's own.
    pub method: String,
    /// The common beginning of their paths: at most two segments.
    pub path: String,
    /// The last path, without its query, cut to 256 bytes.
    pub example: String,
    /// How many requests.
    pub count: u64,
    /// When the first was reported.
    pub first_seen: Timestamp,
    /// When the last was reported.
    pub last_seen: Timestamp,
}

/// The request to revoke a proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevokeRequest {
    /// The reason, shown wherever the revocation is: one line of at most [`MAX_REASON`] bytes.
    pub reason: Option<String>,
}

/// The longest reason of a revocation, in bytes.
pub const MAX_REASON: usize = 500;

/// The result of a revocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Revoked {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// The time and reason of the first revocation.
    pub revocation: RevocationView,
    /// Whether it was revoked before.
    pub is_old: bool,
}

/// The most proxies that one request may enroll.
pub const MAX_ENROLLMENTS: usize = 500;

/// The most addresses by which providers may know one machine.
pub const MAX_KNOWN_AS: usize = 16;

/// The request to enroll proxies: all of them, or none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BootstrapRequest {
    /// The services that each proxy serves, at least one.
    pub services: Vec<ServiceName>,
    /// The labels of each proxy.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The locality of each proxy.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
    /// Further addresses by which providers know the machine, besides the one to which callers connect: at most
    /// [`MAX_KNOWN_AS`], and none for several proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_as: Vec<IpAddr>,
    /// The key by which providers know the machine, if they have one (in Azure, the `vmId`); none for several proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// The services that their applications call by local ports, to be checked.
    pub upstreams: Vec<Upstream>,
    /// The name of the proxy; none for several proxies, and for a default name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ProxyName>,
    /// Whether the authority is known to be new. Otherwise no proxy is enrolled while all clients reject it.
    #[serde(default)]
    pub new_authority: bool,
    /// The proxies to enroll, at least one and at most [`MAX_ENROLLMENTS`].
    pub proxies: Vec<EnrollmentRequest>,
}

/// One proxy to enroll.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnrollmentRequest {
    /// The address to which callers connect.
    pub address: IpAddr,
    /// The certificate signing request, in PEM. The private key stays with the client.
    pub certificate_request: String,
}

/// A newly enrolled proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnrolledProxy {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// The certificate and its issuers, in PEM.
    pub certificate: String,
    /// When the certificate expires.
    pub expires_at: Timestamp,
}

/// The result of an enrollment: everything that the proxies need to connect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BootstrapResponse {
    /// The proxies, in the order of the request.
    pub proxies: Vec<EnrolledProxy>,
    /// The root certificates of the mesh, in PEM.
    pub roots: String,
    /// The addresses of the control plane, as host and port.
    pub control_plane: Vec<(String, u16)>,
    /// The SPIFFE ID of the control plane.
    pub control_plane_id: String,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The body of an error response.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: String,
}
