//! The status of the supervisor, as `GET /status` answers it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The status of the supervisor and its Envoys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorStatus {
    /// The process id of the supervisor.
    pub pid: u32,
    /// The state of Envoy.
    pub state: EnvoyState,
    /// The epoch that serves. Absent while Envoy is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy: Option<EnvoyEpoch>,
    /// The epochs that end after a hot restart.
    #[serde(default)]
    pub previous: Vec<PreviousEpoch>,
    /// How often Envoy exited by itself since the supervisor began.
    pub restarts: u64,
    /// The last failure of a start, a reload or a running Envoy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When that failure happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
}

/// The state of Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvoyState {
    /// Envoy runs, and waits for its first configuration.
    Starting,
    /// Envoy serves.
    Live,
    /// Envoy serves, and a hot restart is in progress.
    Reloading,
    /// Envoy exited, and is started again.
    Restarting,
    /// Envoy finishes its connections before the stop.
    Draining,
    /// Envoy has ended after a drain, and is started again by a command.
    Drained,
}

/// The Envoy that serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvoyEpoch {
    /// Its restart epoch.
    pub epoch: u32,
    /// Its process id.
    pub pid: u32,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it was started.
    pub since: Timestamp,
}

/// An Envoy that finishes its connections after a hot restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousEpoch {
    /// Its restart epoch.
    pub epoch: u32,
    /// Its process id.
    pub pid: u32,
    /// When it ends, with its established TCP connections.
    pub ends_at: Timestamp,
}
