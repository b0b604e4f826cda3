//! One connection: the TLS handshake, one HTTP request, its response.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::counters::ConnectionLoss;
use super::credentials::EnrollmentCredentials;
use super::requests::{Client, respond};
use super::sources::Source;
use super::state::ListenerState;

/// The most bytes of a request's head, and of what is read of its body at once.
const MAX_HEAD: usize = 16 << 10;

/// How long, and how many bytes, a refused client may still send, so that it reads the reason before the reset.
const LINGER: Duration = Duration::from_millis(500);
const MAX_LINGER: u64 = 128 << 10;

/// Serves one connection to its end.
pub(super) async fn serve_connection(
    state: &Arc<ListenerState>,
    stream: TcpStream,
    address: SocketAddr,
) {
    let source = Source::of(address);
    // Without it, the connection is only slower.
    let _ = stream.set_nodelay(true);
    let credentials = Arc::clone(&state.credentials.borrow());
    let stream = match handshake(state, &credentials, stream, source).await {
        Ok(stream) => stream,
        Err(Failed { loss, is_charged, reason }) => {
            state.counters.connection_lost(loss);
            tracing::debug!(%address, reason, "enrollment connection rejected");
            if is_charged {
                state.charge(source, &reason);
            }
            return;
        }
    };
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
        state.counters.connection_lost(ConnectionLoss::NoRequest);
        state.charge(source, "no valid request in time");
    }
}

/// A handshake that failed.
struct Failed {
    loss: ConnectionLoss,
    /// Whether it counts as a failure of its source.
    is_charged: bool,
    reason: String,
}

impl Failed {
    fn slow<E>(_: E) -> Self {
        let reason = "the TLS handshake took too long".to_owned();
        Self { loss: ConnectionLoss::SlowHandshake, is_charged: true, reason }
    }

    fn bad(error: &io::Error, is_charged: bool) -> Self {
        Self { loss: ConnectionLoss::BadHandshake, is_charged, reason: error.to_string() }
    }
}

async fn handshake(
    state: &ListenerState,
    credentials: &EnrollmentCredentials,
    stream: TcpStream,
    source: Source,
) -> Result<TlsStream<TcpStream>, Failed> {
    let time = state.limits.handshake_time;
    let hello = timeout(time, LazyConfigAcceptor::new(Acceptor::default(), stream)).await;
    // A client that connects and leaves, such as the health check of a load balancer, does no harm.
    let hello = hello
        .map_err(Failed::slow)?
        .map_err(|error| Failed::bad(&error, error.kind() == io::ErrorKind::InvalidData))?;
    // The slot is needed only now: until here, a client costs nothing. The wait is no fault of the client.
    let slot = timeout(state.limits.connection_time, state.handshakes.wait(source)).await;
    let slot = slot.map_err(|error| Failed { is_charged: false, ..Failed::slow(error) })?;
    let accept = hello.into_stream(Arc::clone(&credentials.tls)).into_fallible();
    let accepted = timeout(time, accept).await;
    drop(slot);
    match accepted.map_err(Failed::slow)? {
        Ok(stream) => Ok(stream),
        Err((error, stream)) => {
            linger(stream).await;
            Err(Failed::bad(&error, true))
        }
    }
}

/// Closes a connection so that the client reads the TLS alert. In TLS 1.3 the client may have sent its request
/// already, and a close with unread data would reset the connection and discard the alert.
async fn linger(mut stream: TcpStream) {
    let ended = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(MAX_LINGER), &mut tokio::io::sink()).await
    };
    // The connection ends in any case.
    let _ = timeout(LINGER, ended).await;
}
