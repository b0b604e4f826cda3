//! The threads on which requests block or compute, and the queues before them.
//!
//! All listeners share them: expensive reads have one budget, and changes have threads of their own, so that no number of
//! reads delays a change. Enrollment and xDS have other threads.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{Extension, FromRequestParts, Request};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Span;

use super::answer_memory::AnswerMemory;
use super::principal::{Identity, Principal};
use super::{ApiError, Shared};

/// How many expensive reads run at once: those whose cost grows with the mesh. Each may occupy a thread for as long as
/// comparing with all of policy takes.
pub(super) const MAX_CONCURRENT_READS: usize = 4;

/// How many expensive reads may run or wait.
pub(super) const MAX_QUEUED_READS: usize = 64;

/// How many of them may come from the admin port, so that other users of the machine do not displace operators.
pub(super) const MAX_LOCAL_READS: usize = MAX_QUEUED_READS / 2;

/// How many changes run at once, each of which may wait for the store: by the owner of the socket, and as many by
/// operators on the network, so that no credential delays its own revocation on the control plane's machine.
const MAX_CONCURRENT_CHANGES: usize = 4;

/// How many changes of each kind may run or wait.
const MAX_QUEUED_CHANGES: usize = 32;

/// How many look-ups of unknown logins run at once: of clients without a credential, which may be anyone. Each reads from
/// the store, and etcd answers all that wait at once.
pub(super) const MAX_CONCURRENT_LOOK_UPS: usize = 2;

/// How many of them may run or wait.
pub(super) const MAX_QUEUED_LOOK_UPS: usize = 32;

/// How many requests with a large body may be read or served at once.
const MAX_LARGE_BODIES: usize = 4;

/// The queues of all listeners.
#[derive(Debug, Clone)]
pub(super) struct WorkQueues {
    reads: WorkQueue,
    local_reads: Arc<Semaphore>,
    changes: WorkQueue,
    network_changes: WorkQueue,
    look_ups: WorkQueue,
    large_bodies: Arc<Semaphore>,
    answers: AnswerMemory,
}

impl WorkQueues {
    /// The answer in JSON to a request of `principal`, as part of the memory of answers.
    pub(super) fn encode<T: Serialize>(
        &self,
        principal: &Principal,
        answer: &T,
    ) -> Result<JsonBody<T>, ApiError> {
        let is_local = principal.identity == Identity::Local;
        Ok(JsonBody(self.answers.hold(json(answer)?, is_local)?, PhantomData))
    }

    /// The permit of a request with a large body.
    pub(super) fn large_body(request: &Request) -> Result<OwnedSemaphorePermit, ApiError> {
        let queues = request.extensions().get::<Self>();
        let queues = queues.ok_or_else(|| ApiError::Internal("no queues".to_owned()))?;
        place_in(&queues.large_bodies, MAX_LARGE_BODIES)
    }

    /// Begins a session by a credential that is known: a change like others.
    pub(super) async fn log_in<T: Send + 'static>(
        &self,
        begin: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.network_changes.run(None, begin).await
    }

    /// Looks up what a client presents that may be in the store.
    pub(super) async fn look_up<T: Send + 'static>(
        &self,
        look_up: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.look_ups.run(None, look_up).await
    }
}

impl Default for WorkQueues {
    fn default() -> Self {
        Self {
            reads: WorkQueue::new(MAX_QUEUED_READS, MAX_CONCURRENT_READS),
            local_reads: Arc::new(Semaphore::new(MAX_LOCAL_READS)),
            changes: WorkQueue::new(MAX_QUEUED_CHANGES, MAX_CONCURRENT_CHANGES),
            network_changes: WorkQueue::new(MAX_QUEUED_CHANGES, MAX_CONCURRENT_CHANGES),
            look_ups: WorkQueue::new(MAX_QUEUED_LOOK_UPS, MAX_CONCURRENT_LOOK_UPS),
            large_bodies: Arc::new(Semaphore::new(MAX_LARGE_BODIES)),
            answers: AnswerMemory::default(),
        }
    }
}

#[derive(Debug, Clone)]
struct WorkQueue {
    /// The most tasks that may run or wait.
    most: usize,
    queued: Arc<Semaphore>,
    workers: Arc<Semaphore>,
}

impl WorkQueue {
    fn new(most: usize, workers: usize) -> Self {
        let (queued, workers) = (Semaphore::new(most), Semaphore::new(workers));
        Self { most, queued: Arc::new(queued), workers: Arc::new(workers) }
    }

