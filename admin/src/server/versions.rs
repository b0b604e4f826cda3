//! The handler of the report about the versions of all proxies.

use axum::extract::State;
use ironmesh_api::VersionReport;

use super::work_queues::{JsonBody, Reads};
use super::{ApiError, Shared};

pub(super) async fn versions(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<VersionReport>, ApiError> {
    reads.answer(move || Ok(control_plane.versions())).await
}
