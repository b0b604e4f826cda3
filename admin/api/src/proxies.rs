//! The JSON types of the list of proxies: the query, a page, and how far each proxy has ACKed its resources.

use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::network_address;
use ironmesh_catalog::{CordonMode, ServiceName};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::convergence::SyncState;
use crate::join_record::JoinRecordView;
use crate::readiness::FindingView;

/// The most proxies of one page.
pub const MAX_PROXY_PAGE: usize = 500;

/// The query of a page of proxies, which are ordered by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct ProxyQuery {
    /// Only proxies that serve this service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub service: Option<ServiceName>,
    /// Only proxies in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<ProxyFilter>,
    /// The most proxies of the page, at most [`MAX_PROXY_PAGE`], which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only proxies after the page that had this as its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A state by which proxies are filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyFilter {
    /// It has an xDS stream.
    Connected,
    /// It has connected before, its certificate is valid, and it has no xDS stream.
    Disconnected,
    /// It has never connected.
    Unclaimed,
    /// Its certificate or its enrollment has expired.
    Expired,
    /// It is revoked.
    Revoked,
    /// It is connected and has ACKed everything.
    Synced,
    /// It is connected and has not ACKed everything, without a NACK.
    Stale,
    /// It is connected and NACKs a resource, or one is withheld from it.
    Nacked,
    /// An operator has cordoned or drained it.
    Cordoned,
}

impl ProxyFilter {
    /// All filters.
    pub const ALL: [Self; 9] = [
        Self::Connected,
        Self::Disconnected,
        Self::Unclaimed,
        Self::Expired,
        Self::Revoked,
        Self::Synced,
        Self::Stale,
        Self::Nacked,
        Self::Cordoned,
    ];

    /// Its JSON value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Unclaimed => "unclaimed",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Synced => "synced",
            Self::Stale => "stale",
            Self::Nacked => "nacked",
            Self::Cordoned => "cordoned",
        }
    }
}

/// A page of proxies.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProxyPage {
    /// The proxies, by name.
    pub proxies: Vec<ProxyView>,
    /// The count of all proxies that match the query, on all pages.
    pub matching: usize,
    /// What the query of the next page has as `after`; none after the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A proxy in the list of proxies.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
    /// The version of its Envoy, as it was known last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy_version: Option<String>,
    /// Since when it has been connected, by its newest xDS stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<Timestamp>,
    /// The host name of the control plane to which it is connected, if that is not the one that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<String>,
    /// How far it has ACKed its resources; absent if it is neither connected nor expected to reconnect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncView>,
    /// Whether callers connect to it on any of its service ports.
    #[serde(default)]
    pub called: bool,
    /// Since when it leaves the mesh: callers send it no new requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving_since: Option<Timestamp>,
    /// The count of its open xDS streams.
    pub streams: usize,
    /// The client addresses of its streams.
    #[schema(value_type = Vec<network_address::SocketAddress>)]
    pub stream_addresses: Vec<SocketAddr>,
    /// The resources that it NACKs.
    pub nacks: Vec<NackView>,
    /// The resources that are withheld from it because every recipient NACKs them.
    pub withheld: Vec<NackView>,
    /// The findings about what it requests, its streams and its certificates.
    pub findings: Vec<FindingView>,
}

impl ProxyView {
    /// From this age on, it is a problem that a connected proxy has not ACKed everything: an ACK takes milliseconds, and a
    /// rollout order holds for 15 s at most.
    pub const STALE_AFTER: SignedDuration = SignedDuration::from_secs(60);

    /// Whether an operator has drained it, so that its machine may be off.
    pub fn is_drained(&self) -> bool {
        self.record.cordon.as_ref().is_some_and(|cordon| cordon.mode == CordonMode::Drain)
    }

    /// Whether it was connected, and has no xDS stream, though no operator has drained it.
    pub fn is_disconnected(&self) -> bool {
        self.state == "disconnected" && !self.is_drained()
    }

    /// Since when it has not ACKed everything, if it is connected and NACKs nothing.
    pub fn unacked_since(&self) -> Option<Timestamp> {
        let sync = self.sync.as_ref()?;
        sync.since.filter(|_| matches!(sync.state, SyncState::Updating | SyncState::Held))
    }

    /// Whether it is enrolled at this address and may connect, but is not connected.
    pub fn is_cut_off_at(&self, address: IpAddr) -> bool {
        let record = &self.record;
        (record.mesh_address.ip() == address || record.addresses.contains(&address))
            && matches!(
                &*self.state,
                "disconnected" | "unclaimed" | "expired" | "enrollment_expired"
            )
    }
}

/// A resource that a proxy NACKs, or that is withheld from it because others NACK it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// How far a proxy has ACKed its resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncView {
    /// Its state.
    pub state: SyncState,
    /// Since when it has not been synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The newest revision of policy that it has ACKed; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}
