//! Which Envoy process runs: its response to `/server_info`.

use ironmesh_agent_envoy::local_http::LocalAddress;
use serde::Deserialize;

use super::local::{LocalRequestError, get_json};

/// Envoy's response to `/server_info`, as far as the agent reads it.
#[derive(Debug, Deserialize)]
pub(crate) struct ServerInfo {
    /// As `HASH/1.40.0/Clean/RELEASE/BoringSSL`.
    #[serde(default)]
    pub(super) version: String,
    /// As `LIVE`.
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    uptime_current_epoch: String,
    #[serde(default)]
    command_line_options: Options,
}

#[derive(Debug, Default, Deserialize)]
struct Options {
    #[serde(default)]
    restart_epoch: u32,
}

impl ServerInfo {
    /// Where Envoy gives it.
    pub(crate) const PATH: &str = "/server_info";

    pub(crate) async fn read(admin: &LocalAddress) -> Result<Self, LocalRequestError> {
        get_json(admin, Self::PATH).await
    }

    /// How many hot restarts led to this process.
    pub(crate) fn epoch(&self) -> u32 {
        self.command_line_options.restart_epoch
    }

    /// How long this epoch has run, in seconds.
    pub(crate) fn uptime_seconds(&self) -> u64 {
        self.uptime_current_epoch.trim_end_matches('s').parse().unwrap_or_default()
    }
}
