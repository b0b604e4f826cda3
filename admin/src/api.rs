//! What goes over the wire, as JSON.

use std::net::IpAddr;

use ironmesh_catalog::{Finding, JoinRecord, ProxyId, ServiceName, Upstream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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
}

/// The policy in force, and what is wrong with the newest one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PolicyView {
    /// Where it is loaded from.
    pub source: String,
    /// The revision in force; none before the first.
    pub revision: Option<String>,
    /// Since when the source has held something else than what is in force.
    pub stale_since: Option<Timestamp>,
    /// What is wrong with what the source holds now.
    pub findings: Vec<FindingView>,
    /// The same, drawn for people.
    pub drawn: String,
}

/// A finding on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingView {
    /// Its code, such as `IM0101`.
    pub code: String,
    /// `error` or `warning`.
    pub severity: String,
    /// What is wrong.
    pub message: String,
    /// In which file, where it is in one.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// What to do.
    pub help: Option<String>,
}

impl From<&Finding> for FindingView {
    fn from(finding: &Finding) -> Self {
        let spot = finding.spot.as_ref();
        Self {
            code: finding.code.to_string(),
            severity: finding.severity.to_string(),
            message: finding.message.clone(),
            file: spot.map(|spot| spot.file.to_string()),
            line: spot.map(|spot| spot.line),
            column: spot.map(|spot| spot.column),
            help: finding.help.clone(),
        }
    }
}

/// A proxy as it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyView {
    /// What it joined as, and how far it has come.
    #[serde(flatten)]
    pub record: JoinRecord,
    /// How many xDS streams it has open.
    pub streams: usize,
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

/// The most proxies that one request may let in.
pub const MAX_NEWCOMERS: usize = 500;

/// Asks for proxies to be let in: all of them, or none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BootstrapRequest {
    /// The services that each may serve, at least one.
    pub services: Vec<ServiceName>,
    /// The services that their applications call by local ports, to be checked.
    pub upstreams: Vec<Upstream>,
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
