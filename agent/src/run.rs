//! The running agent: it enrolls the machine when it is not enrolled, renews its certificate, and answers on its socket.
//!
//! ```text
//! lock ─► joining (until the folder of the proxy exists) ─► renewal loop ─► (folder removed) joining …
//!            │                                            ├► service certificates by SDS
//!            │                                            └► health probes
//!            └──────────── AgentState ────────────┴─► agent socket: status, metrics
//! ```
//!
//! It never starts, stops or signals an Envoy: that is the supervisor's work. Neither a missing control plane nor a
//! rejected token ends it.

mod joining;
mod renewing;

use std::path::PathBuf;

use ironmesh_agent_envoy::Notifier;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::activity::AgentState;
use crate::certificates;
use crate::error::AgentError;
use crate::health;
use crate::lock::AgentLock;
use crate::mesh_check::check_mesh;
use crate::settings::AgentSettings;
use crate::socket;

/// Runs the agent until `stop` is cancelled.
///
/// The token is in `credential` if the settings name no file.
///
/// # Errors
///
/// Fails if another agent runs for the same proxy, if the folder is one of another mesh, or if a socket cannot be
/// bound. Everything that may pass is retried instead.
pub async fn run(
    settings: AgentSettings,
    credential: Option<PathBuf>,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    let _lock = AgentLock::take(&settings.folder)?;
    check_mesh(&settings)?;
    let state = AgentState::new(Timestamp::now());
    let listener = socket::bind(&settings.folder)?;
    Notifier::from_environment().ready();
    tracing::info!(folder = %settings.folder.display(), "the agent has started");
    let token_file = settings.token_file.clone().or(credential);
    let work = async {
        loop {
            if !settings.folder.exists() {
                joining::join(&settings, token_file.as_deref(), &state).await?;
            }
            // Of this enrollment: a new one gets a new key, and its own certificates.
            tokio::select! {
                () = renewing::renew_until_removed(&settings, &state) => {}
                failed = certificates::serve(&settings, &state) => failed?,
                () = health::report_health(&settings, &state) => {}
            }
            tracing::warn!(folder = %settings.folder.display(), "the folder of the proxy was removed: the machine is enrolled again");
        }
    };
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        failed = work => failed,
        served = socket::serve(listener, settings.clone(), state.clone()) => served,
    }
}
