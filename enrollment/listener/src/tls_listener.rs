//! The accept loop and the TLS handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::handshake_slots::HandshakeSlots;
use crate::limits::ListenerLimits;
use crate::losses::{ConnectionLoss, ConnectionLosses};
use crate::rate::Rate;
use crate::sources::{ClientSource, ConnectionTable, FailureTable};
use crate::write_deadline::{WRITE_LIMIT, WriteDeadline};

/// The pause after a failed accept, such as for too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a shutdown waits for connections.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// How long, and how many bytes, a refused client may still send, so that it reads the reason before the reset.
const LINGER: Duration = Duration::from_millis(500);
const MAX_LINGER: u64 = 128 << 10;

/// What a listener presents, and whom it accepts.
pub trait TlsCredentials: Send + Sync + 'static {
    /// The TLS configuration.
    fn tls(&self) -> Arc<ServerConfig>;
}

/// A listener.
pub struct TlsListener<C> {
    /// What it serves, for the log.
    name: &'static str,
    credentials: watch::Receiver<Arc<C>>,
    limits: ListenerLimits,
    losses: Arc<ConnectionLosses>,
    handshakes: Arc<HandshakeSlots>,
    connections: ConnectionTable,
    failures: Mutex<FailureTable>,
}

/// An accepted connection, after its handshake.
pub struct Accepted<C> {
    /// The stream.
    pub stream: TlsStream<WriteDeadline<TcpStream>>,
    /// The client's address.
    pub address: SocketAddr,
    /// The client's source, to which its failures are charged.
    pub source: ClientSource,
    /// The credentials of the handshake.
    pub credentials: Arc<C>,
}

impl<C> std::fmt::Debug for Accepted<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("address", &self.address).finish_non_exhaustive()
    }
}

impl<C> std::fmt::Debug for TlsListener<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsListener").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<C: TlsCredentials> TlsListener<C> {
    /// A listener that uses the newest `credentials` for each connection. `name` is what it serves, for the log.
    pub fn new(
        name: &'static str,
        credentials: watch::Receiver<Arc<C>>,
        limits: ListenerLimits,
        losses: Arc<ConnectionLosses>,
    ) -> Self {
        Self {
            name,
            credentials,
            limits,
            losses,
            handshakes: Arc::new(HandshakeSlots::new(limits)),
            connections: ConnectionTable::new(limits),
            failures: Mutex::new(FailureTable::new(limits)),
        }
    }

    /// Serves the connections of `listener` by `serve` until `shutdown`. Each ends with its future.
    pub async fn serve<F>(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: CancellationToken,
        serve: impl Fn(Accepted<C>) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        let slots = Arc::clone(&self.handshakes);
        let grant = async move { slots.grant().await };
        let accepting = async {
            tokio::select! {
                () = self.accept(listener, &mut connections, serve) => {}
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

    /// Accepts connections, each of which becomes a task of `connections`.
    async fn accept<F>(
        self: &Arc<Self>,
        listener: TcpListener,
        connections: &mut JoinSet<()>,
        serve: impl Fn(Accepted<C>) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut rate = Rate::new(self.limits.accepts_per_second);
        loop {
            sleep_until(rate.ready_at()).await;
            while connections.try_join_next().is_some() {}
            let Ok((stream, address)) = listener.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let now = Instant::now();
            rate.take(now);
            let source = ClientSource::of(address);
            // Closed at once: sending a reason would need a handshake, which is the cost to avoid.
            if self.failures.lock().is_blocked(source, now) {
                self.losses.count(ConnectionLoss::Blocked);
                continue;
            }
            match self.connections.enter(source) {
                Ok(permit) => {
                    let (listener, serve) = (Arc::clone(self), serve.clone());
                    connections.spawn(async move {
                        if let Some(accepted) = listener.handshake(stream, address).await {
                            serve(accepted).await;
                        }
                        drop(permit);
                    });
                }
                Err(loss) => self.losses.count(loss),
            }
        }
    }

    /// The connection after its handshake; none if that failed.
    async fn handshake(&self, stream: TcpStream, address: SocketAddr) -> Option<Accepted<C>> {
        let source = ClientSource::of(address);
        // Without it, the connection is only slower.
        let _ = stream.set_nodelay(true);
        let credentials = Arc::clone(&self.credentials.borrow());
        match self.try_handshake(credentials.tls(), stream, source).await {
            Ok(stream) => Some(Accepted { stream, address, source, credentials }),
            Err(Failed { loss, is_charged, reason }) => {
                self.losses.count(loss);
                tracing::debug!(%address, reason, listener = self.name, "connection rejected");
                if is_charged {
                    self.charge(source, &reason);
                }
                None
            }
        }
    }

    async fn try_handshake(
        &self,
        tls: Arc<ServerConfig>,
        stream: TcpStream,
        source: ClientSource,
    ) -> Result<TlsStream<WriteDeadline<TcpStream>>, Failed> {
        let stream = WriteDeadline::new(stream, WRITE_LIMIT);
        let time = self.limits.handshake_time;
        let hello = timeout(time, LazyConfigAcceptor::new(Acceptor::default(), stream)).await;
        let hello = hello.map_err(Failed::slow)?.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Failed::bad(&error),
            _ => Failed::closed(&error),
        })?;
        // The slot is needed only now: until here, a client costs nothing. The wait is no fault of the client.
        let slot = timeout(self.limits.slot_time, self.handshakes.wait(source)).await;
        let slot = slot.map_err(|error| Failed { is_charged: false, ..Failed::slow(error) })?;
        let accept = hello.into_stream(tls).into_fallible();
        let accepted = timeout(time, accept).await;
        drop(slot);
        match accepted.map_err(Failed::slow)? {
            Ok(stream) => Ok(stream),
            Err((error, stream)) => {
                linger(stream).await;
                Err(Failed::bad(&error))
            }
        }
    }

    /// Counts a connection that had no request in time, which is the cheapest flood, as a failure of its source.
    pub fn no_request(&self, source: ClientSource) {
        self.losses.count(ConnectionLoss::NoRequest);
        self.charge(source, "no valid request in time");
    }

    /// Counts a failure of a source, which may block it.
    pub fn charge(&self, source: ClientSource, reason: &str) {
        if self.failures.lock().record(source, Instant::now()) {
            let block_seconds = self.limits.block.as_secs();
            tracing::warn!(
                address = %source,
                listener = self.name,
                failures = self.limits.failures_per_minute,
                last_failure = reason,
                block_seconds,
                action = "its connections are closed at once until then",
                "source of failed requests blocked"
            );
        }
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

    fn bad(error: &io::Error) -> Self {
        Self { loss: ConnectionLoss::BadHandshake, is_charged: true, reason: error.to_string() }
    }

    /// A client that connects and leaves does no harm.
    fn closed(error: &io::Error) -> Self {
        Self { loss: ConnectionLoss::Closed, is_charged: false, reason: error.to_string() }
    }
}

/// Closes a connection so that the client reads the TLS alert. In TLS 1.3 the client may have sent its request
/// already, and a close with unread data would reset the connection and discard the alert.
async fn linger(mut stream: WriteDeadline<TcpStream>) {
    let ended = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(MAX_LINGER), &mut tokio::io::sink()).await
    };
    // The connection ends in any case.
    let _ = timeout(LINGER, ended).await;
}
