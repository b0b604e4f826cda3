//! The JSON types of traffic: what proxies counted in the last minutes. docs/reference/json.md describes them.

use ironmesh_catalog::{LatencyQuantiles, ProxyId, ProxyName, ServiceName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The traffic that agents have reported, of one service or of all. It is kept in memory only.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TrafficView {
    /// Since when it is counted: nine to ten minutes ago, or the start of the control plane.
    pub since: Timestamp,
    /// The traffic, ordered by direction, caller and service port.
    pub traffic: Vec<TrafficRow>,
    /// The proxies whose agents report, ordered by UUID. Of others nothing is known.
    pub proxies: Vec<TrafficReporter>,
}

/// The traffic between a caller and a service port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficRow {
    /// Where it was counted.
    pub direction: TrafficDirection,
    /// The caller: the first service of the proxy. None if it was counted by the called service.
    pub caller: Option<ServiceName>,
    /// The called service; none for the sum of the caller's other calls.
    pub service: Option<ServiceName>,
    /// The port of the service.
    pub port: Option<u16>,
    /// The requests that were answered.
    pub requests: u64,
    /// Those with a status from 200 to 299.
    pub responses_2xx: u64,
    /// Those with a status from 300 to 399.
    pub responses_3xx: u64,
    /// Those with a status from 400 to 499.
    pub responses_4xx: u64,
    /// Those with a status from 500 to 599, also by the caller's own sidecar.
    pub responses_5xx: u64,
    /// The requests that wait for their response, at the last report; for TCP, the open connections.
    pub in_flight: u64,
    /// How long responses took; none without responses.
    pub latency_ms: Option<LatencyQuantiles>,
    /// The connections that were opened.
    pub connections: u64,
    /// The connections that could not be opened.
    pub connect_failures: u64,
    /// The bytes that the caller sent.
    pub bytes_sent: u64,
    /// The bytes that the caller received.
    pub bytes_received: u64,
}

/// The side that counted traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrafficDirection {
    /// The proxies of the caller.
    Outbound,
    /// The proxies of the called service, for all callers together.
    Inbound,
    /// A direction of a later version.
    #[serde(other)]
    Unknown,
}

/// A proxy whose agent reports traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficReporter {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// When its last report arrived.
    pub reported_at: Timestamp,
}
