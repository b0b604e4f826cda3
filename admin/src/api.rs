//! What goes over the wire, as JSON.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::{
    Application, Finding, Labels, Locality, PolicyPin, PolicyRecord, PolicyRevision, ProxyId,
    Removals, ServiceAccount, ServiceName, Spot, Upstream,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::endpoints::ReportedHealth;
use crate::join_record::{JoinRecordView, RevocationView};
use crate::removals::HeldRemoval;

/// Whether the control plane serves, and what it serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether xDS is served.
    pub ready: bool,
    /// What is waited for, where it is not.
    pub waiting_for: Vec<String>,
    /// The policy in force.
    pub policy: PolicyView,
    /// What is wrong with the mesh as a whole, such as endpoints without a proxy.
    pub findings: Vec<FindingView>,
    /// The TLS handshakes with clients of xDS that failed.
    #[serde(default)]
    pub handshakes: HandshakesView,
}

/// The TLS handshakes that failed since the control plane started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakesView {
    /// How many.
    pub rejected: u64,
    /// The last of them.
    pub last: Option<RejectedHandshake>,
    /// The last of each address in the last five minutes, newest first; at most 20.
    #[serde(default)]
    pub recent: Vec<RejectedAddress>,
}

/// The failed TLS handshakes of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedAddress {
    /// The address of the client.
    pub address: IpAddr,
    /// How many failed.
    pub count: u64,
    /// Why the last of them failed.
    pub reason: String,
    /// When that was.
    pub at: Timestamp,
}

/// A TLS handshake that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedHandshake {
    /// The address of the client.
    pub address: SocketAddr,
    /// Why it failed.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// The policy in force, and what is wrong with the newest one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PolicyView {
    /// Where it is loaded from.
    pub source: String,
    /// Whether that is the path of a policy folder.
    #[serde(default)]
    pub is_folder: bool,
    /// The revision in force; none before the first.
    pub revision: Option<String>,
    /// What is known of that revision besides: since when it is in force or when it was pushed, by whom and
    /// why, and the git commit that it is.
    #[serde(default)]
    pub in_force: Option<PolicyRecord>,
    /// Since when the source has held something else than what is in force, or could not be read.
    pub stale_since: Option<Timestamp>,
    /// Why the source could not be read when that was last tried.
    #[serde(default)]
    pub unreadable: Option<String>,
    /// What was rolled back to, where that is in force in place of what the policy folder holds.
    #[serde(default)]
    pub rolled_back: Option<PolicyPin>,
    /// A change of the policy folder that removes many objects and is not yet active.
    #[serde(default)]
    pub held: Option<HeldRemoval>,
    /// What is wrong with what the source holds now.
    pub findings: Vec<FindingView>,
    /// The same, drawn for people: messages, places and advice, without lines of policy.
    pub drawn: String,
    /// The same with the lines of policy that are meant. Only the admin socket has them: every user of the machine
    /// reads the TCP listener, and not every user may read policy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub annotated: String,
}

/// The policies that can be rolled back to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevisionList {
    /// The policies, the newest first.
    pub revisions: Vec<RevisionView>,
    /// What was rolled back to, where that is in force in place of what the policy folder holds.
    pub rolled_back: Option<PolicyPin>,
}

/// A policy that is kept, and can be rolled back to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevisionView {
    /// Which it is.
    #[serde(flatten)]
    pub record: PolicyRecord,
    /// Whether it is the one in force, or, in etcd, the one that is to be.
    pub current: bool,
}

/// Asks for a policy of before to be in force again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RollbackRequest {
    /// Its revision, or the beginning of it where no other that is kept begins so.
    pub revision: String,
    /// Who asks.
    pub by: Option<String>,
    /// Why.
    pub message: Option<String>,
}

/// A policy of before that is in force again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RolledBack {
    /// Which it is; since when, by whom and why.
    pub policy: PolicyRecord,
    /// Whether it was in force before.
    pub is_old: bool,
    /// What is wrong with it, and does not hinder.
    pub findings: Vec<FindingView>,
    /// Whether it is what the policy folder holds.
    pub is_folder: bool,
    /// What the policy folder holds in place of it, where that is known.
    pub folder: Option<PolicyRevision>,
    /// The objects that it lacks of the policy that was active before.
    #[serde(default)]
    pub removals: Removals,
}

/// A finding on the wire. Its form is told in docs/reference/findings.md.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingView {
    /// Its code, such as `IM0101`.
    pub code: String,
    /// `error` or `warning`.
    pub severity: String,
    /// What is wrong.
    pub message: String,
    /// Where; all of it is null where it is about no place in a file.
    #[serde(flatten)]
    pub place: PlaceView,
    /// What the place is, in a word or two; empty where that goes without saying.
    pub label: String,
    /// Other places that belong to it.
    pub related: Vec<RelatedView>,
    /// What to do.
    pub help: Option<String>,
}

