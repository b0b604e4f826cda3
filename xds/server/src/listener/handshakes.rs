//! TLS handshakes under way, so many at most.
//!
//! When all places are taken, nothing more is accepted for a moment: in a storm of honest clients the
//! handshakes end as fast as they can be computed, and the system's own queue holds the others. A
//! handshake that takes longer than that waits for a client that perhaps never speaks, and the oldest of
//! those gives its place up. (Giving up the oldest at once would undo, in a storm, the work that is
//! nearest to its end; turning the newest away would shut out everybody while some say nothing.)

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connection::Connections;
use crate::counters::Turned;
use crate::peer::Peer;
use crate::rarely::Rarely;
use crate::seats::{Claim, Seat};
use crate::validity::Validity;

/// How long a handshake may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// How long one is safe from having to give up its place.
pub(super) const SAFE: Duration = Duration::from_secs(2);

pub(super) struct Handshakes {
    connections: Connections,
    most: usize,
    tasks: JoinSet<()>,
    /// The oldest first.
    under_way: VecDeque<(Instant, AbortHandle, SocketAddr)>,
    told: Arc<Rarely>,
}

impl Handshakes {
    pub(super) fn new(connections: Connections, most: usize) -> Self {
        Self {
            connections,
            most,
            tasks: JoinSet::new(),
            under_way: VecDeque::new(),
            told: Arc::default(),
        }
    }

    /// Returns when there is a place for one more.
    pub(super) async fn place(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.under_way.retain(|(_, task, _)| !task.is_finished());
        while self.under_way.len() >= self.most
            && let Some((since, ..)) = self.under_way.front()
        {
            let safe_until = *since + SAFE;
            tokio::select! {
                _ = self.tasks.join_next() => {
                    self.under_way.retain(|(_, task, _)| !task.is_finished());
                }
                () = sleep_until(safe_until) => self.displace_oldest(),
            }
        }
    }

    fn displace_oldest(&mut self) {
        if let Some((_, task, address)) = self.under_way.pop_front() {
            task.abort();
            let words = "the handshake gave up its place: all are taken";
            tell(&self.connections, &self.told, address, Turned::Displaced, words);
        }
    }

    /// Begins one, which ends in a connection if all goes well.
    pub(super) fn begin<IO>(
        &mut self,
        acceptor: TlsAcceptor,
        io: IO,
        address: SocketAddr,
        mut seat: Seat,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (connections, told) = (self.connections.clone(), Arc::clone(&self.told));
        let task = self.tasks.spawn(async move {
            let failure = match timeout(DEADLINE, handshake(acceptor, io, address)).await {
                Ok(Ok((stream, peer))) => match seat.claim(&connections.owner(&peer.certificate)) {
                    Claim::Granted => return connections.open(stream, peer, seat),
                    Claim::TooMany => return connections.refuse(stream, peer, seat),
                    Claim::FarTooMany => {
                        (Turned::Client, "the client has too many connections".to_owned())
                    }
                },
                Ok(Err(error)) => {
                    connections.rejections().note(address, &error, Instant::now());
                    (Turned::BadHandshake, error.to_string())
                }
                Err(_) => (Turned::SlowHandshake, "the handshake took too long".to_owned()),
            };
            tell(&connections, &told, address, failure.0, &failure.1);
        });
        self.under_way.push_back((Instant::now(), task, address));
    }

    /// Returns when all have ended.
    pub(super) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

fn tell(connections: &Connections, told: &Rarely, address: SocketAddr, why: Turned, words: &str) {
    connections.counters().turned(why);
    if let Some(others) = told.now() {
        tracing::info!(%address, error = words, others, "xDS connection refused");
    }
}

async fn handshake<IO: AsyncRead + AsyncWrite + Unpin>(
    acceptor: TlsAcceptor,
    io: IO,
    address: SocketAddr,
) -> io::Result<(TlsStream<IO>, Peer)> {
    let tls = Arc::clone(acceptor.config());
    let stream = acceptor.accept(io).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
    let certificate =
        certificate.ok_or_else(|| io::Error::other("the client shows no certificate"))?;
    let validity = Validity::of(&certificate, &tls)
        .ok_or_else(|| io::Error::other("the client's certificate cannot be read"))?;
    Ok((stream, Peer::new(certificate, validity, address)))
}
