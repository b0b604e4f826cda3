//! The admin API's view of traffic.

use ironmesh_admin::ApiError;
use ironmesh_api::TrafficView;
use ironmesh_catalog::ServiceName;
use jiff::Timestamp;
use tokio::time::Instant;

use super::RunningControlPlane;
use super::endpoints::find_service;

impl RunningControlPlane {
    /// The traffic of a service, or of all.
    pub(super) fn traffic_view(
        &self,
        service: Option<&ServiceName>,
    ) -> Result<TrafficView, ApiError> {
        if let Some(service) = service {
            find_service(&*self.snapshot()?, service)?;
        }
        let records = self.register.records();
        let name = |id| records.get(&id).map(|record| record.display_name());
        Ok(self.traffic.view(service, (Timestamp::now(), Instant::now()), name))
    }
}
