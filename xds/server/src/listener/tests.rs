//! Accepting connections, on a clock that only the tests move.

use ironmesh_xds_wire::Node;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use super::handshakes::DEADLINE;
use super::*;
use crate::hub::ClientKey;
use crate::peer::Peer;
use crate::service::StreamRejection;

/// A resolver without a certificate: no handshake succeeds.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// Admits no client.
struct DenyAll;

impl Admission for DenyAll {
    fn admit(&self, _: &Peer, _: &Node) -> Result<ClientKey, StreamRejection> {
        Err(StreamRejection("no client is admitted".to_owned()))
    }
}

type Accepted = io::Result<(DuplexStream, SocketAddr)>;

/// Accepts the connections that are sent, until the test ends.
fn accepting(limits: Limits) -> (mpsc::Sender<Accepted>, Arc<Hub>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(NoCertificate));
    let tls = watch::Sender::new(Arc::new(config));
    let (incoming, accepted) = mpsc::channel(8);
    let hub = Arc::new(Hub::default());
    let streams = Streams {
        hub: Arc::clone(&hub),
        admission: Arc::new(DenyAll),
        limits,
        shutdown: CancellationToken::new(),
        rejection_log: Arc::default(),
        tasks: TaskTracker::new(),
    };
    tokio::spawn(async move {
        accept(ReceiverStream::new(accepted), tls.subscribe(), &streams).await;
    });
    (incoming, hub)
}

fn connection() -> (DuplexStream, Accepted) {
    connection_from(1)
}

/// A connection from 127.0.0.`host`.
fn connection_from(host: u8) -> (DuplexStream, Accepted) {
    let (client, server) = duplex(1024);
    (client, Ok((server, ([127, 0, 0, host], 1).into())))
}

/// Invariant 10, A64: for example, no file descriptor is left.
#[tokio::test(start_paused = true)]
async fn failed_accept_is_retried_after_a_pause() {
    let (incoming, hub) = accepting(Limits::default());
    let begin = Instant::now();
    for _ in 0..3 {
        incoming.send(Err(io::Error::other("too many open files"))).await.unwrap();
    }
    let (mut client, server) = connection();
    incoming.send(server).await.unwrap();
    client.write_all(b"this is no handshake").await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.first(), Some(&21), "an alert of TLS");
    assert_eq!(begin.elapsed(), 3 * ACCEPT_PAUSE);
    assert_eq!(hub.counters().connections_rejected(ConnectionRejection::BadHandshake), 1);
}

/// Invariant 10, A37.
#[tokio::test(start_paused = true)]
async fn silent_client_is_closed_at_deadline_without_delaying_others() {
    let (incoming, hub) = accepting(Limits::default());
    let begin = Instant::now();
    let (mut silent, server) = connection();
    incoming.send(server).await.unwrap();
    let (mut other, server) = connection();
    incoming.send(server).await.unwrap();
    other.write_all(b"this is no handshake").await.unwrap();
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).await.unwrap();
    assert_eq!((answer.first(), begin.elapsed()), (Some(&21), Duration::ZERO));
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "closed without an answer");
    // Timers of tokio have a resolution of 1 ms.
    let deadline = DEADLINE..=DEADLINE + Duration::from_millis(1);
    assert!(deadline.contains(&begin.elapsed()), "{:?}", begin.elapsed());
    assert_eq!(hub.counters().connections_rejected(ConnectionRejection::SlowHandshake), 1);
}

/// A36: a silent client has no grace period.
#[tokio::test(start_paused = true)]
async fn silent_connections_beyond_the_limit_are_closed_at_once() {
    let (incoming, hub) = accepting(Limits { handshakes: 3, ..Limits::default() });
    let begin = Instant::now();
    let mut silent = Vec::new();
    for _ in 0..14 {
        let (client, server) = connection();
        incoming.send(server).await.unwrap();
        silent.push(client);
    }
    for client in &mut silent[..2] {
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "closed");
    }
    is_answered(&mut silent[2]).await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_eq!(hub.counters().connections_rejected(ConnectionRejection::Displaced), 2);
    // The other connections keep their time limits.
    let last = silent.last_mut().unwrap();
    assert_eq!(last.read(&mut [0]).await.unwrap(), 0, "closed");
    assert!(begin.elapsed() >= DEADLINE, "{:?}", begin.elapsed());
}

/// A36: many more silent connections than the queue holds, from one address.
#[tokio::test(start_paused = true)]
async fn flood_of_silent_connections_closes_only_those_of_its_source() {
    let (incoming, hub) = accepting(Limits { handshakes: 3, ..Limits::default() });
    let begin = Instant::now();
    let (mut early, server) = connection_from(3);
    incoming.send(server).await.unwrap();
    let mut flood = Vec::new();
    for number in 0..400 {
        let (client, server) = connection_from(2);
        incoming.send(server).await.unwrap();
        flood.push(client);
        if number % 100 == 99 {
            for host in [2, 4] {
                let (mut probe, server) = connection_from(host);
                incoming.send(server).await.unwrap();
                is_answered(&mut probe).await;
            }
        }
    }
    is_answered(&mut early).await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(hub.counters().connections_rejected(ConnectionRejection::Displaced) > 380);
}

/// Checks that a client that sends bytes gets an answer: a TLS alert, because they are no
/// handshake.
async fn is_answered(client: &mut DuplexStream) {
    client.write_all(b"this is no handshake").await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.first(), Some(&21), "an alert of TLS");
}

/// Invariant 10.
#[tokio::test(start_paused = true)]
async fn connection_beyond_the_limit_is_closed_at_once() {
    let (incoming, hub) = accepting(Limits { connections: 2, ..Limits::default() });
    let mut there = Vec::new();
    for _ in 0..2 {
        let (client, server) = connection();
        incoming.send(server).await.unwrap();
        there.push(client);
    }
    let (mut one_more, server) = connection();
    incoming.send(server).await.unwrap();
    let begin = Instant::now();
    assert_eq!(one_more.read(&mut [0]).await.unwrap(), 0, "closed");
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_eq!(hub.counters().connections_rejected(ConnectionRejection::Full), 1);
    // A closed connection frees its permit.
    there.clear();
    let (mut next, server) = connection();
    next.write_all(b"this is no handshake").await.unwrap();
    while hub.counters().connections_rejected(ConnectionRejection::BadHandshake) < 2 {
        tokio::task::yield_now().await;
    }
    incoming.send(server).await.unwrap();
    let mut answer = Vec::new();
    next.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.first(), Some(&21), "an alert of TLS");
}
