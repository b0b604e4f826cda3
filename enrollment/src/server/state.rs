//! The state that all connections of the listener share.

use std::sync::Arc;

use ironmesh_listener::{ClientSource, TlsListener};
use tokio::sync::{Semaphore, watch};

use super::counters::EnrollmentCounters;
use super::credentials::EnrollmentCredentials;
use super::enroller::Enroller;
use super::limits::EnrollmentLimits;
use super::nonces::Nonces;
use super::work_queue::WorkQueue;

/// The state that all connections share.
pub(super) struct ListenerState {
    pub(super) listener: Arc<TlsListener<EnrollmentCredentials>>,
    pub(super) enroller: Arc<dyn Enroller>,
    pub(super) limits: EnrollmentLimits,
    pub(super) counters: Arc<EnrollmentCounters>,
    pub(super) queue: WorkQueue,
    /// One permit for each leave that may wait.
    pub(super) leaves: Semaphore,
    /// One permit for each enrollment that may wait for a look-up.
    pub(super) look_ups: Semaphore,
    pub(super) nonces: Nonces,
}

impl ListenerState {
    pub(super) fn new(
        credentials: watch::Receiver<Arc<EnrollmentCredentials>>,
        enroller: Arc<dyn Enroller>,
        limits: EnrollmentLimits,
        counters: Arc<EnrollmentCounters>,
    ) -> Self {
        let losses = Arc::clone(&counters.losses);
        let listener = TlsListener::new("enrollment", credentials, limits.of_listener(), losses);
        Self {
            listener: Arc::new(listener),
            enroller,
            limits,
            counters,
            queue: WorkQueue::new(limits),
            leaves: Semaphore::new(limits.waiting_leaves),
            look_ups: Semaphore::new(limits.waiting_look_ups),
            nonces: Nonces::new(),
        }
    }

    /// Counts a failure of a source, which may block it.
    pub(super) fn charge(&self, source: ClientSource, reason: &str) {
        self.listener.charge(source, reason);
    }
}
