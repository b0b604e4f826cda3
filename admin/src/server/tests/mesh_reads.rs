use ironmesh_api::{
    AccessPage, AccessQuery, DocumentsQuery, PolicyDocuments, ProviderList, ServiceDetail,
    ServicePage, ServiceQuery, SettingsView,
};

use super::*;

impl MeshReads for Slow {
    fn services(&self, _: &ServiceQuery) -> Result<ServicePage, ApiError> {
        not_requested()
    }

    fn service(&self, _: &ServiceName) -> Result<ServiceDetail, ApiError> {
        not_requested()
    }

    fn access(&self, _: &AccessQuery) -> Result<AccessPage, ApiError> {
        not_requested()
    }

    fn policy_documents(&self, _: &DocumentsQuery) -> Result<PolicyDocuments, ApiError> {
        not_requested()
    }

    fn providers(&self) -> ProviderList {
        not_requested()
    }

    fn settings(&self) -> SettingsView {
        not_requested()
    }
}
