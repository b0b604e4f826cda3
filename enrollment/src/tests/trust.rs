//! The client's verification of the server, and the TLS of both sides.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{ServiceAccount, SpiffeId};
use ironmesh_cert::{Authority, ControlPlaneCertificate, tls};
use ironmesh_listener::{TlsCredentials as _, WRITE_LIMIT, WriteDeadline};
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::support::*;
use crate::server::EnrollmentCredentials;
use crate::{EnrollmentClientError, ServerTrust};

/// A TLS server that reports how its first handshake ended, and the bytes of the request.
async fn observer(
    tls: Arc<ServerConfig>,
) -> (std::net::SocketAddr, JoinHandle<Result<usize, String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let observed = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let stream = TlsAcceptor::from(tls).accept(tcp).await;
        let mut stream = stream.map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        Ok(bytes.len())
    });
    (address, observed)
}

fn credentials(authority: &Authority, own: &ControlPlaneCertificate) -> Arc<ServerConfig> {
    EnrollmentCredentials::new(own, &authority.trust_bundle(), &trust_domain()).unwrap().tls()
}

/// The client's error, after a check that the server has seen no byte of the request.
async fn rejection(tls: Arc<ServerConfig>, trust: ServerTrust) -> String {
    let (address, observed) = observer(tls).await;
    let begin = Instant::now();
    let error = client(&[address], trust).enroll(&request().1).await.unwrap_err();
    assert!(matches!(error, EnrollmentClientError::Untrusted { .. }), "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(5), "it is not tried again");
    let handshake = observed.await.unwrap().unwrap_err();
    assert!(handshake.contains("alert"), "{handshake}");
    error.to_string()
}

#[tokio::test]
async fn server_of_another_ca_gets_no_byte_of_the_request() {
    let (own, other) = (authority(), authority());
    let tls = credentials(&other, &control_plane_certificate(&other));
    let (expected, found) = (ca_hash(&own), ca_hash(&other));
    let error = rejection(tls, ServerTrust::Hashes(vec![expected])).await;
    assert!(error.contains(&format!("expected the CA hash {expected}, found {found};")), "{error}");
}

#[tokio::test]
async fn chain_without_root_is_rejected() {
    let authority = authority();
    let own = control_plane_certificate(&authority);
    // The configuration of the xDS listener has the chain without the root.
    let mut config =
        ServerConfig::clone(&tls::server_config(&own, &authority.trust_bundle()).unwrap());
    config.alpn_protocols.clear();
    let trust = ServerTrust::Hashes(vec![ca_hash(&authority)]);
    let error = rejection(Arc::new(config), trust).await;
    assert!(error.contains("no root in the server's chain"), "{error}");
}

#[tokio::test]
async fn server_with_another_identity_below_the_root_is_rejected() {
    let authority = authority();
    let account: ServiceAccount = "shop/bookstore".parse().unwrap();
    let now = Timestamp::now();
    let service =
        authority.issue_service_certificate(&account, Duration::from_secs(86_400), now).unwrap();
    let own = control_plane_certificate(&authority);
    let own = ControlPlaneCertificate { chain: service.chain, key: service.key, ..own };
    let trust = ServerTrust::Hashes(vec![ca_hash(&authority)]);
    let error = rejection(credentials(&authority, &own), trust).await;
    assert!(error.contains("spiffe://mesh.internal/ns/shop/sa/bookstore"), "{error}");
    assert!(error.contains("spiffe://mesh.internal/control-plane"), "{error}");
}

#[tokio::test]
async fn server_with_another_spiffe_id_than_the_known_one_is_rejected() {
    let authority = authority();
    let trust = ServerTrust::Roots {
        bundle: authority.trust_bundle(),
        control_plane: SpiffeId::new("spiffe://other.example/control-plane").unwrap(),
    };
    let tls = credentials(&authority, &control_plane_certificate(&authority));
    let error = rejection(tls, trust).await;
    assert!(error.contains("spiffe://other.example/control-plane"), "{error}");
}

#[tokio::test]
async fn known_roots_and_one_of_several_hashes_are_trusted() {
    let server = Server::start().await;
    let control_plane = trust_domain().control_plane().0;
    let roots = ServerTrust::Roots { bundle: server.authority.trust_bundle(), control_plane };
    let hashes = ServerTrust::Hashes(vec![ca_hash(&authority()), ca_hash(&server.authority)]);
    for trust in [roots, hashes] {
        client(&[server.address], trust).enroll(&request().1).await.unwrap();
    }
}

#[tokio::test]
async fn tls_1_2_is_refused() {
    let server = Server::start().await;
    server.connect([127, 0, 0, 1], TLS12, None).await.unwrap_err();
    server.connect([127, 0, 0, 1], TLS13, None).await.unwrap();
}

/// A client that reads nothing, for whose connection a server writes a little now and then, as a stream of events does.
#[tokio::test(start_paused = true)]
async fn stalled_reader_below_tls_fails_a_server_that_still_writes() {
    let authority = authority();
    let tls = credentials(&authority, &control_plane_certificate(&authority));
    let (own, peer) = tokio::io::duplex(4096);
    let connector = TlsConnector::from(tls_config(&authority, rustls::ALL_VERSIONS, None));
    let (stream, client) = tokio::join!(
        TlsAcceptor::from(tls).accept(WriteDeadline::new(own, WRITE_LIMIT)),
        connector.connect("localhost".try_into().unwrap(), peer)
    );
    let (mut stream, _client) = (stream.unwrap(), client.unwrap());
    stream.write_all(&[0; 8192]).await.unwrap();
    let begin = Instant::now();
    let error = loop {
        // TLS keeps these bytes in its buffer.
        if let Err(error) = stream.write_all(b": idle\n\n").await {
            break error;
        }
        if let Ok(Err(error)) = timeout(Duration::from_secs(10), stream.flush()).await {
            break error;
        }
        assert!(begin.elapsed() <= WRITE_LIMIT, "it writes for {:?}", begin.elapsed());
    };
    assert_eq!((error.kind(), begin.elapsed()), (ErrorKind::TimedOut, WRITE_LIMIT));
}
