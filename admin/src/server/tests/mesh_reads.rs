use ironmesh_api::{AccessPage, AccessQuery, ServiceDetail, ServicePage, ServiceQuery};

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
}
