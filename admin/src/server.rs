//! The server of the admin API: its two listeners, and their routes.

mod connections;
mod control_plane;
mod export;
mod handlers;
mod host;
mod operator;
mod read_queue;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;
use tracing::Instrument;

pub use control_plane::{ApiError, Cancellation, ControlPlane, NextChange, WriteExport};
use export::Exports;
use handlers::{
    Waits, accept_endpoints, accept_removal, all_endpoints, all_traffic, apply, audit, bootstrap,
    certificates, convergence, create_tokens, debug, endpoints, explain_route, healthz, journal,
    metrics, plan, policy_revisions, policy_wait, proxies, proxy, proxy_config, readyz,
    readyz_without_lines, revoke, revoke_one, revoke_token, roll_back, set_services, tokens,
    traffic,
};
use ironmesh_api::MAX_APPLY;
use ironmesh_api::MAX_PLAN;
pub use operator::Operator;
use read_queue::ReadQueue;

type Shared = Arc<dyn ControlPlane>;

/// The most bytes of a [`Question`] as JSON: all of [`ironmesh_analysis::Request::MAX_BYTES`], if every byte is escaped.
const MAX_QUESTION: usize = 512 << 10;

/// How long a request may take, including its upload.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves the reads on the TCP listener until the task is dropped, for clients that use an address, `localhost` or one
/// of `names` as the host.
pub async fn serve_reads(
    listener: TcpListener,
    names: impl IntoIterator<Item = String>,
    control_plane: Shared,
) -> io::Result<()> {
    let router = port_routes(names).with_state(control_plane);
    connections::serve(listener, router, connections::Bounds::DEFAULT).await
}

/// The routes of the TCP listener, for all users of the machine.
fn port_routes(names: impl IntoIterator<Item = String>) -> Router<Shared> {
    let names: host::Names = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
    read_routes(get(readyz_without_lines))
        .layer(middleware::from_fn(with_timeout))
        .layer(middleware::from_fn(in_span))
        .layer(middleware::from_fn_with_state(names, host::check))
}

async fn with_timeout(request: Request, next: Next) -> Response {
    let answer = timeout(REQUEST_TIMEOUT, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

/// Serves the whole API on the socket until the task is dropped.
pub async fn serve_socket(listener: UnixListener, control_plane: Shared) -> io::Result<()> {
    let all = read_routes(get(readyz))
        .route("/v1/policy/rollback", post(roll_back))
        .route("/v1/policy/accept", post(accept_removal))
        .route("/v1/policy/apply", post(apply).layer(DefaultBodyLimit::max(MAX_APPLY)))
        .route("/v1/endpoints/{namespace}/{name}/accept", post(accept_endpoints))
        .route("/v1/proxies", post(bootstrap))
        .route("/v1/proxies/{id}/revoke", post(revoke_one))
        .route("/v1/revocations", post(revoke))
        .route("/v1/proxies/{id}/services", post(set_services))
        .route("/v1/tokens", get(tokens).post(create_tokens))
        .route("/v1/tokens/{id}/revoke", post(revoke_token))
        .route("/v1/journal", get(journal))
        .route("/v1/store/export", post(export::export).layer(Extension(Exports::default())))
        .route("/v1/plan", post(plan).layer(DefaultBodyLimit::max(MAX_PLAN)));
    let all = all.layer(middleware::from_fn(in_span)).with_state(control_plane);
    axum::serve(listener, all.into_make_service_with_connect_info::<Operator>()).await
}

/// The failure to create the admin socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the admin socket `{path}`")]
pub struct BindError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Creates the socket at `path`, for its owner alone. An existing file there is the socket of a dead process: the
/// caller holds the lock of the state folder.
pub fn bind_socket(path: &Path) -> Result<UnixListener, BindError> {
    use std::os::unix::fs::PermissionsExt;
    let bind = || {
        match fs_err::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // The folder has mode 0700 already, so that no other user can connect in between.
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    bind().map_err(|source| BindError { path: path.to_owned(), source })
}

/// The routes of both listeners. They differ in `readyz`.
fn read_routes(readyz: MethodRouter<Shared>) -> Router<Shared> {
    let questions = Router::new()
        .route("/v1/explain", explain_route(ControlPlane::explain))
        .route("/v1/explain/egress", explain_route(ControlPlane::explain_outward))
        .route("/v1/explain/ingress", explain_route(ControlPlane::explain_inward))
        .route("/v1/endpoints", get(all_endpoints))
        .route("/v1/endpoints/{namespace}/{name}", get(endpoints))
        .route("/v1/traffic", get(all_traffic))
        .route("/v1/traffic/{namespace}/{name}", get(traffic))
        .route("/metrics", get(metrics))
        .route("/v1/policy/revisions", get(policy_revisions))
        .route("/v1/audit", get(audit))
        .route("/v1/convergence", get(convergence))
        .route("/v1/policy/wait", post(policy_wait))
        .layer(Extension(Waits::default()))
        .route("/debug/{name}", get(debug))
        .route("/v1/certificates", get(certificates))
        .route("/v1/proxies", get(proxies))
        .route("/v1/proxies/{id}", get(proxy))
        .route("/v1/proxies/{id}/config", get(proxy_config))
        .layer(Extension(ReadQueue::default()))
        .layer(DefaultBodyLimit::max(MAX_QUESTION));
    Router::new().route("/healthz", get(healthz)).route("/readyz", readyz).merge(questions)
}

/// Runs a request in a span, which marks the lines that it logs.
async fn in_span(request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let span = tracing::debug_span!("request", %method, path);
    next.run(request).instrument(span).await
}
