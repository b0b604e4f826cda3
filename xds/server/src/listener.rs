//! The listener: connections in, mutual TLS, and on to the service. TCP is what they usually are.
//!
//! tonic can neither swap its TLS configuration nor bound its handshakes, so both are done here: the
//! configuration is read anew for every connection, and a handshake has a deadline and never stands
//! in another's way.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::server::Connected;

use crate::hub::Hub;
use crate::service::names::{Aggregated, Clusters, Endpoints, Listeners, Routes, Secrets};
use crate::service::{Admission, Discovery, Streams};

/// How long a TLS handshake may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// How long nothing is accepted after an attempt that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many handshakes may run at once.
const MAX_HANDSHAKES: usize = 256;

/// After how long a silence a client is asked whether it is there, and how long it may take to answer.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// How long clients may take to read what is under way, and to leave, when we shut down.
const LEAVE_DEADLINE: Duration = Duration::from_secs(5);

/// How many streams one connection may have. Envoy has one where it uses the aggregated service, and
/// otherwise one for each cluster's endpoints, each route configuration and each secret.
const MAX_STREAMS_PER_CONNECTION: u32 = 128;

/// Who is at the other end of a connection, by its verified certificate.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The certificate of the client itself, in DER.
    pub certificate: CertificateDer<'static>,
    /// Where it calls from.
    pub address: SocketAddr,
    refusals: Arc<AtomicU32>,
}

impl Peer {
    /// Takes note that one of its streams was refused.
    pub(crate) fn refused(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether its connection is to be closed. A client that is refused tries again on the same
    /// connection, that is with the same certificate, also when it has another by now: so the first
    /// refusal is told, and after the second the connection ends.
    fn is_to_leave(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) > 1
    }
}

/// Serves xDS on `listener`, as [`serve_incoming`] does.
pub async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    hub: Arc<Hub>,
    admission: Arc<dyn Admission>,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    serve_incoming(Incoming(listener), tls, hub, admission, shutdown).await
}

/// Serves xDS on the connections of `incoming` until `shutdown`, and returns when all streams have
/// ended. A client that does not leave is not waited for.
///
/// `incoming` gives what is accepted, and from where. After an error the next one is asked for a moment
/// later; its end is a shutdown that waits for every client to leave.
///
/// `tls` must ask for client certificates; a connection without one is closed. A new configuration
/// is used from the next connection on.
pub async fn serve_incoming<IO>(
    incoming: impl Stream<Item = io::Result<(IO, SocketAddr)>> + Send + 'static,
    tls: watch::Receiver<Arc<ServerConfig>>,
    hub: Arc<Hub>,
    admission: Arc<dyn Admission>,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = TaskTracker::new();
    let streams = Streams { hub, admission, shutdown: shutdown.clone(), tasks: tasks.clone() };
    let (connections, accepted) = mpsc::channel(64);
    let accepting = tokio::spawn(accept(incoming, tls, connections, shutdown.clone()));
    let serving = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .max_concurrent_streams(Some(MAX_STREAMS_PER_CONNECTION))
        .add_service(Discovery::<Aggregated>::new(&streams))
        .add_service(Discovery::<Clusters>::new(&streams))
        .add_service(Discovery::<Endpoints>::new(&streams))
        .add_service(Discovery::<Listeners>::new(&streams))
        .add_service(Discovery::<Routes>::new(&streams))
        .add_service(Discovery::<Secrets>::new(&streams))
        .serve_with_incoming_shutdown(
            ReceiverStream::new(accepted),
            shutdown.clone().cancelled_owned(),
        );
    let result = tokio::select! {
        result = serving => result,
        () = overdue(&shutdown) => Ok(()),
    };
    accepting.abort();
    tasks.close();
    tasks.wait().await;
    result
}

/// Returns when `shutdown` is longer ago than clients may take to leave.
async fn overdue(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(LEAVE_DEADLINE).await;
}

/// What a TCP listener accepts.
struct Incoming(TcpListener);

impl Stream for Incoming {
    type Item = io::Result<(TcpStream, SocketAddr)>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| {
            if let Ok((tcp, address)) = &accepted
                && let Err(error) = tcp.set_nodelay(true)
            {
                // It is only slower, or has gone.
                tracing::debug!(%address, %error, "cannot send without delay");
            }
            Some(accepted)
        })
    }
}

async fn accept<IO>(
    incoming: impl Stream<Item = io::Result<(IO, SocketAddr)>>,
    tls: watch::Receiver<Arc<ServerConfig>>,
    connections: mpsc::Sender<io::Result<Connection<IO>>>,
    shutdown: CancellationToken,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let mut incoming = std::pin::pin!(incoming);
    loop {
        let accepted = tokio::select! {
            accepted = incoming.next() => accepted,
            () = shutdown.cancelled() => return,
        };
        let (io, address) = match accepted {
            Some(Ok(accepted)) => accepted,
            Some(Err(error)) => {
                // Such as too many open files: what is connected stays, and this may pass.
                tracing::warn!(%error, "cannot accept an xDS connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
            None => return,
        };
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else { return };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
        let connections = connections.clone();
        tokio::spawn(async move {
            let connection = handshake(acceptor, io, address).await;
            drop(permit);
            match connection {
                // Refused only when the server has gone.
                Ok(connection) => drop(connections.send(Ok(connection)).await),
                Err(error) => tracing::info!(%address, %error, "xDS connection refused"),
            }
        });
    }
}

async fn handshake<IO: AsyncRead + AsyncWrite + Unpin>(
    acceptor: TlsAcceptor,
    io: IO,
    address: SocketAddr,
) -> io::Result<Connection<IO>> {
    let stream = timeout(HANDSHAKE_DEADLINE, acceptor.accept(io)).await??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
    let certificate =
        certificate.ok_or_else(|| io::Error::other("the client shows no certificate"))?;
    let peer = Peer { certificate, address, refusals: Arc::default() };
    Ok(Connection { stream, peer })
}

/// A connection whose client is known.
struct Connection<IO> {
    stream: TlsStream<IO>,
    peer: Peer,
}

impl<IO> Connected for Connection<IO> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.peer.is_to_leave() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
