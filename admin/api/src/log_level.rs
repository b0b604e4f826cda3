//! The JSON types of the level of a control plane's log.

use ironmesh_catalog::LogDirectives;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many seconds a changed level lasts, if the request does not set it.
pub const DEFAULT_LOG_LEVEL_TIME: u64 = 10 * 60;

/// The most seconds that a changed level lasts.
pub const MAX_LOG_LEVEL_TIME: u64 = 24 * 60 * 60;

/// The level of the log of the control plane that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLevelView {
    /// The level in use, with the levels of targets.
    pub level: String,
    /// The level to which the log returns.
    pub configured: String,
    /// Where that is configured: `settings`, or `RUST_LOG`, which replaces the settings.
    pub source: String,
    /// When the log returns to it; null while it is in use.
    pub until: Option<Timestamp>,
    /// The operator who changed the level; null while the configured one is in use.
    pub by: Option<String>,
}

/// The request to change the level for a while.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLevelRequest {
    /// The level, with levels of targets. The configured one ends an earlier change.
    pub level: LogDirectives,
    /// After how many seconds the log returns to the configured level; 600 if it is omitted.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}
