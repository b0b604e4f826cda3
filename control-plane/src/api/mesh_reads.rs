//! The admin API's reads of services, access and configuration.

use ironmesh_admin::{ApiError, MeshReads};
use ironmesh_api::{
    AccessPage, AccessQuery, DocumentsQuery, PolicyDocuments, ProviderList, ServiceDetail,
    ServicePage, ServiceQuery, SettingsView,
};
use ironmesh_catalog::ServiceName;

use super::RunningControlPlane;

impl MeshReads for RunningControlPlane {
    fn services(&self, query: &ServiceQuery) -> Result<ServicePage, ApiError> {
        self.service_page(query)
    }

    fn service(&self, name: &ServiceName) -> Result<ServiceDetail, ApiError> {
        self.service_detail(name)
    }

    fn access(&self, query: &AccessQuery) -> Result<AccessPage, ApiError> {
        self.access_page(query)
    }

    fn policy_documents(&self, query: &DocumentsQuery) -> Result<PolicyDocuments, ApiError> {
        self.documents(query)
    }

    fn providers(&self) -> ProviderList {
        self.provider_list()
    }

    fn settings(&self) -> SettingsView {
        self.settings_view()
    }
}
