//! The handlers of active findings and of silences.

use axum::extract::State;
use axum::http::StatusCode;
use ironmesh_api::SilenceRequest;
use ironmesh_catalog::{InvalidSilenceId, SilenceId};

use super::error::{Body, Parameter};
use super::work_queues::{Changes, JsonBody, Reads};
use super::{ApiError, Shared};

pub(super) async fn findings(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody, ApiError> {
    reads.answer(move || Ok(control_plane.findings())).await
}

pub(super) async fn silences(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody, ApiError> {
    reads.answer(move || Ok(control_plane.silences())).await
}

pub(super) async fn silence(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<SilenceRequest>,
) -> Result<(StatusCode, JsonBody), ApiError> {
    let set = changes.answer(move |principal| control_plane.silence(principal, &request)).await?;
    Ok((StatusCode::CREATED, set))
}

pub(super) async fn remove_silence(
    State(control_plane): State<Shared>,
    changes: Changes,
    Parameter(id): Parameter<String>,
) -> Result<JsonBody, ApiError> {
    let invalid = |error: InvalidSilenceId| ApiError::BadRequest(error.to_string());
    let id: SilenceId = id.parse().map_err(invalid)?;
    changes.answer(move |principal| control_plane.remove_silence(principal, &id)).await
}
