//! The serving side.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path as Parameter, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ironmesh_catalog::{Question, Verdict};
use serde::Deserialize;
use tokio::net::{TcpListener, UnixListener};

use crate::api::{
    AuditView, BootstrapRequest, BootstrapResponse, ErrorBody, ProxyConfig, ProxyDetail, ProxyView,
    Readiness, RevisionList, RevokeRequest, Revoked, RollbackRequest, RolledBack,
};
use crate::plan::{MAX_PLAN, Plan, PlanRequest};

/// The control plane, as far as it is administered.
pub trait ControlPlane: Send + Sync + 'static {
    /// Whether it serves.
    fn readiness(&self) -> Readiness;

    /// All proxies that have joined.
    fn proxies(&self) -> Vec<ProxyView>;

    /// All that is known of the proxy whose UUID is or begins with `id`. Takes as long as looking at all that
    /// it is to have does.
    fn proxy(&self, id: &str) -> Result<ProxyDetail, Refusal>;

    /// All that the proxy is to have whose UUID is or begins with `id`. Takes as long as encoding it does.
    fn proxy_config(&self, id: &str) -> Result<ProxyConfig, Refusal>;

    /// Shuts the proxy out whose UUID is `id`, for good. May block on the store.
    fn revoke(&self, id: &str, request: &RevokeRequest) -> Result<Revoked, Refusal>;

    /// Whether a call would be let through, and why.
    fn explain(&self, question: &Question) -> Result<Verdict, Refusal>;

    /// What would change if other documents were the policy. It changes nothing. Takes as long as compiling
    /// all proxies twice does.
    fn plan(&self, request: &PlanRequest) -> Result<Plan, Refusal>;

    /// The policies that can be rolled back to. May block on the store.
    fn policy_revisions(&self) -> Result<RevisionList, Refusal>;

    /// Puts a policy of before into force again. May block on the store.
    fn roll_back(&self, request: RollbackRequest) -> Result<RolledBack, Refusal>;

    /// What strict would deny of the calls of services in audit.
    fn audit(&self) -> AuditView;

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
    /// Because somebody else is at it.
    #[error("{0}")]
    Busy(String),
    /// Because of us.
    #[error("{0}")]
    Failure(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
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
        .route("/v1/policy/rollback", post(roll_back))
        .route("/v1/proxies", post(bootstrap))
        .route("/v1/proxies/{id}/revoke", post(revoke))
        .route("/v1/plan", post(plan).layer(DefaultBodyLimit::max(MAX_PLAN)));
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
        .route("/v1/explain", get(explain))
        .route("/v1/policy/revisions", get(policy_revisions))
        .route("/v1/audit", get(audit))
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

async fn audit(State(control_plane): State<Shared>) -> Json<AuditView> {
    Json(control_plane.audit())
}

async fn proxies(State(control_plane): State<Shared>) -> Json<Vec<ProxyView>> {
    Json(control_plane.proxies())
}

async fn policy_revisions(
    State(control_plane): State<Shared>,
) -> Result<Json<RevisionList>, Refusal> {
    blocking(move || control_plane.policy_revisions()).await
}

async fn roll_back(
    State(control_plane): State<Shared>,
    Json(request): Json<RollbackRequest>,
) -> Result<Json<RolledBack>, Refusal> {
    blocking(move || control_plane.roll_back(request)).await
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
    blocking(move || control_plane.proxy(&id)).await
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

/// The query of `/v1/explain`.
#[derive(Debug, Deserialize)]
struct Asked {
    /// A [`Question`], as JSON.
    question: String,
}

async fn explain(
    State(control_plane): State<Shared>,
    Query(Asked { question }): Query<Asked>,
) -> Result<Json<Verdict>, Refusal> {
    let question: Question = serde_json::from_str(&question)
        .map_err(|error| Refusal::Request(format!("`question` is none: {error}")))?;
    blocking(move || control_plane.explain(&question)).await
}

async fn plan(
    State(control_plane): State<Shared>,
    Json(request): Json<PlanRequest>,
) -> Result<Json<Plan>, Refusal> {
    blocking(move || control_plane.plan(&request)).await
}

/// Lets what takes its time take it where others do not wait for it.
async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    let done = tokio::task::spawn_blocking(task).await;
    done.map_err(|error| Refusal::Failure(error.to_string()))?.map(Json)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;

    use super::*;

    /// Looks at a proxy until it is let go.
    struct Slow {
        has_begun: Arc<Notify>,
        let_go: Mutex<mpsc::Receiver<()>>,
    }

    impl ControlPlane for Slow {
        fn proxy(&self, id: &str) -> Result<ProxyDetail, Refusal> {
            self.has_begun.notify_one();
            let waited = self.let_go.lock().unwrap().recv_timeout(Duration::from_secs(30));
            let failed = waited.map_err(|error| Refusal::Failure(error.to_string()));
            failed.and_then(|()| Err(Refusal::Unknown(format!("there is no {id}"))))
        }

        fn readiness(&self) -> Readiness {
            unreachable!()
        }

        fn proxies(&self) -> Vec<ProxyView> {
            unreachable!()
        }

        fn proxy_config(&self, _: &str) -> Result<ProxyConfig, Refusal> {
            unreachable!()
        }

        fn revoke(&self, _: &str, _: &RevokeRequest) -> Result<Revoked, Refusal> {
            unreachable!()
        }

        fn audit(&self) -> AuditView {
            unreachable!()
        }

        fn explain(&self, _: &Question) -> Result<Verdict, Refusal> {
            unreachable!()
        }

        fn plan(&self, _: &PlanRequest) -> Result<Plan, Refusal> {
            unreachable!()
        }

        fn policy_revisions(&self) -> Result<RevisionList, Refusal> {
            unreachable!()
        }

        fn roll_back(&self, _: RollbackRequest) -> Result<RolledBack, Refusal> {
            unreachable!()
        }

        fn metrics(&self) -> String {
            unreachable!()
        }

        fn bootstrap(&self, _: &BootstrapRequest) -> Result<BootstrapResponse, Refusal> {
            unreachable!()
        }
    }

    // All runs on one thread here.
    #[tokio::test]
    async fn who_asks_for_all_of_a_proxy_has_nobody_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (has_begun, (go, let_go)) = (Arc::<Notify>::default(), mpsc::channel());
        let slow = Slow { has_begun: Arc::clone(&has_begun), let_go: Mutex::new(let_go) };
        tokio::spawn(serve_reads(listener, Arc::new(slow)));
        let get = async |path: &str| {
            let mut io = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            io.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            io.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let others = async {
            has_begun.notified().await;
            let answer = get("/healthz").await;
            go.send(()).unwrap();
            answer
        };
        let (slow, healthy) = tokio::join!(get("/v1/proxies/x"), others);
        assert!(healthy.starts_with("HTTP/1.1 200"), "{healthy}");
        assert!(slow.starts_with("HTTP/1.1 404"), "it did not wait in vain: {slow}");
    }
}
