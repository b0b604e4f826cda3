//! The interface of a control plane about services, access and configuration, and its handlers.

use axum::extract::State;
use ironmesh_api::{
    AccessPage, AccessQuery, DocumentsQuery, PolicyDocuments, ProviderList, ServiceDetail,
    ServicePage, ServiceQuery, SettingsView,
};
use ironmesh_catalog::ServiceName;

use super::error::{InQuery, ServiceInPath};
use super::work_queues::{JsonBody, Reads};
use super::{ApiError, Shared};

/// The interface of a running control plane about services, access and configuration.
pub trait MeshReads: Send + Sync + 'static {
    /// A page of the services of policy. Takes as long as examining the endpoints of the page.
    fn services(&self, query: &ServiceQuery) -> Result<ServicePage, ApiError>;

    /// A service in detail.
    fn service(&self, name: &ServiceName) -> Result<ServiceDetail, ApiError>;

    /// A page of service ports with their callers.
    fn access(&self, query: &AccessQuery) -> Result<AccessPage, ApiError>;

    /// The documents of a stored revision of policy. May block on the store.
    fn policy_documents(&self, query: &DocumentsQuery) -> Result<PolicyDocuments, ApiError>;

    /// The endpoints providers. Takes as long as counting all endpoints.
    fn providers(&self) -> ProviderList;

    /// The effective settings.
    fn settings(&self) -> SettingsView;
}

pub(super) async fn services(
    State(control_plane): State<Shared>,
    reads: Reads,
    InQuery(query): InQuery<ServiceQuery>,
) -> Result<JsonBody<ServicePage>, ApiError> {
    reads.answer(move || control_plane.services(&query)).await
}

pub(super) async fn service(
    State(control_plane): State<Shared>,
    reads: Reads,
    ServiceInPath(service): ServiceInPath,
) -> Result<JsonBody<ServiceDetail>, ApiError> {
    reads.answer(move || control_plane.service(&service)).await
}

pub(super) async fn access(
    State(control_plane): State<Shared>,
    reads: Reads,
    InQuery(query): InQuery<AccessQuery>,
) -> Result<JsonBody<AccessPage>, ApiError> {
    reads.answer(move || control_plane.access(&query)).await
}

pub(super) async fn policy_documents(
    State(control_plane): State<Shared>,
    reads: Reads,
    InQuery(query): InQuery<DocumentsQuery>,
) -> Result<JsonBody<PolicyDocuments>, ApiError> {
    reads.answer(move || control_plane.policy_documents(&query)).await
}

pub(super) async fn providers(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<ProviderList>, ApiError> {
    reads.answer(move || Ok(control_plane.providers())).await
}

pub(super) async fn settings(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<SettingsView>, ApiError> {
    reads.answer(move || Ok(control_plane.settings())).await
}
