//! The handlers that take a proxy out of service, and return it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use ironmesh_api::{CordonChange, CordonRequest, CordonResult};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{Body, Parameter};
use super::work_queues::{Changes, JsonBody, blocking};
use super::{ApiError, Shared};

/// How long a cordon waits for the callers.
const WAIT: Duration = Duration::from_secs(15);

/// The least pause between two examinations of one wait.
const PAUSE: Duration = Duration::from_millis(20);

/// The most requests that wait for callers at once. Further ones are answered with the present state.
const MAX_CORDON_WAITS: usize = 32;

/// Limits the requests that wait for callers.
#[derive(Debug, Clone)]
pub(super) struct CordonWaits(Arc<Semaphore>);

impl Default for CordonWaits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CORDON_WAITS)))
    }
}

/// The response to a change, once it is known.
type CordonResponse =
    Pin<Box<dyn Future<Output = Result<JsonBody<CordonResult>, ApiError>> + Send>>;

/// The handler of one kind of change. It answers when all callers have ACKed the change, or the wait is over.
pub(super) fn change_cordon(
    change: CordonChange,
) -> impl Fn(
    State<Shared>,
    Changes,
    Extension<CordonWaits>,
    Parameter<String>,
    Body<CordonRequest>,
) -> CordonResponse
+ Clone
+ Send
+ Sync
+ 'static {
    move |State(control_plane), changes, Extension(waits), Parameter(id), Body(request)| {
        Box::pin(async move {
            let deadline = Instant::now() + WAIT;
            let state = Arc::clone(&control_plane);
            let changed = changes
                .run(move |principal| state.change_cordon(principal, &id, change, &request))
                .await?;
            let result = match waits.0.try_acquire() {
                Ok(_wait) if !changed.dry_run => {
                    until_acked(control_plane, changed, deadline).await?
                }
                _ => changed,
            };
            blocking(move || JsonBody::encode(&result)).await
        })
    }
}

/// Waits until all callers have ACKed a change.
async fn until_acked(
    control_plane: Shared,
    changed: CordonResult,
    deadline: Instant,
) -> Result<CordonResult, ApiError> {
    let mut result = changed;
    while !result.acked {
        // Before the look: a change after it ends the pause.
        let change = control_plane.next_change();
        let (id, state) = (result.id, Arc::clone(&control_plane));
        let now = blocking(move || state.cordon_state(id)).await?;
        let is_other = now.cordon.as_ref().map(|cordon| cordon.since)
            != result.cordon.as_ref().map(|cordon| cordon.since);
        // What the request has changed stays as it was answered first.
        let CordonResult { dry_run, is_old, ended, endpoints, without_endpoint, .. } = result;
        result = CordonResult { dry_run, is_old, ended, endpoints, without_endpoint, ..now };
        let pause = sleep(PAUSE);
        if result.acked || is_other || timeout_at(deadline, change).await.is_err() {
            break;
        }
        pause.await;
    }
    if !result.acked {
        tracing::warn!(
            proxy = %result.id,
            laggards = ?result.laggards,
            control_planes = ?result.pending_control_planes,
            "the cordon of a proxy is not ACKed by all callers"
        );
    }
    Ok(result)
}
