//! The JSON types of the control plane's state: readiness, policy and its revisions, and findings.

use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::network_address;
use ironmesh_catalog::{
    Finding, ObjectRef, PolicyPin, PolicyRecord, PolicyRevision, Removals, Spot,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::removals::HeldRemoval;
use crate::silences::SilencedView;

/// The answer of `/readyz`: whether the control plane is ready, and the state of policy and mesh.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
    /// The other control planes of the mesh, by host name.
    #[serde(default)]
    pub peers: Vec<PeerControlPlane>,
}

/// Another control plane of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerControlPlane {
    /// Its host name.
    pub host: String,
    /// Its version.
    pub version: String,
}

/// The TLS handshakes that failed since the control plane started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RejectedAddress {
    /// The address of the client.
    #[schema(value_type = network_address::IpAddress)]
    pub address: IpAddr,
    /// How many handshakes failed.
    pub count: u64,
    /// Why the last one failed.
    pub reason: String,
    /// When the last one failed.
    pub at: Timestamp,
}

impl RejectedAddress {
    /// Whether it failed more than once: a single failure may be an accident.
    pub fn is_repeated(&self) -> bool {
        self.count > 1
    }
}

/// A failed TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RejectedHandshake {
    /// The address of the client.
    #[schema(value_type = network_address::SocketAddress)]
    pub address: SocketAddr,
    /// Why it failed.
    pub reason: String,
    /// When it failed.
    pub at: Timestamp,
}

/// The state of policy: the active revision, and the findings about the newest one in the source.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
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
    /// The findings rendered with the lines of policy. Only those who may read policy have them: every user of the machine
    /// reads the admin port, and not every user may read policy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub annotated: String,
}

impl PolicyView {
    /// Whether the policy that the source holds now is rejected.
    pub fn is_rejected(&self) -> bool {
        self.findings.iter().any(FindingView::is_error)
    }
}

/// The stored policy revisions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RevisionList {
    /// The revisions, newest first.
    pub revisions: Vec<RevisionView>,
    /// The revision to which policy is rolled back, if it is active in place of the policy folder.
    pub rolled_back: Option<PolicyPin>,
}

/// A stored policy revision, to which policy may be rolled back.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RevisionView {
    /// The revision and its facts.
    #[serde(flatten)]
    pub record: PolicyRecord,
    /// Whether it is the active one, or, in etcd, the one pushed last.
    pub current: bool,
}

/// The request to make an earlier policy revision active again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// The objects that have the problem; empty if that is the mesh as a whole.
    #[serde(default)]
    pub objects: Vec<ObjectRef>,
    /// What stays the same while the problem lasts: a digest of the code and the objects.
    #[serde(default)]
    pub fingerprint: String,
    /// The silence that covers it; absent while it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silenced: Option<SilencedView>,
}

/// A location in a file, in the API. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
            objects: finding.objects.clone(),
            fingerprint: finding.fingerprint(),
            silenced: None,
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

/// The body of an error response.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What failed, and what to do.
    pub error: String,
}
