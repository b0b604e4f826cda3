//! The leave of a machine for good: its Envoy drains and ends, then its proxy is revoked.

use std::time::Duration;

use ironmesh_agent_envoy::{SupervisorClient, SupervisorClientError};
use ironmesh_enrollment::LeaveResult;
use tokio::time::{Instant, sleep, timeout_at};

use crate::control_plane::ProxyControlPlane;
use crate::error::AgentError;
use crate::settings::AgentSettings;

/// What a drain takes besides `drain_maximum`: the leave request, and the end of the process.
const MARGIN: Duration = Duration::from_secs(30);

/// The interval in which the end of the supervisor is looked for.
const END_INTERVAL: Duration = Duration::from_millis(500);

/// The time limit of the requests to the control plane.
const LIMIT: Duration = Duration::from_secs(40);

/// How the Envoy of a machine ended before the proxy was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvoyEnd {
    /// Its supervisor drained and ended it.
    Drained,
    /// No supervisor runs: an Envoy that runs by itself goes on, without certificate and callers.
    Unsupervised,
}

/// Drains and ends the Envoy of this machine, and revokes its proxy, which is final. `drained` is called in between.
pub async fn leave_mesh(
    settings: &AgentSettings,
    drained: impl FnOnce(EnvoyEnd),
) -> Result<LeaveResult, AgentError> {
    // An unusable folder thus fails before the drain.
    let control_plane = ProxyControlPlane::open(&settings.folder, &settings.control_plane, LIMIT)?;
    // A machine that cannot be revoked must not be drained either: it would be out of service, and still a proxy.
    control_plane.status().await?;
    let supervisor = SupervisorClient::new(&settings.folder);
    let end = match supervisor.drain().await {
        Ok(()) => {
            wait_for_end(&supervisor, settings).await?;
            EnvoyEnd::Drained
        }
        Err(SupervisorClientError::Unreachable { .. }) => EnvoyEnd::Unsupervised,
        Err(error) => return Err(AgentError::Drain(error)),
    };
    drained(end);
    let left = control_plane.leave(true).await;
    left.map_err(|source| AgentError::DrainedOnly { source: Box::new(source) })
}

async fn wait_for_end(
    supervisor: &SupervisorClient,
    settings: &AgentSettings,
) -> Result<(), AgentError> {
    let limit = settings.sidecar.envoy.drain_maximum + MARGIN;
    let ended = timeout_at(Instant::now() + limit, async {
        loop {
            match supervisor.status().await {
                Err(SupervisorClientError::Unreachable { .. }) => return,
                _ => sleep(END_INTERVAL).await,
            }
        }
    });
    ended.await.map_err(|_| AgentError::DrainTimeout { seconds: limit.as_secs() })
}
