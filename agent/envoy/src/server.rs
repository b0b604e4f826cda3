//! The server of `supervisor.sock`, for this user only: status, reload, drain, hold and resume.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::error::SupervisorError;
use crate::progress::{MAX_STEPS, ReloadProgress};
use crate::status::SupervisorStatus;

/// The name of the socket in the folder.
const SOCKET: &str = "supervisor.sock";

/// What a command requests.
#[derive(Debug)]
pub(crate) enum Command {
    /// A hot restart, with a receiver of its progress.
    Reload(mpsc::Sender<ReloadProgress>),
    /// A stop after a drain.
    Drain,
    /// A drain, after which the supervisor waits for [`Command::Resume`].
    Hold,
    /// The start of an Envoy after a hold.
    Resume,
}

/// What the routes need of the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct Supervised {
    pub(crate) status: watch::Receiver<SupervisorStatus>,
    pub(crate) commands: mpsc::Sender<Command>,
}

/// The path of the socket in a folder.
pub(crate) fn socket_path(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

/// Creates the socket. The caller holds the lock of the folder, so an existing one is that of a dead supervisor.
pub(crate) fn bind(folder: &Path) -> Result<UnixListener, SupervisorError> {
    let path = socket_path(folder);
    let bind = || -> io::Result<UnixListener> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        // The folder has mode 0700, so that no other user can connect in between.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    bind().map_err(|source| SupervisorError::File { action: "create the socket", path, source })
}

/// Serves until the task is dropped.
pub(crate) async fn serve(listener: UnixListener, supervised: Supervised) -> io::Result<()> {
    let routes = Router::new()
        .route("/status", get(status))
        .route("/reload", post(reload))
        .route("/drain", post(|supervised| accept(supervised, Command::Drain)))
        .route("/hold", post(|supervised| accept(supervised, Command::Hold)))
        .route("/resume", post(|supervised| accept(supervised, Command::Resume)))
        .with_state(supervised);
    axum::serve(listener, routes).await
}

async fn status(State(supervised): State<Supervised>) -> Json<SupervisorStatus> {
    let status = supervised.status.borrow().clone();
    Json(status)
}

/// Answers with one JSON object per line, as the reload proceeds.
async fn reload(State(supervised): State<Supervised>) -> impl IntoResponse {
    let (sender, steps) = mpsc::channel(MAX_STEPS);
    // Without the supervisor's task the channel closes, and the answer has no line.
    let _ = supervised.commands.send(Command::Reload(sender)).await;
    let lines = ReceiverStream::new(steps).map(|step| {
        let line = serde_json::to_string(&step).unwrap_or_default();
        Ok::<_, Infallible>(format!("{line}\n"))
    });
    ([("content-type", "application/x-ndjson")], Body::from_stream(lines))
}

/// Hands over a command, and answers at once. After a drain, the socket disappears when Envoy has ended.
async fn accept(State(supervised): State<Supervised>, command: Command) -> StatusCode {
    let _ = supervised.commands.send(command).await;
    StatusCode::ACCEPTED
}
