//! Connections: HTTP/2 with limits, and an orderly end for each connection.
//!
//! tonic's own server has most of these limits, but no handle on a single connection: it cannot ask
//! one client to leave. So hyper serves the connections here, and tonic does only the gRPC part.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::connection_limit::ConnectionPermit;
use crate::counters::{CloseReason, ConnectionRejection, Counters};
use crate::log_throttle::LogThrottle;
use crate::memory_quota::MemoryQuota;
use crate::peer::Peer;
use crate::poll_when_woken::poll_when_woken;
use crate::rejections::Rejections;
use crate::service::Streams;

mod frames;

use frames::Counted;

/// The keepalive: the interval between PINGs, and the time that a client may take to reply.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// The time after which a connection is closed whose client has vanished silently.
pub const SILENCE_LIMIT: Duration = KEEPALIVE.0.saturating_add(KEEPALIVE.1);

/// The time that a connection may have no stream, other than health streams.
const IDLE_DEADLINE: Duration = Duration::from_secs(30);

/// The time that streams continue after GOAWAY. GOAWAY comes first: otherwise the client would open
/// its next streams on the same connection.
const GRACE: Duration = Duration::from_secs(1);

/// The time that a client may take to read what is in flight, and to close the connection.
const LEAVE_DEADLINE: Duration = Duration::from_secs(5);

/// The maximum number of streams on one connection.
///
/// Envoy has one with the aggregated service. Otherwise it has one for each cluster's endpoints,
/// each route configuration and each secret.
const MAX_STREAMS: u32 = 128;

/// The maximum size of all headers of a request: gRPC's own, and perhaps a token.
const MAX_HEADERS: u32 = 16 << 10;

/// The flow-control windows: the bytes that a client may send before the server reads them, on one
/// stream (Envoy's first request has 61 KB) and on all.
const RECEIVE_WINDOWS: (u32, u32) = (256 << 10, 1 << 20);

/// The bytes of one stream that may wait in HTTP/2, besides those in its queue.
const MAX_SEND_BUFFER: usize = 128 << 10;

/// The limits on stream resets ("rapid resets", CVE-2023-44487), beyond which the connection ends.
///
/// The first counts resets by the client before the server accepts the stream; the second, resets
/// by the server after protocol errors of the client.
const MAX_RESETS: (usize, usize) = (20, 64);

/// The state that all connections share.
#[derive(Clone)]
pub(crate) struct Connections {
    http2: http2::Builder<TokioExecutor>,
    streams: Streams,
    rejection_log: Arc<LogThrottle>,
}

impl Connections {
    pub(crate) fn new(streams: &Streams) -> Self {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADERS)
            .initial_stream_window_size(RECEIVE_WINDOWS.0)
            .initial_connection_window_size(RECEIVE_WINDOWS.1)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .max_pending_accept_reset_streams(MAX_RESETS.0)
            .max_local_error_reset_streams(MAX_RESETS.1);
        Self { http2, streams: streams.clone(), rejection_log: Arc::default() }
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.streams.hub.counters()
    }

    pub(crate) fn rejections(&self) -> &Rejections {
        self.streams.hub.rejections()
    }

    /// The owner with whose connections those of this certificate are counted.
    pub(crate) fn owner(&self, certificate: &CertificateDer<'_>) -> Vec<u8> {
        match self.streams.admission.owner(certificate) {
            Some(client) => client.as_bytes().to_vec(),
            None => certificate.to_vec(),
        }
    }

    /// Serves a connection in a task of its own.
    pub(crate) fn open<IO>(&self, io: IO, peer: Peer, permit: ConnectionPermit)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connections = self.clone();
        self.streams.tasks.spawn(async move {
            connections.serve(io, peer, permit.quota()).await;
            drop(permit);
        });
    }

    /// Serves a connection beyond the client's limit: rejects its first stream with the reason, then
    /// ends the connection.
    pub(crate) fn reject<IO>(&self, io: IO, peer: Peer, permit: ConnectionPermit)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.counters().connection_rejected(ConnectionRejection::Client);
        if let Some(suppressed) = self.rejection_log.now() {
            tracing::warn!(address = %peer.address, suppressed, reason = "too many connections of this client", "xDS connection rejected");
        }
        self.open(io, peer.into_rejected(), permit);
    }

    /// Records that a client sends frames without end.
    fn flooded(&self, peer: &Peer) {
        self.counters().closed(CloseReason::Flood);
        if let Some(suppressed) = self.rejection_log.now() {
            tracing::warn!(address = %peer.address, suppressed, action = "closing the connection", "xDS frame rate limit exceeded");
        }
    }

    /// Serves a connection until it ends.
    async fn serve<IO>(&self, io: IO, peer: Peer, quota: &MemoryQuota)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|mut request: http::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(quota.clone());
            std::future::ready(Ok::<_, Infallible>(self.streams.call(request)))
        });
        let flood = CancellationToken::new();
        let io = TokioIo::new(Counted::new(io, flood.clone()));
        let mut connection = std::pin::pin!(self.http2.serve_connection(io, service));
        let reason = tokio::select! {
            end = connection.as_mut() => return log_end(&peer, &end),
            reason = poll_when_woken(self.reason_to_close(&peer, &flood)) => reason,
        };
        tracing::debug!(address = %peer.address, reason, "closing xDS connection");
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            end = connection.as_mut() => return log_end(&peer, &end),
            () = sleep(GRACE) => {}
            // Its streams end by themselves.
            () = self.streams.shutdown.cancelled() => {}
        }
        peer.end_streams();
        if let Ok(end) = timeout(LEAVE_DEADLINE, connection).await {
            log_end(&peer, &end);
        } else {
            tracing::debug!(address = %peer.address, "client did not close the xDS connection in time");
        }
    }
}

impl Connections {
    /// Returns when a connection must end, with the reason.
    async fn reason_to_close(&self, peer: &Peer, flood: &CancellationToken) -> &'static str {
        tokio::select! {
            () = self.streams.shutdown.cancelled() => "shutdown",
            () = peer.leave_requested() => "stream rejected",
            () = peer.expires() => "certificate expired",
            () = flood.cancelled() => {
                self.flooded(peer);
                "frame flood"
            }
            () = age_reached(self.streams.limits.connection_age) => "maximum age reached",
            () = peer.is_idle(IDLE_DEADLINE) => "idle",
        }
    }
}

/// Returns when a connection has reached `age`, ten percent more or less at random: connections
/// that began together do not end together.
async fn age_reached(age: Option<Duration>) {
    let Some(age) = age else { return std::future::pending().await };
    sleep(age * fastrand::u32(900..=1100) / 1000).await;
}

fn log_end(peer: &Peer, end: &hyper::Result<()>) {
    let error = end.as_ref().err().map(tracing::field::display);
    tracing::debug!(address = %peer.address, error, "xDS connection closed");
}

#[cfg(test)]
mod tests;
