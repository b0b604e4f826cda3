//! The queue of expensive reads, and the threads on which requests block or compute.

use std::sync::Arc;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::Semaphore;
use tracing::Span;

use super::ApiError;

/// How many expensive reads run at once: those whose cost grows with the mesh. Each may occupy a thread for as long as
/// comparing with all of policy takes, and any user of the machine may send them. Enrollment and revocation have other
/// threads, and so has xDS.
pub(super) const MAX_CONCURRENT_READS: usize = 4;

/// How many expensive reads may run or wait.
pub(super) const MAX_QUEUED_READS: usize = 64;

/// The queue of expensive reads of one listener.
#[derive(Debug, Clone)]
pub(super) struct ReadQueue {
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
    pub(super) async fn answer<T: Serialize>(
        &self,
        read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<JsonBody, ApiError> {
        self.run(move || JsonBody::encode(&read()?)).await
    }

    pub(super) async fn run<T: Send + 'static>(
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
pub(super) struct JsonBody(Vec<u8>);

impl JsonBody {
    pub(super) fn encode(answer: &impl Serialize) -> Result<Self, ApiError> {
        let json = serde_json::to_vec(answer);
        json.map(Self).map_err(|error| ApiError::Internal(error.to_string()))
    }
}

impl IntoResponse for JsonBody {
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
