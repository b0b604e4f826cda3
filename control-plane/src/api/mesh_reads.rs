//! The admin API's reads of services and access.

use ironmesh_admin::{ApiError, MeshReads};
use ironmesh_api::{AccessPage, AccessQuery, ServiceDetail, ServicePage, ServiceQuery};
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
}
