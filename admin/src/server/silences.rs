//! The handlers of active findings and of silences.

use axum::extract::State;
use ironmesh_api::{FindingList, SilenceList, SilenceRequest, SilenceView};
use ironmesh_catalog::SilenceId;

use super::error::{Body, Parameter};
use super::openapi::Created;
use super::work_queues::{Changes, JsonBody, Reads};
use super::{ApiError, Shared};

pub(super) async fn findings(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<FindingList>, ApiError> {
    reads.answer(move || Ok(control_plane.findings())).await
}

pub(super) async fn silences(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<SilenceList>, ApiError> {
    reads.answer(move || Ok(control_plane.silences())).await
}

pub(super) async fn silence(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<SilenceRequest>,
) -> Result<Created<SilenceView>, ApiError> {
    changes.answer(move |principal| control_plane.silence(principal, &request)).await.map(Created)
}

pub(super) async fn remove_silence(
    State(control_plane): State<Shared>,
    changes: Changes,
    Parameter(id): Parameter<SilenceId>,
) -> Result<JsonBody<SilenceView>, ApiError> {
    changes.answer(move |principal| control_plane.remove_silence(principal, &id)).await
}
