//! The running agent: it enrolls the machine when it is not enrolled, renews its certificate, and answers on its socket.
//!
//! ```text
//! lock ─► joining (until the folder of the proxy exists) ─► renewal loop ─► (folder removed) joining …
//!            └──────────── AgentState ────────────┴─► agent socket: status, metrics
//! ```
//!
//! It never starts, stops or signals an Envoy: that is the supervisor's work. Neither a missing control plane nor a
//! rejected token ends it.

mod joining;
mod renewing;

use std::path::{Path, PathBuf};

use ironmesh_enrollment::CaHash;
use ironmesh_sidecar::envoy;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::activity::AgentState;
use crate::error::AgentError;
use crate::lock::AgentLock;
use crate::settings::AgentSettings;
use crate::socket;

/// Runs the agent until `stop` is cancelled.
///
/// `hostname` names a machine without a name in its settings; the token is in `credential` if the settings name no
/// file. `ready` is called once the agent answers on its socket.
///
/// # Errors
///
/// Fails if another agent runs for the same proxy, if the folder is one of another mesh, or if the socket cannot be
/// bound. Everything that may pass is retried instead.
pub async fn run(
    settings: AgentSettings,
    credential: Option<PathBuf>,
    stop: CancellationToken,
    ready: impl FnOnce(),
) -> Result<(), AgentError> {
    let _lock = AgentLock::take(&settings.folder)?;
    check_mesh(&settings)?;
    let state = AgentState::new(Timestamp::now());
    let listener = socket::bind(&settings.folder)?;
    ready();
    let token_file = settings.token_file.clone().or(credential);
    let work = async {
        loop {
            if !settings.folder.exists() {
                joining::join(&settings, token_file.as_deref(), &state).await?;
            }
            renewing::renew_until_removed(&settings, &state).await;
            tracing::warn!(folder = %settings.folder.display(), "the folder of the proxy was removed: the machine is enrolled again");
        }
    };
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        failed = work => failed,
        served = socket::serve(listener, settings.clone(), state.clone()) => served,
    }
}

/// Fails if the folder is of another mesh than the settings.
fn check_mesh(settings: &AgentSettings) -> Result<(), AgentError> {
    let path = settings.folder.join(envoy::ROOTS);
    if settings.ca_hashes.is_empty() || !path.exists() {
        return Ok(());
    }
    let roots = read(&path)?;
    let known = CaHash::of_roots(&roots)
        .map_err(|error| AgentError::Content { path: path.clone(), problem: error.to_string() })?;
    if known.iter().any(|hash| settings.ca_hashes.contains(hash)) {
        return Ok(());
    }
    Err(AgentError::OtherMesh {
        folder: settings.folder.clone(),
        known,
        expected: settings.ca_hashes.clone(),
    })
}

fn read(path: &Path) -> Result<String, AgentError> {
    fs_err::read_to_string(path).map_err(|source| AgentError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}
