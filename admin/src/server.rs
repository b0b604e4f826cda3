//! The server of the admin API: its two listeners, and its handlers.

mod connections;
mod host;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Extension, Path as Parameter, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use ironmesh_analysis::verdict::{EgressQuestion, EgressVerdict, IngressQuestion, IngressVerdict};
use ironmesh_analysis::{Question, Verdict};
use ironmesh_catalog::{InvalidName, ServiceName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{Instrument, Span};

use crate::api::{
    AuditView, BootstrapRequest, BootstrapResponse, ErrorBody, ProxyConfig, ProxyDetail, Readiness,
    RevisionList, RevokeRequest, Revoked, RollbackRequest, RolledBack,
};
use crate::convergence::{ConvergenceView, MAX_WAIT, WaitAnswer, WaitOutcome, WaitRequest};
use crate::endpoints::{AcceptedEndpoints, EndpointList};
use crate::plan::{MAX_PLAN, Plan, PlanRequest};
use crate::proxies::{ProxyPage, ProxyQuery};
use crate::removals::{AcceptRemovalRequest, AcceptedRemoval};

/// The interface of a running control plane for the admin API.
pub trait ControlPlane: Send + Sync + 'static {
    /// Whether the control plane is ready, and the state of policy and mesh.
    fn readiness(&self) -> Readiness;

    /// A page of the enrolled proxies.
    fn proxies(&self, query: &ProxyQuery) -> Result<ProxyPage, ApiError>;

    /// The details of the proxy with this name, or whose UUID is or begins with `id`. Takes as long as examining all its resources.
    fn proxy(&self, id: &str) -> Result<ProxyDetail, ApiError>;

    /// All resources of the proxy with this name, or whose UUID is or begins with `id`. Takes as long as encoding them.
    fn proxy_config(&self, id: &str) -> Result<ProxyConfig, ApiError>;

    /// Revokes the proxy whose UUID is or begins with `id`, for good. May block on the store.
    fn revoke(&self, id: &str, request: &RevokeRequest) -> Result<Revoked, ApiError>;

    /// The endpoints of a service, or of all. Takes as long as examining all of them.
    fn endpoints(&self, service: Option<&ServiceName>) -> Result<EndpointList, ApiError>;

    /// Accepts the endpoint removal that is held back for a service. Blocks until that is done.
    fn accept_endpoints(&self, service: &ServiceName) -> Result<AcceptedEndpoints, ApiError>;

    /// Whether policy allows a call, and why.
    fn explain(&self, question: &Question) -> Result<Verdict, ApiError>;

    /// Whether policy allows a call that leaves the mesh, and why.
    fn explain_outward(&self, question: &EgressQuestion) -> Result<EgressVerdict, ApiError>;

    /// Whether policy allows a call from outside of the mesh, and why.
    fn explain_inward(&self, question: &IngressQuestion) -> Result<IngressVerdict, ApiError>;

    /// Predicts what other policy documents would change, and changes nothing. Takes as long as compiling all proxies
    /// twice, and stops early if the client disconnects.
    fn plan(&self, request: &PlanRequest, cancellation: &Cancellation) -> Result<Plan, ApiError>;

    /// The stored policy revisions. May block on the store.
    fn policy_revisions(&self) -> Result<RevisionList, ApiError>;

    /// Makes an earlier policy revision active again. May block on the store.
    fn roll_back(&self, request: RollbackRequest) -> Result<RolledBack, ApiError>;

    /// Activates a removal from the policy folder that is held back. May block on the store.
    fn accept_removal(&self, request: AcceptRemovalRequest) -> Result<AcceptedRemoval, ApiError>;

    /// How far all proxies have ACKed what they should have. Takes as long as listing those that have not.
    fn convergence(&self) -> ConvergenceView;

    /// Whether a policy revision is synced now. Takes as long as listing the proxies that have not ACKed everything.
    fn policy_wait(&self, request: &WaitRequest) -> Result<WaitAnswer, ApiError>;

    /// The next change of what [`ControlPlane::policy_wait`] answers.
    fn next_change(&self) -> NextChange;

    /// The calls that strict mode would deny, of services in audit mode.
    fn audit(&self) -> AuditView;

    /// The metrics, in the OpenMetrics text format.
    fn metrics(&self) -> String;

    /// Enrolls proxies, all or none. May block on the store.
    fn bootstrap(&self, request: &BootstrapRequest) -> Result<BootstrapResponse, ApiError>;
}

/// Resolves at a change.
pub type NextChange = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Detects that the client no longer waits for its answer.
#[derive(Debug)]
pub struct Cancellation(Weak<()>);

impl Cancellation {
    /// Whether the client no longer waits.
    pub fn is_cancelled(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// The error of an admin API request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The named object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The control plane is busy, or not ready.
    #[error("{0}")]
    Busy(String),
    /// The control plane failed.
    #[error("{0}")]
    Internal(String),
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(ErrorBody { error: self.to_string() })).into_response()
    }
}

type Shared = Arc<dyn ControlPlane>;

/// The most bytes of a [`Question`] as JSON: all of [`ironmesh_analysis::Request::MAX_BYTES`], if every byte is escaped.
const MAX_QUESTION: usize = 512 << 10;

