//! The socket of the running agent, for its own user only: its activity, and its metrics.
//!
//! Envoy forwards `/agent/metrics` of its metrics port here, so that a scraper needs one port for both.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use ironmesh_sidecar::envoy::agent_socket;
use tokio::net::UnixListener;

use crate::activity::AgentActivity;
use crate::activity::AgentState;
use crate::error::AgentError;
use crate::metrics;
use crate::settings::AgentSettings;

/// The content type of the Prometheus text format.
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The longest path of a Unix socket on Linux in bytes, without its terminating zero.
const MAX_PATH_BYTES: usize = 107;

/// Binds the socket beside `folder`.
pub(crate) fn bind(folder: &Path) -> Result<UnixListener, AgentError> {
    bind_for_own_user(agent_socket(folder))
}

/// Binds a socket of the agent, for its own user only. One that a killed agent left is replaced: the lock says that there
/// is no other.
pub(crate) fn bind_for_own_user(path: PathBuf) -> Result<UnixListener, AgentError> {
    let length = path.as_os_str().len();
    if length > MAX_PATH_BYTES {
        return Err(AgentError::AgentSocketPathTooLong { path, length, limit: MAX_PATH_BYTES });
    }
    let failed = |action, path: &PathBuf| {
        let path = path.clone();
        move |source| AgentError::File { action, path, source }
    };
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(failed("replace", &path)(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed("create the socket", &path))?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).map_err(failed("set the mode of", &path))?;
    Ok(listener)
}

/// What the handlers share.
#[derive(Debug, Clone)]
struct Shared {
    settings: AgentSettings,
    state: AgentState,
}

/// Serves the socket until the task is dropped.
pub(crate) async fn serve(
    listener: UnixListener,
    settings: AgentSettings,
    state: AgentState,
) -> Result<(), AgentError> {
    let path = agent_socket(&settings.folder);
    let router = Router::new()
        .route("/activity", get(activity))
        .route("/metrics", get(metrics))
        .with_state(Shared { settings, state });
    let served = axum::serve(listener, router).await;
    served.map_err(|source| AgentError::File { action: "serve", path, source })
}

async fn activity(State(shared): State<Shared>) -> Json<AgentActivity> {
    Json(shared.state.activity())
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    let text = metrics::text(&shared.state.activity(), &shared.settings.folder);
    ([(header::CONTENT_TYPE, METRICS)], text)
}
