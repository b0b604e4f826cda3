//! The JSON types of revocation.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ironmesh_catalog::network_address;
use ironmesh_catalog::{ProxyId, ProxyName, ServicePort};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::join_record::RevocationView;

/// The longest reason of a revocation, in bytes.
pub const MAX_REASON: usize = 500;

/// The most proxies that one request may revoke.
pub const MAX_REVOCATIONS: usize = 500;

/// The request to revoke proxies: all of them, or none.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// The names of the proxies, or their UUIDs, or at least eight first characters of them: at least one, and at most
    /// [`MAX_REVOCATIONS`].
    #[schema(min_items = 1, max_items = 500)]
    pub proxies: Vec<String>,
    /// The reason, shown wherever the revocation is: one line of at most [`MAX_REASON`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether to predict the effects, and to change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of a revocation, or its prediction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevokedProxies {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The proxies in the order of the request, each once.
    pub proxies: Vec<Revoked>,
    /// The service ports of these proxies that no endpoint serves after the revocation.
    pub without_endpoint: Vec<ServicePort>,
}

/// The revocation of one proxy, or its prediction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// The time and reason of the first revocation; none in the prediction of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<RevocationView>,
    /// Whether it was revoked before.
    pub is_old: bool,
    /// How many xDS streams the revocation ends.
    pub streams: usize,
    /// The address that callers dial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<network_address::SocketAddress>)]
    pub mesh_address: Option<SocketAddr>,
    /// The service ports for which callers dial the proxy at the time of the request.
    pub endpoints: Vec<ServicePort>,
    /// The service ports that its certificates let it call.
    pub reach: Vec<ReachView>,
}

/// The service ports that a proxy may call, until a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReachView {
    /// When the last certificate by which it may call them expires. Peers that have not received the revocation accept
    /// the certificate until then.
    pub until: Timestamp,
    /// The service ports, in order.
    pub ports: BTreeSet<ServicePort>,
}
