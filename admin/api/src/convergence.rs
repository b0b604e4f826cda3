//! The JSON types of convergence: which proxies have not ACKed everything, and the wait for a policy revision.

use std::net::SocketAddr;
use std::time::Duration;

use ironmesh_catalog::network_address;
use ironmesh_catalog::{ProxyId, ProxyName, ServiceName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::proxies::NackView;

/// The most laggards that one answer lists.
pub const MAX_LAGGARDS: usize = 100;

/// The longest time for which one request waits. A client that waits longer asks again.
pub const MAX_WAIT: Duration = Duration::from_secs(20);

/// How far a proxy has ACKed its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncState {
    /// It has ACKed everything.
    Synced,
    /// It has not ACKed all of its set yet.
    Updating,
    /// It NACKs a resource, or others do so that it is withheld: a fallback is active.
    Nacked,
    /// A part of its set waits for other proxies, up to 15 s.
    Held,
    /// It is disconnected.
    Disconnected,
    /// The control plane has just started, and the proxy may still reconnect.
    Reconnecting,
}

/// A proxy that has not ACKed everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaggardView {
    /// The proxy.
    pub proxy: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// The services that it serves.
    pub services: Vec<ServiceName>,
    /// Its mesh address.
    #[schema(value_type = network_address::SocketAddress)]
    pub mesh_address: SocketAddr,
    /// Its state.
    pub state: SyncState,
    /// Since when; absent if the control plane has not seen the proxy since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The newest revision of policy that it has ACKed; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_revision: Option<String>,
    /// The resources that it NACKs, or that are withheld because others NACK them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nacks: Vec<NackView>,
}

/// How far all proxies have ACKed what they should have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConvergenceView {
    /// The active revision of policy; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The count of proxies that have ACKed everything.
    pub synced: usize,
    /// The count of connected proxies that have not.
    pub lagging: usize,
    /// The count of proxies that were connected and are not.
    pub disconnected: usize,
    /// The connected proxies that have not ACKed everything, the first [`MAX_LAGGARDS`] by id.
    pub laggards: Vec<LaggardView>,
}

/// The request to wait until a revision of policy is synced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitRequest {
    /// The revision, or its beginning; none for the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Whether to wait for disconnected proxies, too.
    #[serde(default)]
    pub include_disconnected: bool,
    /// Whether the revision may still become active, also again. Otherwise an unknown revision is an error, and an
    /// earlier one is superseded.
    #[serde(default)]
    pub may_become_active: bool,
    /// Whether the revision has been active: then any other active revision supersedes it, even one that the control
    /// plane has not published yet.
    #[serde(default)]
    pub was_active: bool,
    /// The longest wait in milliseconds, at most [`MAX_WAIT`].
    #[serde(default)]
    pub timeout_ms: u64,
}

/// The outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitOutcome {
    /// Every proxy that the revision touches has ACKed it.
    Synced,
    /// Some have not yet.
    Pending,
    /// Another revision is active now.
    Superseded,
    /// The revision is not active yet.
    NotActive,
}

/// The answer to a wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitAnswer {
    /// The outcome at the end of the wait.
    pub outcome: WaitOutcome,
    /// The revision that was waited for.
    pub revision: String,
    /// The active revision, if it supersedes the one that was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// The count of proxies that have not ACKed the revision.
    pub pending: usize,
    /// The first [`MAX_LAGGARDS`] of them by id.
    pub proxies: Vec<LaggardView>,
    /// The host names of the other control planes that publish a different revision, or whose proxies have not ACKed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control_planes: Vec<String>,
}