/// A place in a file, on the wire. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceView {
    /// In which file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The column.
    pub column: Option<u32>,
    /// The line of the first character behind it.
    pub end_line: Option<u32>,
    /// The column of that character.
    pub end_column: Option<u32>,
}

/// Another place that belongs to a finding, on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelatedView {
    /// Where.
    #[serde(flatten)]
    pub place: PlaceView,
    /// What it is.
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

/// A proxy as it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyView {
    /// What it joined as, and how far it has come.
    #[serde(flatten)]
    pub record: JoinRecordView,
    /// `connected`, or why it is not: `away`, `unclaimed` (it never came), `forfeit` (it never came, and may
    /// no more), `expired` or `revoked`; `reconnecting` in the first minute after a start of the control plane.
    pub state: String,
    /// When its last xDS stream was lost, where it is away.
    #[serde(default)]
    pub away_since: Option<Timestamp>,
    /// Whether callers dial it on any of its service ports.
    #[serde(default)]
    pub called: bool,
    /// How many xDS streams it has open.
    pub streams: usize,
    /// The addresses from which its streams come.
    pub stream_addresses: Vec<SocketAddr>,
    /// What it refuses.
    pub nacks: Vec<NackView>,
    /// What it was not asked to take, because nobody who was has taken it.
    pub withheld: Vec<NackView>,
    /// What is wrong with what it asks for.
    pub findings: Vec<FindingView>,
}

/// A resource that a proxy refuses, or that is withheld from one because others refuse it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NackView {
    /// The type of the resource.
    pub resource_type: String,
    /// Its name.
    pub name: String,
    /// The refused version.
    pub version: String,
    /// Why, in the words of the proxy that refuses it.
    pub message: String,
    /// What is in force instead: `last_good`, what the proxy had before, if anything; where the
    /// resource says who may call, `narrowed` to what was allowed before as well, or `closed`.
    pub instead: String,
    /// The policy behind it, the likeliest first.
    pub policy: Vec<OriginView>,
}

/// An object of policy, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginView {
    /// What it is, with its name.
    pub object: String,
    /// The file, relative to the policy folder.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// All that is known of one proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyDetail {
    /// The same as in the list.
    #[serde(flatten)]
    pub proxy: ProxyView,
    /// Its SPIFFE ID, by which the control plane knows it.
    pub identity: String,
    /// As whom its calls go out; none where policy does not define its first service.
    pub account: Option<ServiceAccount>,
    /// What it said of itself when it last connected; none where it has not since the control plane began.
    pub node: Option<NodeView>,
    /// The service ports that it may serve, and whether it is called there.
    pub endpoints: Vec<EndpointView>,
    /// How many of the resources that it is to have stand how: `taken`, `refused`, `behind` and so on.
    pub resources: BTreeMap<String, usize>,
}

/// What a proxy says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeView {
    /// Its node id.
    pub id: String,
    /// Its version, where it is an Envoy that says so.
    pub envoy_version: Option<String>,
    /// What it says to Ironmesh: where it is bound, its upstreams.
    pub statement: Option<serde_json::Value>,
}

/// A service port of a proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndpointView {
    /// The service.
    pub service: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// Where callers dial it; none as long as the proxy has not taken the port, or if it may not.
    pub dialled_at: Option<SocketAddr>,
    /// The applications behind it.
    pub applications: Vec<ApplicationView>,
}

/// An application behind a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationView {
    /// Where it listens.
    pub port: u16,
    /// Its share of what comes to the proxy, relative to the others.
    pub weight: u32,
    /// What is known of its health.
    pub health: ReportedHealth,
}

impl From<&Application> for ApplicationView {
    fn from(Application { port, weight, health, probed }: &Application) -> Self {
        let health = ReportedHealth::of(*health, *probed);
        Self { port: *port, weight: *weight, health }
    }
}

/// All that a proxy is to have. Private keys are `[redacted]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyConfig {
    /// The proxy.
    pub id: ProxyId,
    /// How many xDS streams it has open: without any it is to have nothing, until it comes back.
    pub streams: usize,
    /// The resources, by type and then by name.
    pub resources: Vec<ResourceView>,
}

