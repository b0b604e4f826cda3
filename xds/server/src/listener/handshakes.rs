//! TLS handshakes: a connection from its accept until its client is known. `handshake_queue`
//! decides which of them is evicted for which.
//!
//! A handshake is expensive only after the ClientHello, so only then it needs one of a limited
//! number of slots. A silent client is closed first, without a grace period. In a storm of honest
//! clients, handshakes end as fast as they can be computed, and the others wait for a slot. (To
//! close the oldest one instead would discard the work that is nearest to its end; to reject the
//! newest would lock everyone out while some hang.)

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
use crate::rejections;
use crate::validity::Validity;

/// The time until the ClientHello, and then the time for the handshake.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

pub(super) struct Handshakes {
    connections: Connections,
    tasks: JoinSet<()>,
    queue: Arc<HandshakeQueue>,
    throttle: Arc<LogThrottle>,
}

/// A connection in the queue, removed on drop.
struct QueuedConnection {
    queue: Arc<HandshakeQueue>,
    id: u64,
}

impl Drop for QueuedConnection {
    fn drop(&mut self) {
        self.queue.leave(self.id);
    }
}

impl Handshakes {
    pub(super) fn new(connections: Connections, slots: usize) -> Self {
        let (tasks, queue) = (JoinSet::new(), Arc::new(HandshakeQueue::new(slots)));
        Self { connections, tasks, queue, throttle: Arc::default() }
    }

    /// Returns when one more connection may be accepted. Meanwhile evicts connections that keep
    /// their slot too long.
    pub(super) async fn may_accept(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        tokio::select! {
            () = self.queue.may_accept() => {}
            () = self.evict_slow() => {}
        }
    }

    /// Evicts connections that keep their slot too long, and never returns.
    pub(super) async fn evict_slow(&self) {
        loop {
            let evicted = self.queue.next_evicted().await;
            log_eviction(&self.connections, &self.throttle, &evicted);
        }
    }

    /// Starts a handshake, which ends in a connection if it succeeds.
    pub(super) fn begin<IO>(
        &mut self,
        tls: Arc<ServerConfig>,
        io: IO,
        address: SocketAddr,
        mut permit: ConnectionPermit,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (connections, throttle) = (self.connections.clone(), Arc::clone(&self.throttle));
        let (queue, tasks) = (Arc::clone(&self.queue), &mut self.tasks);
        let evicted = self.queue.enter(address, |id| {
            tasks.spawn(async move {
                let queued = QueuedConnection { queue, id };
                let (rejection, reason) =
                    match handshake(&queued, tls, io, address, &connections, |evicted| {
                        log_eviction(&connections, &throttle, evicted);
                    })
                    .await
                    {
                        Ok((stream, peer)) => {
                            match permit.claim(&connections.owner(&peer.certificate)) {
                                Claim::Granted => return connections.open(stream, peer, permit),
                                Claim::TooMany => return connections.reject(stream, peer, permit),
                                Claim::FarTooMany => (
                                    ConnectionRejection::Client,
                                    "the client has too many connections".to_owned(),
                                ),
                            }
                        }
                        Err(failure) => failure,
                    };
                log_rejection(&connections, &throttle, address, rejection, &reason);
            })
        });
        if let Some(evicted) = evicted {
            log_eviction(&self.connections, &self.throttle, &evicted);
        }
    }

    /// Returns when all handshakes have ended.
    pub(super) async fn finish(&mut self) {
        let (tasks, queue) = (&mut self.tasks, &self.queue);
        let (connections, throttle) = (&self.connections, &self.throttle);
        loop {
            tokio::select! {
                ended = tasks.join_next() => {
                    if ended.is_none() {
                        return;
                    }
                }
                evicted = queue.next_evicted() => log_eviction(connections, throttle, &evicted),
            }
        }
    }
}

fn log_rejection(
    connections: &Connections,
    throttle: &LogThrottle,
    address: SocketAddr,
    why: ConnectionRejection,
    reason: &str,
) {
    connections.counters().connection_rejected(why);
    if let Some(suppressed) = throttle.now() {
        tracing::info!(%address, reason, suppressed, "xDS connection rejected");
    }
}

fn log_eviction(connections: &Connections, throttle: &LogThrottle, evicted: &EvictedConnection) {
    let reason = "TLS handshake evicted in favour of other connections";
    log_rejection(connections, throttle, evicted.0, ConnectionRejection::Displaced, reason);
}

/// Why a handshake failed.
type Failure = (ConnectionRejection, String);

async fn handshake<IO: AsyncRead + AsyncWrite + Unpin>(
    queued: &QueuedConnection,
    tls: Arc<ServerConfig>,
    io: IO,
    address: SocketAddr,
    connections: &Connections,
    evict: impl FnOnce(&EvictedConnection),
) -> Result<(TlsStream<IO>, Peer), Failure> {
    let slow =
        |_| (ConnectionRejection::SlowHandshake, "the TLS handshake took too long".to_owned());
    let bad = |error: io::Error| {
        connections.rejections().note(address, &error, Instant::now());
        (ConnectionRejection::BadHandshake, rejections::reason(&error))
    };
    let hello = LazyConfigAcceptor::new(Acceptor::default(), io);
    let hello = timeout(DEADLINE, hello).await.map_err(slow)?.map_err(bad)?;
    let (slot, evicted) = queued.queue.hello_received(queued.id);
    if let Some(evicted) = evicted {
        evict(&evicted);
    }
    // It is an error only if this task is about to be aborted, which is counted there.
    if slot.await.is_err() {
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
        .ok_or_else(|| io::Error::other("the client's certificate cannot be parsed"))?;
    Ok((stream, Peer::new(certificate, validity, address)))
}
