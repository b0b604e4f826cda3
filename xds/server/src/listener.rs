//! The listener: accepts connections, usually TCP, performs mutual TLS, and hands them to HTTP/2.
//!
//! Each connection reads the newest TLS configuration. A handshake has a deadline and never delays
//! another. Silent clients never stop the listener from accepting.

mod handshake_queue;
mod handshakes;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::Connections;
use crate::connection_limit::ConnectionLimit;
use crate::counters::ConnectionRejection;
use crate::hub::Hub;
use crate::limits::Limits;
use crate::log_throttle::{LogThrottle, Outage};
use crate::service::{Admission, Streams};
use handshakes::Handshakes;

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves xDS on `listener`, as [`serve_incoming`] does.
pub async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    hub: Arc<Hub>,
    admission: Arc<dyn Admission>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    serve_incoming(Incoming(listener), tls, hub, admission, limits, shutdown).await;
}

/// Serves xDS on the connections of `incoming` until `shutdown`, and returns when all streams have
/// ended. It does not wait for a client that stays connected.
///
/// `incoming` yields accepted connections with their addresses. After an error, the server polls it
/// again after a pause. Its end is a shutdown that waits for every client to leave.
///
/// `tls` must request client certificates; a connection without one is closed. A new configuration
/// applies from the next connection on.
pub async fn serve_incoming<IO>(
    incoming: impl Stream<Item = io::Result<(IO, SocketAddr)>> + Send + 'static,
    tls: watch::Receiver<Arc<ServerConfig>>,
    hub: Arc<Hub>,
    admission: Arc<dyn Admission>,
    limits: Limits,
    shutdown: CancellationToken,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let streams = Streams {
        hub,
        admission,
        limits,
        shutdown,
        tasks: TaskTracker::new(),
        rejection_log: Arc::default(),
    };
    accept(incoming, tls, &streams).await;
    streams.tasks.close();
    streams.tasks.wait().await;
}

/// The connections that a TCP listener accepts.
struct Incoming(TcpListener);

impl Stream for Incoming {
    type Item = io::Result<(TcpStream, SocketAddr)>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| {
            if let Ok((tcp, address)) = &accepted
                && let Err(error) = tcp.set_nodelay(true)
            {
                // The connection is only slower, or has gone.
                tracing::debug!(%address, %error, "cannot set TCP_NODELAY");
            }
            Some(accepted)
        })
    }
}

async fn accept<IO>(
    incoming: impl Stream<Item = io::Result<(IO, SocketAddr)>>,
    tls: watch::Receiver<Arc<ServerConfig>>,
    streams: &Streams,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limit = ConnectionLimit::new(streams.limits);
    let mut handshakes = Handshakes::new(Connections::new(streams), streams.limits.handshakes);
    let limit_log = LogThrottle::default();
    let mut outage = Outage::default();
    let mut incoming = std::pin::pin!(incoming);
    loop {
        tokio::select! {
            () = handshakes.may_accept() => {}
            () = streams.shutdown.cancelled() => return,
        }
        let accepted = tokio::select! {
            accepted = incoming.next() => accepted,
            () = handshakes.evict_slow() => continue,
            () = streams.shutdown.cancelled() => return,
        };
        let (io, address) = match accepted {
            Some(Ok(accepted)) => {
                if outage.recovers() {
                    tracing::info!("xDS connections are accepted again");
                }
                accepted
            }
            Some(Err(error)) => {
                // For example, too many open files: established connections stay, and the error may
                // pass. It is logged once, not at each retry, nor each time the last free file
                // comes and goes.
                if outage.fails() {
                    tracing::warn!(%error, action = "established connections stay open", "cannot accept xDS connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
            None => break,
        };
        let Some(permit) = limit.acquire() else {
            // Closed at once: sending a reason would take a handshake, which is what costs.
            streams.hub.counters().connection_rejected(ConnectionRejection::Full);
            if let Some(suppressed) = limit_log.now() {
                let limit = streams.limits.connections;
                tracing::warn!(%address, limit, suppressed, reason = "connection limit reached", "xDS connection rejected");
            }
            continue;
        };
        let tls = Arc::clone(&tls.borrow());
        handshakes.begin(tls, io, address, permit);
    }
    tokio::select! {
        () = handshakes.finish() => {}
        () = streams.shutdown.cancelled() => {}
    }
}

#[cfg(test)]
mod tests;
