//! The handlers of the level of the log.

use axum::extract::State;
use ironmesh_api::{LogLevelRequest, LogLevelView};

use super::error::Body;
use super::work_queues::{Changes, JsonBody, Reads};
use super::{ApiError, Principal, Shared};

/// The level of the log of a running control plane, for the admin API.
pub trait LogLevelAccess: Send + Sync {
    /// The level in use, and the configured one.
    fn log_level(&self) -> LogLevelView;

    /// Sets another level for a while. May block on the store.
    fn set_log_level(
        &self,
        principal: &Principal,
        request: &LogLevelRequest,
    ) -> Result<LogLevelView, ApiError>;
}

pub(super) async fn log_level(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<LogLevelView>, ApiError> {
    reads.answer(move || Ok(control_plane.log_level())).await
}

pub(super) async fn set_log_level(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<LogLevelRequest>,
) -> Result<JsonBody<LogLevelView>, ApiError> {
    changes.answer(move |principal| control_plane.set_log_level(principal, &request)).await
}