/// How many expensive reads run at once: those whose cost grows with the mesh. Each may occupy a thread for as long as
/// comparing with all of policy takes, and any user of the machine may send them. Enrollment and revocation have other
/// threads, and so has xDS.
const MAX_CONCURRENT_READS: usize = 4;

/// How many expensive reads may run or wait.
const MAX_QUEUED_READS: usize = 64;

/// The queue of expensive reads of one listener.
#[derive(Debug, Clone)]
struct ReadQueue {
    queued: Arc<Semaphore>,
    workers: Arc<Semaphore>,
}

impl Default for ReadQueue {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { queued: semaphore(MAX_QUEUED_READS), workers: semaphore(MAX_CONCURRENT_READS) }
    }
}

impl ReadQueue {
    /// Answers a read when a worker is free, unless the queue is full.
    async fn answer<T: Serialize>(
        &self,
        read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<JsonBody, ApiError> {
        self.run(move || JsonBody::encode(&read()?)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let busy = |_| {
            ApiError::Busy(format!("{MAX_QUEUED_READS} requests are queued already: try again"))
        };
        let queued = Arc::clone(&self.queued).try_acquire_owned().map_err(busy)?;
        let worker = Arc::clone(&self.workers).acquire_owned().await;
        let worker = worker.map_err(|error| ApiError::Internal(error.to_string()))?;
        // Both are held as long as the thread runs, even if the client no longer waits.
        blocking(move || {
            let answer = read();
            drop((queued, worker));
            answer
        })
        .await
    }
}

/// An answer in JSON, encoded by the thread that computed it: the configuration of a proxy has megabytes.
struct JsonBody(Vec<u8>);

impl JsonBody {
    fn encode(answer: &impl Serialize) -> Result<Self, ApiError> {
        let json = serde_json::to_vec(answer);
        json.map(Self).map_err(|error| ApiError::Internal(error.to_string()))
    }
}

impl IntoResponse for JsonBody {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// The most requests that wait for a policy revision at once.
const MAX_WAITS: usize = 64;

/// Limits the requests that wait for a policy revision.
#[derive(Debug, Clone)]
struct Waits(Arc<Semaphore>);

impl Default for Waits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_WAITS)))
    }
}

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
        .route("/v1/endpoints/{namespace}/{name}/accept", post(accept_endpoints))
        .route("/v1/proxies", post(bootstrap))
        .route("/v1/proxies/{id}/revoke", post(revoke))
        .route("/v1/plan", post(plan).layer(DefaultBodyLimit::max(MAX_PLAN)));
    let all = all.layer(middleware::from_fn(in_span));
    axum::serve(listener, all.with_state(control_plane)).await
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
        .route("/metrics", get(metrics))
        .route("/v1/policy/revisions", get(policy_revisions))
        .route("/v1/audit", get(audit))
        .route("/v1/convergence", get(convergence))
        .route("/v1/policy/wait", post(policy_wait))
        .layer(Extension(Waits::default()))
        .route("/v1/proxies", get(proxies))
        .route("/v1/proxies/{id}", get(proxy))
        .route("/v1/proxies/{id}/config", get(proxy_config))
        .layer(Extension(ReadQueue::default()))
        .layer(DefaultBodyLimit::max(MAX_QUESTION));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", readyz)
        .merge(questions)
}

/// Runs a request in a span, which marks the lines that it logs.
async fn in_span(request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let span = tracing::debug_span!("request", %method, path);
    next.run(request).instrument(span).await
}

async fn metrics(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
) -> Result<impl IntoResponse, ApiError> {
    let text = queue.run(move || Ok(control_plane.metrics())).await?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, content_type)], text))
}

async fn readyz(State(control_plane): State<Shared>) -> Result<Response, ApiError> {
    blocking(move || with_status(&control_plane.readiness())).await
}

/// `/readyz` without lines of policy, for clients that may not be allowed to read policy.
async fn readyz_without_lines(State(control_plane): State<Shared>) -> Result<Response, ApiError> {
    let answer = move || {
        let mut readiness = control_plane.readiness();
        readiness.policy.annotated.clear();
        with_status(&readiness)
    };
    blocking(answer).await
}

fn with_status(readiness: &Readiness) -> Result<Response, ApiError> {
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, JsonBody::encode(readiness)?).into_response())
}

async fn audit(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
) -> Result<JsonBody, ApiError> {
    queue.answer(move || Ok(control_plane.audit())).await
}

async fn convergence(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
) -> Result<JsonBody, ApiError> {
    queue.answer(move || Ok(control_plane.convergence())).await
}

