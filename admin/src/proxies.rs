//! The JSON types of the list of proxies: the query, a page, and how far each proxy has ACKed its resources.

use ironmesh_catalog::ServiceName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::ProxyView;
use crate::convergence::SyncState;

/// The most proxies of one page.
pub const MAX_PROXY_PAGE: usize = 500;

/// The query of a page of proxies, which are ordered by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyQuery {
    /// Only proxies that serve this service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Only proxies in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ProxyFilter>,
    /// The most proxies of the page, at most [`MAX_PROXY_PAGE`], which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only proxies after the page that had this as [`ProxyPage::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A state by which proxies are filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
}

impl ProxyFilter {
    /// All filters.
    pub const ALL: [Self; 8] = [
        Self::Connected,
        Self::Disconnected,
        Self::Unclaimed,
        Self::Expired,
        Self::Revoked,
        Self::Synced,
        Self::Stale,
        Self::Nacked,
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
        }
    }
}

/// A page of proxies.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyPage {
    /// The proxies, by name.
    pub proxies: Vec<ProxyView>,
    /// The count of all proxies that match the query, on all pages.
    pub matching: usize,
    /// What the query of the next page has as `after`; none after the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How far a proxy has ACKed its resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// The exchange of one resource type with a proxy since the control plane started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
