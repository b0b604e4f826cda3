//! The server of the machines' API: TLS 1.3, limits, checks, and then the [`Enroller`].
//!
//! A connection passes the limits and the handshake of `ironmesh-listener`, then one HTTP request with time limits, and
//! the work queue.

mod azure;
mod connection;
mod counters;
mod credentials;
mod enroller;
mod http_error;
mod leave;
mod limits;
mod nonces;
mod requests;
mod state;
mod work_queue;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use connection::serve_connection;
pub use counters::{EnrollmentCounters, RequestOutcome};
pub use credentials::EnrollmentCredentials;
pub use enroller::{
    AzureAnswer, AzureEnrollment, Enroller, Enrollment, EnrollmentError, Leave, LeaveWait,
    MachineLookUp, ProxyRenewal, WorkloadRequest,
};
pub use ironmesh_listener::ConnectionLoss;
pub use limits::EnrollmentLimits;
use state::ListenerState;

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
    let accepted = Arc::clone(&state.listener);
    let serve = move |connection| {
        let state = Arc::clone(&state);
        async move { serve_connection(&state, connection).await }
    };
    accepted.serve(listener, shutdown, serve).await;
}
