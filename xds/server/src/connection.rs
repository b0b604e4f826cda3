//! Connections: HTTP/2 with bounds, and a good end for each one of them.
//!
//! tonic's own server has most of these bounds, and no hand on a single connection: it cannot tell one
//! client to leave. So hyper serves them here, and tonic is left with what is gRPC.

use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, Hasher as _};
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
use crate::rejections::Rejections;
use crate::service::Streams;

mod frames;

use frames::Counted;

/// After how long a silence a client is asked whether it is there, and how long it may take to answer.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// After how long a connection is closed whose client has gone without a word.
pub const SILENCE_LIMIT: Duration = KEEPALIVE.0.saturating_add(KEEPALIVE.1);

/// How long a connection may have no stream but of health, from its beginning on.
const IDLE_DEADLINE: Duration = Duration::from_secs(30);

/// How long the streams of a connection go on after the client was told that it ends. It is told that
/// first: otherwise it would open the next ones on the same connection.
const GRACE: Duration = Duration::from_secs(1);

/// How long a client may take to read what is under way, and to leave.
const LEAVE_DEADLINE: Duration = Duration::from_secs(5);

/// How many streams one connection may have. Envoy has one where it uses the aggregated service, and
/// otherwise one for each cluster's endpoints, each route configuration and each secret.
const MAX_STREAMS: u32 = 128;

/// The size of all headers of a request: there is nothing in them but gRPC's own, and perhaps a token.
const MAX_HEADERS: u32 = 16 << 10;

/// How much a client may send that is not read yet: on one stream (Envoy's first request has 61 KB), and
/// on all.
const RECEIVE_WINDOWS: (u32, u32) = (256 << 10, 1 << 20);

/// How much of what a stream sends may wait in HTTP/2, besides what waits in its queue.
const MAX_SEND_BUFFER: usize = 128 << 10;

/// How many streams may have been reset by the client before we saw them, and how many by us because the
/// client broke the protocol, before the connection ends ("rapid resets", CVE-2023-44487).
const MAX_RESETS: (usize, usize) = (20, 64);

/// What all connections share.
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

    /// Whose connections those are counted with that show this certificate.
    pub(crate) fn owner(&self, certificate: &CertificateDer<'_>) -> Vec<u8> {
        match self.streams.admission.owner(certificate) {
            Some(client) => client.as_bytes().to_vec(),
            None => certificate.to_vec(),
        }
    }

    /// Serves a connection by a task of its own.
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

    /// Tells a client on its first stream that it has too many connections, and ends this one.
    pub(crate) fn reject<IO>(&self, io: IO, peer: Peer, permit: ConnectionPermit)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.counters().connection_rejected(ConnectionRejection::Client);
        if let Some(others) = self.rejection_log.now() {
            tracing::warn!(address = %peer.address, others, "xDS connection refused: the client has too many");
        }
        self.open(io, peer.into_rejected(), permit);
    }

    /// Takes note that a client sends frames without end.
    fn flooded(&self, peer: &Peer) {
        self.counters().closed(CloseReason::Flood);
        if let Some(others) = self.rejection_log.now() {
            tracing::warn!(address = %peer.address, others, "xDS connection ended: it sends frames without end");
        }
    }

    /// Serves a connection to its end.
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
            () = self.streams.shutdown.cancelled() => "the control plane is shutting down",
            () = peer.leave_requested() => "the client was refused",
            () = peer.expires() => "its certificate has expired",
            () = flood.cancelled() => {
                self.flooded(&peer);
                "it sends frames without end"
            }
            () = age_reached(self.streams.limits.connection_age) => "it has come to its age",
            () = peer.is_idle(IDLE_DEADLINE) => "it had no stream",
        };
        tracing::debug!(address = %peer.address, reason, "the xDS connection is ended");
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
            tracing::debug!(address = %peer.address, "the client does not leave");
        }
    }
}

/// Returns at an age of a connection, a tenth sooner or later: those that began together do not end
/// together.
async fn age_reached(age: Option<Duration>) {
    let Some(age) = age else { return std::future::pending().await };
    // (Its keys are chosen by chance, and nothing more is needed here.)
    let chance = RandomState::new().build_hasher().finish() % 201;
    let per_mille = 900 + u32::try_from(chance).unwrap_or(100);
    sleep(age * per_mille / 1000).await;
}

fn log_end(peer: &Peer, end: &hyper::Result<()>) {
    let error = end.as_ref().err().map(tracing::field::display);
    tracing::debug!(address = %peer.address, error, "xDS connection closed");
}

#[cfg(test)]
mod tests;
