//! The queue of requests for the blocking threads, on which signatures are verified and the `Enroller` runs.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tracing::Span;

use super::enroller::EnrollmentError;
use super::http_error::HttpError;
use super::limits::EnrollmentLimits;

/// The queue of requests.
pub(super) struct WorkQueue {
    queued: Arc<Semaphore>,
    workers: Arc<Semaphore>,
}

impl WorkQueue {
    pub(super) fn new(limits: EnrollmentLimits) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.max(1)));
        Self { queued: semaphore(limits.queue), workers: semaphore(limits.workers) }
    }

    /// Runs `work` when a worker is free, unless the queue is full.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let queued = Arc::clone(&self.queued).try_acquire_owned().map_err(|_| {
            EnrollmentError::Busy("control plane has too many enrollments: try again".to_owned())
        })?;
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, "enrollment request failed");
            EnrollmentError::Unavailable("control plane failed: see its log".to_owned())
        };
        let worker = Arc::clone(&self.workers).acquire_owned().await;
        let worker = worker.map_err(|error| failed(&error))?;
        let span = Span::current();
        // Both permits are held as long as the thread runs, even if the client no longer waits.
        let done = spawn_blocking(move || {
            let answer = span.in_scope(work);
            drop((queued, worker));
            answer
        });
        done.await.map_err(|error| failed(&error))?
    }
}
