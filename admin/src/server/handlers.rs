//! The handlers of the admin API, one for each route.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use ironmesh_api::{
    AcceptRemovalRequest, AcceptedEndpoints, AcceptedRemoval, Applied, ApplyRequest, AuditView,
    BootstrapRequest, BootstrapResponse, CertificateList, ChangedServices, ConvergenceView,
    CreatedTokens, EndpointList, JournalPage, MAX_WAIT, Plan, PlanRequest, ProxyConfig,
    ProxyDetail, ProxyPage, ProxyQuery, RevisionList, RevokeRequest, RevokeTokenRequest, Revoked,
    RevokedProxies, RollbackRequest, RolledBack, ServicesRequest, TokenList, TokenRequest,
    TokenView, TrafficView, WaitAnswer, WaitOutcome, WaitRequest, apply_too_large,
};
use ironmesh_catalog::{JournalQuery, TokenId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::ToSchema;

use super::error::{Body, InQuery, Parameter, Question, ServiceInPath};
use super::openapi::{OpenMetrics, ReadinessReport};
use super::principal::{Identity, Permission, Principal};
use super::work_queues::{Changes, JsonBody, Reads, WorkQueues, blocking};
use super::{ApiError, Cancellation, ControlPlane, Shared};

/// The most requests that wait for a policy revision at once.
const MAX_WAITS: usize = 32;

/// The least pause between two examinations of one wait, each of which takes as long as counting the laggards.
const WAIT_PAUSE: Duration = Duration::from_millis(20);

/// Limits the requests that wait for a policy revision: by users of the admin port, and by operators.
#[derive(Debug, Clone)]
pub(super) struct Waits {
    local: Arc<Semaphore>,
    operators: Arc<Semaphore>,
}

impl Default for Waits {
    fn default() -> Self {
        let [local, operators] = [(); 2].map(|()| Arc::new(Semaphore::new(MAX_WAITS)));
        Self { local, operators }
    }
}

pub(super) async fn metrics(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<OpenMetrics, ApiError> {
    reads.send(move || Ok(control_plane.metrics().into_bytes())).await.map(OpenMetrics)
}

pub(super) async fn healthz(State(control_plane): State<Shared>) -> Result<&'static str, ApiError> {
    control_plane.liveness().map(|()| "ok\n")
}

/// `/debug/{name}`: what a server of sidecars shows about itself.
pub(super) async fn debug(
    State(control_plane): State<Shared>,
    reads: Reads,
    Parameter(name): Parameter<String>,
) -> Result<JsonBody<serde_json::Value>, ApiError> {
    reads.answer(move || control_plane.debug(&name)).await
}

pub(super) async fn readyz(
    State(control_plane): State<Shared>,
    principal: Principal,
) -> Result<ReadinessReport, ApiError> {
    let answer = move || {
        let mut readiness = control_plane.readiness();
        if !principal.may(Permission::ReadPolicy) {
            // They have lines of policy.
            readiness.policy.annotated.clear();
        }
        let report = JsonBody::encode(&readiness)?;
        Ok(ReadinessReport { is_ready: readiness.ready, report })
    };
    blocking(answer).await
}

pub(super) async fn audit(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<AuditView>, ApiError> {
    reads.answer(move || Ok(control_plane.audit())).await
}

pub(super) async fn convergence(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<ConvergenceView>, ApiError> {
    reads.answer(move || Ok(control_plane.convergence())).await
}

/// Answers when the wait is decided, or its time is over.
pub(super) async fn policy_wait(
    State(control_plane): State<Shared>,
    principal: Principal,
    Extension(waits): Extension<Waits>,
    Body(request): Body<WaitRequest>,
) -> Result<JsonBody<WaitAnswer>, ApiError> {
    let busy = |_| ApiError::Busy(format!("{MAX_WAITS} requests wait already: try again"));
    let is_local = principal.identity == Identity::Local;
    let waits = if is_local { &waits.local } else { &waits.operators };
    let _wait = waits.try_acquire().map_err(busy)?;
    let deadline = Instant::now() + Duration::from_millis(request.timeout_ms).min(MAX_WAIT);
    loop {
        // Before the look: a change after it ends the pause.
        let change = control_plane.next_change();
        let (query, state) = (request.clone(), Arc::clone(&control_plane));
        let answer = blocking(move || state.policy_wait(&query)).await?;
        let is_decided = matches!(answer.outcome, WaitOutcome::Synced | WaitOutcome::Superseded);
        let pause = sleep(WAIT_PAUSE);
        if is_decided || timeout_at(deadline, change).await.is_err() {
            return blocking(move || JsonBody::encode(&answer)).await;
        }
        pause.await;
    }
}

pub(super) async fn proxies(
    State(control_plane): State<Shared>,
    reads: Reads,
    InQuery(query): InQuery<ProxyQuery>,
) -> Result<JsonBody<ProxyPage>, ApiError> {
    reads.answer(move || control_plane.proxies(&query)).await
}

pub(super) async fn certificates(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<CertificateList>, ApiError> {
    reads.answer(move || Ok(control_plane.certificates())).await
}

pub(super) async fn policy_revisions(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<RevisionList>, ApiError> {
    reads.answer(move || control_plane.policy_revisions()).await
}

pub(super) async fn roll_back(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<RollbackRequest>,
) -> Result<JsonBody<RolledBack>, ApiError> {
    changes.answer(move |principal| control_plane.roll_back(principal, request)).await
}

pub(super) async fn accept_removal(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<AcceptRemovalRequest>,
) -> Result<JsonBody<AcceptedRemoval>, ApiError> {
    changes.answer(move |principal| control_plane.accept_removal(principal, request)).await
}

pub(super) async fn apply(
    State(control_plane): State<Shared>,
    changes: Changes,
    request: Result<Body<ApplyRequest>, ApiError>,
) -> Result<JsonBody<Applied>, ApiError> {
    let Body(request) = request.map_err(|error| match error {
        ApiError::Http { status: StatusCode::PAYLOAD_TOO_LARGE, .. } => {
            ApiError::BadRequest(apply_too_large())
        }
        other => other,
    })?;
    changes.answer(move |principal| control_plane.apply(principal, request)).await
}

pub(super) async fn journal(
    State(control_plane): State<Shared>,
    reads: Reads,
    InQuery(query): InQuery<JournalQuery>,
) -> Result<JsonBody<JournalPage>, ApiError> {
    reads.answer(move || control_plane.journal(&query)).await
}

pub(super) async fn bootstrap(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<BootstrapRequest>,
) -> Result<JsonBody<BootstrapResponse>, ApiError> {
    changes.answer(move |principal| control_plane.bootstrap(principal, &request)).await
}

pub(super) async fn create_tokens(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<TokenRequest>,
) -> Result<JsonBody<CreatedTokens>, ApiError> {
    changes.answer(move |principal| control_plane.create_tokens(principal, &request)).await
}

pub(super) async fn tokens(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<TokenList>, ApiError> {
    reads.answer(move || control_plane.tokens()).await
}

pub(super) async fn revoke_token(
    State(control_plane): State<Shared>,
    changes: Changes,
    Parameter(id): Parameter<TokenId>,
    Body(request): Body<RevokeTokenRequest>,
) -> Result<JsonBody<TokenView>, ApiError> {
    changes.answer(move |principal| control_plane.revoke_token(principal, &id, &request)).await
}

pub(super) async fn set_services(
    State(control_plane): State<Shared>,
    changes: Changes,
    Parameter(id): Parameter<String>,
    Body(request): Body<ServicesRequest>,
) -> Result<JsonBody<ChangedServices>, ApiError> {
    changes.answer(move |principal| control_plane.set_services(principal, &id, &request)).await
}

pub(super) async fn proxy(
    State(control_plane): State<Shared>,
    reads: Reads,
    Parameter(id): Parameter<String>,
) -> Result<JsonBody<ProxyDetail>, ApiError> {
    reads.answer(move || control_plane.proxy(&id)).await
}

pub(super) async fn proxy_config(
    State(control_plane): State<Shared>,
    reads: Reads,
    Parameter(id): Parameter<String>,
) -> Result<JsonBody<ProxyConfig>, ApiError> {
    reads.answer(move || control_plane.proxy_config(&id)).await
}

pub(super) async fn revoke(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<RevokeRequest>,
) -> Result<JsonBody<RevokedProxies>, ApiError> {
    changes.answer(move |principal| control_plane.revoke(principal, &request)).await
}

/// The body of a request to revoke the one proxy that its path names.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct RevokeOneRequest {
    reason: Option<String>,
}

pub(super) async fn revoke_one(
    State(control_plane): State<Shared>,
    changes: Changes,
    Parameter(id): Parameter<String>,
    Body(RevokeOneRequest { reason }): Body<RevokeOneRequest>,
) -> Result<JsonBody<Revoked>, ApiError> {
    let request = RevokeRequest { proxies: vec![id], reason, dry_run: false };
    let revoke = move |principal: &Principal| {
        let revoked = control_plane.revoke(principal, &request)?;
        // All or none are revoked.
        let one = revoked.proxies.into_iter().next();
        one.ok_or_else(|| ApiError::Internal("no proxy was revoked".to_owned()))
    };
    changes.answer(revoke).await
}

/// What a question of one kind is answered by.
type Answer<Q, V> = fn(&dyn ControlPlane, &Q) -> Result<V, ApiError>;

type Answered<V> = Pin<Box<dyn Future<Output = Result<JsonBody<V>, ApiError>> + Send>>;

/// The handler of one kind of question in the query.
pub(super) fn explain_by_query<Q, V>(
    answer: Answer<Q, V>,
) -> impl Fn(State<Shared>, Reads, Question<Q>) -> Answered<V> + Clone + Send + Sync + 'static
where
    Q: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
{
    move |State(control_plane), reads, Question(question)| {
        Box::pin(reads.answer(move || answer(&*control_plane, &question)))
    }
}

/// The handler of one kind of question in the body, where it may be longer.
pub(super) fn explain<Q, V>(
    answer: Answer<Q, V>,
) -> impl Fn(State<Shared>, Reads, Body<Q>) -> Answered<V> + Clone + Send + Sync + 'static
where
    Q: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
{
    move |State(control_plane), reads, Body(question)| {
        Box::pin(reads.answer(move || answer(&*control_plane, &question)))
    }
}

pub(super) async fn all_endpoints(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<EndpointList>, ApiError> {
    reads.answer(move || control_plane.endpoints(None)).await
}

pub(super) async fn endpoints(
    State(control_plane): State<Shared>,
    reads: Reads,
    ServiceInPath(service): ServiceInPath,
) -> Result<JsonBody<EndpointList>, ApiError> {
    reads.answer(move || control_plane.endpoints(Some(&service))).await
}

pub(super) async fn all_traffic(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<TrafficView>, ApiError> {
    reads.answer(move || control_plane.traffic(None)).await
}

pub(super) async fn traffic(
    State(control_plane): State<Shared>,
    reads: Reads,
    ServiceInPath(service): ServiceInPath,
) -> Result<JsonBody<TrafficView>, ApiError> {
    reads.answer(move || control_plane.traffic(Some(&service))).await
}

pub(super) async fn accept_endpoints(
    State(control_plane): State<Shared>,
    changes: Changes,
    ServiceInPath(service): ServiceInPath,
) -> Result<JsonBody<AcceptedEndpoints>, ApiError> {
    changes.answer(move |principal| control_plane.accept_endpoints(principal, &service)).await
}

pub(super) async fn plan(
    State(control_plane): State<Shared>,
    principal: Principal,
    Extension(queues): Extension<WorkQueues>,
    Body(request): Body<PlanRequest>,
) -> Result<JsonBody<Plan>, ApiError> {
    let client = Arc::new(());
    let cancellation = Cancellation(Arc::downgrade(&client));
    let plan = move || queues.encode(&principal, &control_plane.plan(&request, &cancellation)?);
    let planned = blocking(plan).await;
    // Dropped earlier if this future is dropped, because the client has disconnected.
    drop(client);
    planned
}
