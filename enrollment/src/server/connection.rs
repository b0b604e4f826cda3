//! One connection after its handshake: one HTTP request, and its response.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ironmesh_listener::Accepted;
use tokio::time::timeout;

use super::credentials::EnrollmentCredentials;
use super::requests::{Client, respond};
use super::state::ListenerState;

/// The most bytes of a request's head, and of what is read of its body at once.
const MAX_HEAD: usize = 16 << 10;

/// Serves one connection to its end.
pub(super) async fn serve_connection(
    state: &Arc<ListenerState>,
    Accepted { stream, address, source, credentials }: Accepted<EnrollmentCredentials>,
) {
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let client = Arc::new(Client {
        address,
        source,
        certificate: certificate.map(|certificate| certificate.to_vec()),
        credentials,
        has_sent_request: AtomicBool::new(false),
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(state.limits.request_time)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false);
    let service = service_fn(|request| {
        let (state, client) = (Arc::clone(state), Arc::clone(&client));
        async move { Ok::<_, Infallible>(respond(&state, &client, request).await) }
    });
    let served = http.serve_connection(TokioIo::new(stream), service);
    // An error of the connection shows in the response that the client misses, or below.
    let _ = timeout(state.limits.connection_time, served).await;
    // A handshake for nothing is the cheapest flood.
    if !client.has_sent_request.load(Ordering::Relaxed) {
        state.listener.no_request(source);
    }
}
