//! The serving side.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::{TcpListener, UnixListener};

use crate::api::{BootstrapRequest, BootstrapResponse, ErrorBody, ProxyView, Readiness};

/// The control plane, as far as it is administered.
pub trait ControlPlane: Send + Sync + 'static {
    /// Whether it serves.
    fn readiness(&self) -> Readiness;

    /// All proxies that have joined.
    fn proxies(&self) -> Vec<ProxyView>;

    /// Its numbers, in the text format of OpenMetrics.
    fn metrics(&self) -> String;

    /// Lets proxies in, all or none. May block on the store.
    fn bootstrap(&self, request: &BootstrapRequest) -> Result<BootstrapResponse, Refusal>;
}

/// Why something is not done.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Because of what was asked.
    #[error("{0}")]
    Request(String),
    /// Because of us.
    #[error("{0}")]
    Failure(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Failure(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(ErrorBody { error: self.to_string() })).into_response()
    }
}

type Shared = Arc<dyn ControlPlane>;

/// Serves what may be read, until the task is dropped.
pub async fn serve_reads(listener: TcpListener, control_plane: Shared) -> io::Result<()> {
    axum::serve(listener, reads().with_state(control_plane)).await
}

/// Serves all of the API on the socket, until the task is dropped.
pub async fn serve_socket(listener: UnixListener, control_plane: Shared) -> io::Result<()> {
    let all = reads().route("/v1/proxies", post(bootstrap));
    axum::serve(listener, all.with_state(control_plane)).await
}

/// The socket cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the admin socket `{path}`")]
pub struct BindError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Makes the socket at `path`, for its owner alone. What was there is a socket that a dead process
/// left: the caller holds the lock of the state folder.
pub fn bind_socket(path: &Path) -> Result<UnixListener, BindError> {
    use std::os::unix::fs::PermissionsExt;
    let bind = || {
        match fs_err::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // The folder is the owner's alone already (0700), so there is no moment of others' access.
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    bind().map_err(|source| BindError { path: path.to_owned(), source })
}

fn reads() -> Router<Shared> {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/proxies", get(proxies))
}

async fn metrics(State(control_plane): State<Shared>) -> impl IntoResponse {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], control_plane.metrics())
}

async fn readyz(State(control_plane): State<Shared>) -> impl IntoResponse {
    let readiness = control_plane.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

async fn proxies(State(control_plane): State<Shared>) -> Json<Vec<ProxyView>> {
    Json(control_plane.proxies())
}

async fn bootstrap(
    State(control_plane): State<Shared>,
    Json(request): Json<BootstrapRequest>,
) -> Result<Json<BootstrapResponse>, Refusal> {
    let issued = tokio::task::spawn_blocking(move || control_plane.bootstrap(&request)).await;
    issued.map_err(|error| Refusal::Failure(error.to_string()))?.map(Json)
}