/// A resource that a proxy is to have, or has and is to have no more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResourceView {
    /// Its type.
    pub resource_type: String,
    /// Its name.
    pub name: String,
    /// `taken`; `refused`; `behind`, where the proxy has another version; `not_taken`; or `leaving`, where it
    /// is to have it no more.
    pub state: String,
    /// The version that it is to have.
    pub version: Option<String>,
    /// The version that it has taken last.
    pub taken: Option<String>,
    /// What it refuses: this version, or another one in place of which this is given.
    pub refused: Option<RefusedView>,
    /// What is in it.
    pub content: Option<serde_json::Value>,
}

/// A version that a proxy refuses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RefusedView {
    /// The version.
    pub version: String,
    /// Why, in the proxy's words.
    pub message: String,
}

/// What strict would deny of the calls of services in audit. Kept in memory alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditView {
    /// Since when it is collected: the start of the control plane.
    pub since: Timestamp,
    /// Who would be denied what, by the service that is called.
    pub denied: Vec<DeniedView>,
    /// The calls of others besides since policy changed last, for whom there was no room.
    pub others: Vec<OthersView>,
}

/// Calls of a service port that strict would deny, of callers for whom there was no room.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OthersView {
    /// The service.
    pub service: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// How many.
    pub count: u64,
    /// When the last was told of. What is not seen for a day is forgotten.
    pub last_seen: Timestamp,
}

/// A caller of a service port, whose calls strict would deny.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeniedView {
    /// The caller.
    pub caller: ServiceAccount,
    /// The service.
    pub service: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// How many requests; of a TCP port how many connections.
    pub count: u64,
    /// When the first was told of.
    pub first_seen: Timestamp,
    /// When the last was told of. What is not seen for a day is forgotten.
    pub last_seen: Timestamp,
    /// What was asked, as far as there is room; none of a TCP port.
    pub requests: Vec<DeniedRequest>,
}

/// Requests of one method, with paths that begin alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeniedRequest {
    /// The method; `OTHER` where it is not one of HTTP's own.
    pub method: String,
    /// How the paths begin: two segments at most.
    pub path: String,
    /// The last path, without its query, cut to 256 bytes.
    pub example: String,
    /// How many.
    pub count: u64,
    /// When the first was told of.
    pub first_seen: Timestamp,
    /// When the last was told of.
    pub last_seen: Timestamp,
}

/// Asks for a proxy to be shut out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevokeRequest {
    /// Why, for those who come across it later; at most [`MAX_REASON`] bytes, in one line.
    pub reason: Option<String>,
}

/// The longest reason of a revocation, in bytes.
pub const MAX_REASON: usize = 500;

/// A proxy that is shut out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Revoked {
    /// The proxy.
    pub id: ProxyId,
    /// Since when, and why: what was said first.
    pub revocation: RevocationView,
    /// Whether it was shut out before.
    pub is_old: bool,
}

/// The most proxies that one request may let in.
pub const MAX_NEWCOMERS: usize = 500;

/// By how many addresses providers may know one machine.
pub const MAX_KNOWN_AS: usize = 16;

/// Asks for proxies to be let in: all of them, or none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BootstrapRequest {
    /// The services that each may serve, at least one.
    pub services: Vec<ServiceName>,
    /// What is said of each.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Where they are.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
    /// By which addresses providers know its machine besides the one at which it is dialled; at most
    /// [`MAX_KNOWN_AS`], and none for several proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_as: Vec<IpAddr>,
    /// By which key providers know its machine, where they have one (in Azure, the `vmId`); none for several
    /// proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// The services that their applications call by local ports, to be checked.
    pub upstreams: Vec<Upstream>,
    /// Whether the authority is known to be new. Otherwise nothing is issued while all clients reject it.
    #[serde(default)]
    pub new_authority: bool,
    /// The proxies, at least one and at most [`MAX_NEWCOMERS`].
    pub proxies: Vec<Newcomer>,
}

/// A proxy that is to be let in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Newcomer {
    /// Where others dial it.
    pub address: IpAddr,
    /// The request for its certificate, in PEM. The key stays where it was made.
    pub certificate_request: String,
}

/// A proxy that was let in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Joined {
    /// The proxy.
    pub id: ProxyId,
    /// Its certificate and what signed it, in PEM.
    pub certificate: String,
    /// When the certificate ends.
    pub expires_at: Timestamp,
}

/// What proxies need to connect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BootstrapResponse {
    /// The proxies, in the order of the request.
    pub proxies: Vec<Joined>,
    /// The roots of the mesh, in PEM.
    pub roots: String,
    /// Where the control plane is reached: host and port.
    pub control_plane: Vec<(String, u16)>,
    /// The SPIFFE ID that the control plane shows.
    pub control_plane_id: String,
    /// What the caller should know.
    pub notes: Vec<String>,
}

/// An error on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: String,
}
