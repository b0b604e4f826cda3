//! The interface of a control plane about services and access, and its handlers.

use axum::extract::State;
use ironmesh_api::{AccessPage, AccessQuery, ServiceDetail, ServicePage, ServiceQuery};
use ironmesh_catalog::ServiceName;

use super::error::{InQuery, Parameter};
use super::handlers::service_name;
use super::work_queues::{JsonBody, Reads};
use super::{ApiError, Shared};

/// The interface of a running control plane about services and access.
pub trait MeshReads: Send + Sync + 'static {
    /// A page of the services of policy. Takes as long as examining the endpoints of the page.
    fn services(&self, query: &ServiceQuery) -> Result<ServicePage, ApiError>;

    /// A service in detail.
    fn service(&self, name: &ServiceName) -> Result<ServiceDetail, ApiError>;

    /// A page of service ports with their callers.
    fn access(&self, query: &AccessQuery) -> Result<AccessPage, ApiError>;
}

pub(super) async fn services(
    State(control_plane): State<Shared>,
    reads: Reads,
    InQuery(query): InQuery<ServiceQuery>,
) -> Result<JsonBody, ApiError> {
    reads.answer(move || control_plane.services(&query)).await
}

pub(super) async fn service(
    State(control_plane): State<Shared>,
    reads: Reads,
    Parameter(service): Parameter<(String, String)>,
) -> Result<JsonBody, ApiError> {
    let service = service_name(&service)?;
    reads.answer(move || control_plane.service(&service)).await
}

pub(super) async fn access(
    State(control_plane): State<Shared>,
    reads: Reads,
    InQuery(query): InQuery<AccessQuery>,
) -> Result<JsonBody, ApiError> {
    reads.answer(move || control_plane.access(&query)).await
}
