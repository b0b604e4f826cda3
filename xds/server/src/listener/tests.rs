//! What is accepted, on a clock that only the tests move.

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::Instant;

use super::*;

/// Shows no certificate: no handshake comes to its end.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

type Accepted = io::Result<(DuplexStream, SocketAddr)>;

/// Accepts what is sent, until the test ends.
fn accepting() -> mpsc::Sender<Accepted> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(NoCertificate));
    let (tls, shutdown) = (watch::Sender::new(Arc::new(config)), CancellationToken::new());
    let (incoming, accepted) = mpsc::channel(8);
    let (connections, _) = mpsc::channel(1);
    tokio::spawn(accept(ReceiverStream::new(accepted), tls.subscribe(), connections, shutdown));
    incoming
}

fn connection() -> (DuplexStream, Accepted) {
    let (client, server) = duplex(1024);
    (client, Ok((server, ([127, 0, 0, 1], 1).into())))
}

// Invariant 10: such as when there are no more file descriptors.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_accepted_is_tried_again_after_a_pause() {
    let incoming = accepting();
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
}

// Invariant 10.
#[tokio::test(start_paused = true)]
async fn a_silent_client_is_closed_in_time_and_stands_in_nobodys_way() {
    let incoming = accepting();
    let begin = Instant::now();
    let (mut silent, server) = connection();
    incoming.send(server).await.unwrap();
    let (mut other, server) = connection();
    incoming.send(server).await.unwrap();
    other.write_all(b"this is no handshake").await.unwrap();
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).await.unwrap();
    assert_eq!((answer.first(), begin.elapsed()), (Some(&21), Duration::ZERO));
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "closed, and nothing said");
    // (Timers of tokio go by milliseconds.)
    let deadline = HANDSHAKE_DEADLINE..=HANDSHAKE_DEADLINE + Duration::from_millis(1);
    assert!(deadline.contains(&begin.elapsed()), "{:?}", begin.elapsed());
}