    /// Runs a task when a worker is free, unless the queue is full. Its places, with the `share` of the client, are held as
    /// long as the thread runs, even if the client no longer waits.
    async fn run<T: Send + 'static>(
        &self,
        share: Option<OwnedSemaphorePermit>,
        task: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = place_in(&self.queued, self.most)?;
        let worker = Arc::clone(&self.workers).acquire_owned().await;
        let held = (place, worker.map_err(|error| ApiError::Internal(error.to_string()))?, share);
        blocking(move || {
            let answer = task();
            drop(held);
            answer
        })
        .await
    }
}

fn place_in(queue: &Arc<Semaphore>, most: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    let busy = |_| ApiError::Busy(format!("{most} requests are queued already: try again"));
    Arc::clone(queue).try_acquire_owned().map_err(busy)
}

/// Answers the expensive reads of a principal.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) principal: Principal,
    queues: WorkQueues,
}

impl Reads {
    /// Answers a read when a worker is free, unless the queue is full.
    pub(super) async fn answer<T: Serialize + 'static>(
        self,
        read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<JsonBody<T>, ApiError> {
        let bytes = self.send(move || json(&read()?)).await?;
        Ok(JsonBody(bytes, PhantomData))
    }

    /// The bytes of an answer, as part of the memory of answers.
    pub(super) async fn send(
        self,
        read: impl FnOnce() -> Result<Vec<u8>, ApiError> + Send + 'static,
    ) -> Result<Bytes, ApiError> {
        let (memory, is_local) =
            (self.queues.answers.clone(), self.principal.identity == Identity::Local);
        self.run(move || memory.hold(read()?, is_local)).await
    }

    async fn run<T: Send + 'static>(
        self,
        read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self { principal, queues } = self;
        let share = (principal.identity == Identity::Local)
            .then(|| place_in(&queues.local_reads, MAX_LOCAL_READS))
            .transpose()?;
        queues.reads.run(share, read).await
    }
}

/// Makes the changes of a principal.
#[derive(Debug)]
pub(super) struct Changes {
    principal: Principal,
    queues: WorkQueues,
}

impl Changes {
    /// Makes a change when a worker is free, unless the queue is full, and answers with its result.
    pub(super) async fn answer<T: Serialize + 'static>(
        self,
        change: impl FnOnce(&Principal) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<JsonBody<T>, ApiError> {
        self.run(move |principal| JsonBody::encode(&change(principal)?)).await
    }

    pub(super) async fn run<T: Send + 'static>(
        self,
        change: impl FnOnce(&Principal) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self { principal, queues } = self;
        let queue = match principal.identity {
            Identity::Operator { .. } | Identity::LoggedInOwner { .. } => &queues.network_changes,
            Identity::User { .. } | Identity::Local => &queues.changes,
        };
        queue.run(None, move || change(&principal)).await
    }
}

async fn queues_of(parts: &mut Parts, state: &Shared) -> Result<(Principal, WorkQueues), ApiError> {
    let principal = Principal::from_request_parts(parts, state).await?;
    let queues = Extension::<WorkQueues>::from_request_parts(parts, state).await;
    let Extension(queues) = queues.map_err(|error| ApiError::Internal(error.body_text()))?;
    Ok((principal, queues))
}

impl FromRequestParts<Shared> for Reads {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self, ApiError> {
        let (principal, queues) = queues_of(parts, state).await?;
        Ok(Self { principal, queues })
    }
}

impl FromRequestParts<Shared> for Changes {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self, ApiError> {
        let (principal, queues) = queues_of(parts, state).await?;
        Ok(Self { principal, queues })
    }
}

/// An answer in JSON, encoded by the thread that computed it: the configuration of a proxy has megabytes.
pub(super) struct JsonBody<T>(Bytes, PhantomData<fn() -> T>);

impl<T: Serialize> JsonBody<T> {
    /// A short answer, which the number of connections bounds.
    pub(super) fn encode(answer: &T) -> Result<Self, ApiError> {
        Ok(Self(json(answer)?.into(), PhantomData))
    }
}

fn json<T: Serialize>(answer: &T) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(answer).map_err(|error| ApiError::Internal(error.to_string()))
}

impl<T> IntoResponse for JsonBody<T> {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// Runs a task that may block or compute for long on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let span = Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(task)).await;
    done.map_err(|error| ApiError::Internal(error.to_string()))?
}
