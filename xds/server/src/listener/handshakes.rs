//! TLS handshakes under way: what a connection does until it is one of a client. Who of them has to give
//! way to whom is decided in `crowd`.
//!
//! A handshake costs something only when the client has said its first words, so only then it needs one of
//! a bounded number of places. A client that has said nothing is let go first, without a time of grace. In
//! a storm of honest clients the handshakes end as fast as they can be computed, and the others wait for a
//! place. (Closing the oldest one instead would undo the work that is nearest to its end; turning the
//! newest away would shut out everybody while some hang.)

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use super::handshake_queue::{EvictedConnection, HandshakeQueue};
use crate::connection::Connections;
use crate::connection_limit::{Claim, ConnectionPermit};
use crate::counters::ConnectionRejection;
use crate::log_throttle::LogThrottle;
use crate::peer::Peer;
use crate::validity::Validity;

/// How long a client may take to begin its handshake, and how long the handshake may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

pub(super) struct Handshakes {
    connections: Connections,
    tasks: JoinSet<()>,
    crowd: Arc<HandshakeQueue>,
    told: Arc<LogThrottle>,
}

/// A connection in the crowd, for as long as this is there.
struct QueuedConnection {
    crowd: Arc<HandshakeQueue>,
    id: u64,
}

impl Drop for QueuedConnection {
    fn drop(&mut self) {
        self.crowd.leave(self.id);
    }
}

impl Handshakes {
    pub(super) fn new(connections: Connections, most: usize) -> Self {
        let (tasks, crowd) = (JoinSet::new(), Arc::new(HandshakeQueue::new(most)));
        Self { connections, tasks, crowd, told: Arc::default() }
    }

    /// Returns when one more may be accepted. Closes meanwhile those that keep their place for too long.
    pub(super) async fn room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        tokio::select! {
            () = self.crowd.room() => {}
            () = self.relieve() => {}
        }
    }

    /// Closes those that keep their place for too long, and does not end.
    pub(super) async fn relieve(&self) {
        loop {
            let displaced = self.crowd.next_displaced().await;
            tell_displaced(&self.connections, &self.told, &displaced);
        }
    }

    /// Begins one, which ends in a connection if all goes well.
    pub(super) fn begin<IO>(
        &mut self,
        tls: Arc<ServerConfig>,
        io: IO,
        address: SocketAddr,
        mut seat: ConnectionPermit,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (connections, told) = (self.connections.clone(), Arc::clone(&self.told));
        let (crowd, tasks) = (Arc::clone(&self.crowd), &mut self.tasks);
        let displaced = self.crowd.enter(address, |id| {
            tasks.spawn(async move {
                let present = QueuedConnection { crowd, id };
                let (turned, words) =
                    match handshake(&present, tls, io, address, &connections, |displaced| {
                        tell_displaced(&connections, &told, displaced);
                    })
                    .await
                    {
                        Ok((stream, peer)) => {
                            match seat.claim(&connections.owner(&peer.certificate)) {
                                Claim::Granted => return connections.open(stream, peer, seat),
                                Claim::TooMany => return connections.refuse(stream, peer, seat),
                                Claim::FarTooMany => (
                                    ConnectionRejection::Client,
                                    "the client has too many connections".to_owned(),
                                ),
                            }
                        }
                        Err(failure) => failure,
                    };
                tell(&connections, &told, address, turned, &words);
            })
        });
        if let Some(displaced) = displaced {
            tell_displaced(&self.connections, &self.told, &displaced);
        }
    }

    /// Returns when all have ended.
    pub(super) async fn finish(&mut self) {
        let (tasks, crowd) = (&mut self.tasks, &self.crowd);
        let (connections, told) = (&self.connections, &self.told);
        loop {
            tokio::select! {
                ended = tasks.join_next() => {
                    if ended.is_none() {
                        return;
                    }
                }
                displaced = crowd.next_displaced() => tell_displaced(connections, told, &displaced),
            }
        }
    }
}

fn tell(
    connections: &Connections,
    told: &LogThrottle,
    address: SocketAddr,
    why: ConnectionRejection,
    words: &str,
) {
    connections.counters().turned(why);
    if let Some(others) = told.now() {
        tracing::info!(%address, error = words, others, "xDS connection refused");
    }
}

fn tell_displaced(connections: &Connections, told: &LogThrottle, displaced: &EvictedConnection) {
    let words = "the handshake gave way to those of other connections";
    tell(connections, told, displaced.0, ConnectionRejection::Displaced, words);
}

/// Why a handshake came to nothing.
type Failure = (ConnectionRejection, String);

async fn handshake<IO: AsyncRead + AsyncWrite + Unpin>(
    present: &QueuedConnection,
    tls: Arc<ServerConfig>,
    io: IO,
    address: SocketAddr,
    connections: &Connections,
    displace: impl FnOnce(&EvictedConnection),
) -> Result<(TlsStream<IO>, Peer), Failure> {
    let slow = |_| (ConnectionRejection::SlowHandshake, "the handshake took too long".to_owned());
    let bad = |error: io::Error| {
        connections.rejections().note(address, &error, Instant::now());
        (ConnectionRejection::BadHandshake, error.to_string())
    };
    let hello = LazyConfigAcceptor::new(Acceptor::default(), io);
    let hello = timeout(DEADLINE, hello).await.map_err(slow)?.map_err(bad)?;
    let (place, displaced) = present.crowd.has_spoken(present.id);
    if let Some(displaced) = displaced {
        displace(&displaced);
    }
    // (It comes to nothing only where this task is about to be ended, which is counted there.)
    if place.await.is_err() {
        std::future::pending::<()>().await;
    }
    timeout(DEADLINE, finish(hello, tls, address)).await.map_err(slow)?.map_err(bad)
}

async fn finish<IO: AsyncRead + AsyncWrite + Unpin>(
    hello: StartHandshake<IO>,
    tls: Arc<ServerConfig>,
    address: SocketAddr,
) -> io::Result<(TlsStream<IO>, Peer)> {
    let stream = hello.into_stream(Arc::clone(&tls)).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
    let certificate =
        certificate.ok_or_else(|| io::Error::other("the client shows no certificate"))?;
    let validity = Validity::of(&certificate, &tls)
        .ok_or_else(|| io::Error::other("the client's certificate cannot be read"))?;
    Ok((stream, Peer::new(certificate, validity, address)))
}
