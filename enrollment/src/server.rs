//! The server of the machines' API: TLS 1.3, limits, checks, and then the [`Enroller`].
//!
//! A connection passes, in this order: the block of its source, the connection limits, a handshake slot (rate,
//! number, fairness between sources), the TLS handshake, one HTTP request with time limits, and the work queue.

mod accept;
mod azure;
mod connection;
mod counters;
mod credentials;
mod enroller;
mod handshake_slots;
mod http_error;
mod leave;
mod limits;
mod nonces;
mod rate;
mod requests;
mod sources;
mod state;
mod work_queue;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use accept::accept;
pub use counters::{ConnectionLoss, EnrollmentCounters, RequestOutcome};
pub use credentials::EnrollmentCredentials;
pub use enroller::{
    AzureAnswer, AzureEnrollment, Enroller, Enrollment, EnrollmentError, Leave, LeaveWait,
    MachineLookUp, ProxyRenewal, WorkloadRequest,
};
pub use limits::EnrollmentLimits;
use state::ListenerState;

/// How long a shutdown waits for connections.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Serves the machines' API on `listener` until `shutdown`.
///
/// Each connection uses the newest `credentials`. The `enroller` runs on blocking threads, at most
/// [`EnrollmentLimits::workers`] at once.
pub async fn serve(
    listener: TcpListener,
    credentials: watch::Receiver<Arc<EnrollmentCredentials>>,
    enroller: Arc<dyn Enroller>,
    limits: EnrollmentLimits,
    counters: Arc<EnrollmentCounters>,
    shutdown: CancellationToken,
) {
    let state = Arc::new(ListenerState::new(credentials, enroller, limits, counters));
    let mut connections = JoinSet::new();
    let slots = Arc::clone(&state.handshakes);
    let grant = async move { slots.grant().await };
    let accepting = async {
        tokio::select! {
            () = accept(listener, &state, &mut connections) => {}
            () = shutdown.cancelled() => {}
        }
        let ended = async { while connections.join_next().await.is_some() {} };
        // Connections that remain end with the set.
        let _ = timeout(SHUTDOWN_GRACE, ended).await;
    };
    tokio::select! {
        () = accepting => {}
        () = grant => {}
    }
}