/// Answers when the wait is decided, or its time is over.
async fn policy_wait(
    State(control_plane): State<Shared>,
    Extension(waits): Extension<Waits>,
    Json(request): Json<WaitRequest>,
) -> Result<JsonBody, ApiError> {
    let busy = |_| ApiError::Busy(format!("{MAX_WAITS} requests wait already: try again"));
    let _wait = waits.0.try_acquire().map_err(busy)?;
    let deadline = Instant::now() + Duration::from_millis(request.timeout_ms).min(MAX_WAIT);
    loop {
        // Before the look: a change after it ends the pause.
        let change = control_plane.next_change();
        let (query, state) = (request.clone(), Arc::clone(&control_plane));
        let answer = blocking(move || state.policy_wait(&query)).await?;
        let is_decided = matches!(answer.outcome, WaitOutcome::Synced | WaitOutcome::Superseded);
        if is_decided || timeout_at(deadline, change).await.is_err() {
            return blocking(move || JsonBody::encode(&answer)).await;
        }
    }
}

async fn proxies(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
    Query(query): Query<ProxyQuery>,
) -> Result<JsonBody, ApiError> {
    queue.answer(move || control_plane.proxies(&query)).await
}

async fn policy_revisions(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
) -> Result<JsonBody, ApiError> {
    queue.answer(move || control_plane.policy_revisions()).await
}

async fn roll_back(
    State(control_plane): State<Shared>,
    Json(request): Json<RollbackRequest>,
) -> Result<JsonBody, ApiError> {
    blocking(move || JsonBody::encode(&control_plane.roll_back(request)?)).await
}

async fn accept_removal(
    State(control_plane): State<Shared>,
    Json(request): Json<AcceptRemovalRequest>,
) -> Result<JsonBody, ApiError> {
    blocking(move || JsonBody::encode(&control_plane.accept_removal(request)?)).await
}

async fn bootstrap(
    State(control_plane): State<Shared>,
    Json(request): Json<BootstrapRequest>,
) -> Result<JsonBody, ApiError> {
    blocking(move || JsonBody::encode(&control_plane.bootstrap(&request)?)).await
}

async fn proxy(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
    Parameter(id): Parameter<String>,
) -> Result<JsonBody, ApiError> {
    queue.answer(move || control_plane.proxy(&id)).await
}

async fn proxy_config(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
    Parameter(id): Parameter<String>,
) -> Result<JsonBody, ApiError> {
    queue.answer(move || control_plane.proxy_config(&id)).await
}

async fn revoke(
    State(control_plane): State<Shared>,
    Parameter(id): Parameter<String>,
    Json(request): Json<RevokeRequest>,
) -> Result<JsonBody, ApiError> {
    blocking(move || JsonBody::encode(&control_plane.revoke(&id, &request)?)).await
}

/// The query of `/v1/explain…`.
#[derive(Debug, Deserialize)]
struct QuestionQuery {
    /// The question, as JSON.
    question: String,
}

/// The route of one kind of question: in the query, or in the body if it is too long for that.
fn explain_route<Q, V>(
    answer: fn(&dyn ControlPlane, &Q) -> Result<V, ApiError>,
) -> MethodRouter<Shared>
where
    Q: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
{
    let in_query =
        move |State(control_plane): State<Shared>,
              Extension(queue): Extension<ReadQueue>,
              Query(QuestionQuery { question }): Query<QuestionQuery>| async move {
            let question: Q = serde_json::from_str(&question).map_err(|error| {
                ApiError::BadRequest(format!("`question` is malformed: {error}"))
            })?;
            queue.answer(move || answer(&*control_plane, &question)).await
        };
    let in_body = move |State(control_plane): State<Shared>,
                        Extension(queue): Extension<ReadQueue>,
                        Json(question): Json<Q>| async move {
        queue.answer(move || answer(&*control_plane, &question)).await
    };
    get(in_query).post(in_body)
}

async fn all_endpoints(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
) -> Result<JsonBody, ApiError> {
    queue.answer(move || control_plane.endpoints(None)).await
}

async fn endpoints(
    State(control_plane): State<Shared>,
    Extension(queue): Extension<ReadQueue>,
    Parameter(service): Parameter<(String, String)>,
) -> Result<JsonBody, ApiError> {
    let service = service_name(&service)?;
    queue.answer(move || control_plane.endpoints(Some(&service))).await
}

async fn accept_endpoints(
    State(control_plane): State<Shared>,
    Parameter(service): Parameter<(String, String)>,
) -> Result<JsonBody, ApiError> {
    let service = service_name(&service)?;
    blocking(move || JsonBody::encode(&control_plane.accept_endpoints(&service)?)).await
}

/// The service that a path names by its namespace and its name.
fn service_name((namespace, name): &(String, String)) -> Result<ServiceName, ApiError> {
    let text = format!("{namespace}/{name}");
    text.parse().map_err(|invalid: InvalidName| ApiError::BadRequest(invalid.to_string()))
}

async fn plan(
    State(control_plane): State<Shared>,
    Json(request): Json<PlanRequest>,
) -> Result<JsonBody, ApiError> {
    let client = Arc::new(());
    let cancellation = Cancellation(Arc::downgrade(&client));
    let planned =
        blocking(move || JsonBody::encode(&control_plane.plan(&request, &cancellation)?)).await;
    // Dropped earlier if this future is dropped, because the client has disconnected.
    drop(client);
    planned
}

/// Runs a task that may block or compute for long on a thread of its own.
async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let span = Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(task)).await;
    done.map_err(|error| ApiError::Internal(error.to_string()))?
}
