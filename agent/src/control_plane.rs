//! What an enrolled proxy asks its control plane, besides certificates: its state, to leave, and to rejoin.

use std::path::Path;
use std::time::Duration;

use ironmesh_enrollment::{
    ControlPlaneAddress, EnrollmentClient, LeaveRequest, LeaveResult, MachineIdentity, ProxyStatus,
};

use crate::error::AgentError;
use crate::machine_folder::ProxyFiles;

/// The control plane, as the proxy of one folder calls it.
#[derive(Debug)]
pub struct ProxyControlPlane {
    client: EnrollmentClient,
    identity: MachineIdentity,
}

impl ProxyControlPlane {
    /// The control plane of the proxy in `folder`, at `addresses`, or at those of its enrollment if there are none. Each
    /// call may take `limit` in all.
    pub fn open(
        folder: &Path,
        addresses: &[ControlPlaneAddress],
        limit: Duration,
    ) -> Result<Self, AgentError> {
        let files = ProxyFiles::read(folder)?;
        let (addresses, _) = files.enrollment(addresses)?;
        let client = EnrollmentClient::new(addresses, files.trust());
        let client = client.map_err(failed("reach the control plane"))?.with_time_limit(limit);
        Ok(Self { client, identity: files.identity })
    }

    /// The same control plane, whose calls fail when no address answers, instead of trying again.
    pub(crate) fn without_retries(self) -> Self {
        Self { client: self.client.without_retries(), ..self }
    }

    /// The state of the proxy, as the control plane sees it.
    pub async fn status(&self) -> Result<ProxyStatus, AgentError> {
        let status = self.client.proxy_status(&self.identity).await;
        status.map_err(failed("ask the control plane for the state of the proxy"))
    }

    /// Directs callers elsewhere, and with `revoke` then revokes the proxy. Returns when the callers have ACKed it, or
    /// after 15 seconds.
    pub async fn leave(&self, revoke: bool) -> Result<LeaveResult, AgentError> {
        let left = self.client.leave(&self.identity, LeaveRequest { revoke }).await;
        left.map_err(failed("leave the mesh"))
    }
}

fn failed(
    action: &'static str,
) -> impl Fn(ironmesh_enrollment::EnrollmentClientError) -> AgentError {
    move |source| AgentError::ControlPlane { action, source }
}
