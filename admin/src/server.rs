//! The serving side.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Path as Parameter, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::{TcpListener, UnixListener};

use crate::api::{
    BootstrapRequest, BootstrapResponse, ErrorBody, ProxyConfig, ProxyDetail, ProxyView, Readiness,
    RevokeRequest, Revoked,
};

/// The control plane, as far as it is administered.
pub trait ControlPlane: Send + Sync + 'static {
    /// Whether it serves.
    fn readiness(&self) -> Readiness;

    /// All proxies that have joined.
    fn proxies(&self) -> Vec<ProxyView>;

    /// All that is known of the proxy whose UUID is or begins with `id`.
    fn proxy(&self, id: &str) -> Result<ProxyDetail, Refusal>;

    /// All that the proxy is to have whose UUID is or begins with `id`. Takes as long as encoding it does.
    fn proxy_config(&self, id: &str) -> Result<ProxyConfig, Refusal>;

    /// Shuts the proxy out whose UUID is `id`, for good. May block on the store.
    fn revoke(&self, id: &str, request: &RevokeRequest) -> Result<Revoked, Refusal>;

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
    /// Because there is no such thing.
    #[error("{0}")]
    Unknown(String),
    /// Because of us.
    #[error("{0}")]
    Failure(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Unknown(_) => StatusCode::NOT_FOUND,
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
    let all = reads()
        .route("/v1/proxies", post(bootstrap))
        .route("/v1/proxies/{id}/revoke", post(revoke));
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
        .route("/v1/proxies/{id}", get(proxy))
        .route("/v1/proxies/{id}/config", get(proxy_config))
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
    blocking(move || control_plane.bootstrap(&request)).await
}

async fn proxy(
    State(control_plane): State<Shared>,
    Parameter(id): Parameter<String>,
) -> Result<Json<ProxyDetail>, Refusal> {
    control_plane.proxy(&id).map(Json)
}

async fn proxy_config(
    State(control_plane): State<Shared>,
    Parameter(id): Parameter<String>,
) -> Result<Json<ProxyConfig>, Refusal> {
    blocking(move || control_plane.proxy_config(&id)).await
}

async fn revoke(
    State(control_plane): State<Shared>,
    Parameter(id): Parameter<String>,
    Json(request): Json<RevokeRequest>,
) -> Result<Json<Revoked>, Refusal> {
    blocking(move || control_plane.revoke(&id, &request)).await
}

/// Lets what takes its time take it where others do not wait for it.
async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    let done = tokio::task::spawn_blocking(task).await;
    done.map_err(|error| Refusal::Failure(error.to_string()))?.map(Json)
}
