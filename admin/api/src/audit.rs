//! The JSON types of audit mode: the calls that strict mode would deny.

use ironmesh_catalog::{ServiceAccount, ServiceName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The calls that strict mode would deny, of services in audit mode. They are kept in memory only.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    /// When the recording started: the start of the control plane.
    pub since: Timestamp,
    /// The denied callers, ordered by service port.
    pub denied: Vec<DeniedView>,
    /// Denied calls beyond the bound of recorded callers, since the last change of policy.
    pub others: Vec<OthersView>,
}

/// Denied calls of a service port by callers beyond the bound.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
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
