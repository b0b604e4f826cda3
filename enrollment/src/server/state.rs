//! The state that all connections of the listener share.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::counters::EnrollmentCounters;
use super::credentials::EnrollmentCredentials;
use super::enroller::Enroller;
use super::handshake_slots::HandshakeSlots;
use super::limits::EnrollmentLimits;
use super::nonces::Nonces;
use super::sources::{ConnectionTable, FailureTable, Source};
use super::work_queue::WorkQueue;

/// The state that all connections share.
pub(super) struct ListenerState {
    pub(super) credentials: watch::Receiver<Arc<EnrollmentCredentials>>,
    pub(super) enroller: Arc<dyn Enroller>,
    pub(super) limits: EnrollmentLimits,
    pub(super) counters: Arc<EnrollmentCounters>,
    pub(super) handshakes: Arc<HandshakeSlots>,
    pub(super) queue: WorkQueue,
    /// One permit for each leave that may wait.
    pub(super) leaves: Semaphore,
    /// One permit for each enrollment that may wait for a look-up.
    pub(super) look_ups: Semaphore,
    pub(super) nonces: Nonces,
    pub(super) connections: ConnectionTable,
    failures: Mutex<FailureTable>,
}

impl ListenerState {
    pub(super) fn new(
        credentials: watch::Receiver<Arc<EnrollmentCredentials>>,
        enroller: Arc<dyn Enroller>,
        limits: EnrollmentLimits,
        counters: Arc<EnrollmentCounters>,
    ) -> Self {
        Self {
            credentials,
            enroller,
            limits,
            counters,
            handshakes: Arc::new(HandshakeSlots::new(limits)),
            queue: WorkQueue::new(limits),
            leaves: Semaphore::new(limits.waiting_leaves),
            look_ups: Semaphore::new(limits.waiting_look_ups),
            nonces: Nonces::new(),
            connections: ConnectionTable::new(limits),
            failures: Mutex::new(FailureTable::new(limits)),
        }
    }

    /// Whether the connections of a source are closed at once.
    pub(super) fn is_blocked(&self, source: Source, now: Instant) -> bool {
        self.failures.lock().is_blocked(source, now)
    }

    /// Counts a failure of a source, which may block it.
    pub(super) fn charge(&self, source: Source, reason: &str) {
        if self.failures.lock().record(source, Instant::now()) {
            let block_seconds = self.limits.block.as_secs();
            tracing::warn!(
                %source,
                failures = self.limits.failures_per_minute,
                last_failure = reason,
                block_seconds,
                action = "its connections are closed at once until then",
                "source of enrollment requests blocked"
            );
        }
    }
}
