//! Which connections the server accepts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ironmesh_tests::eventually::patience;
use ironmesh_tests::xds::Connector;
use ironmesh_xds_server::Limits;
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, config, connect, dial, names};
use crate::server::{Server, cluster};
use ironmesh_tests::authority::{Identity, TestAuthority};

/// The error with which the server rejects a connection. In TLS 1.3 the client completes the
/// handshake first, and reads the error afterwards.
async fn rejection(server: &Server, config: Arc<ClientConfig>) -> io::Error {
    let mut connection = match dial(server.address, config).await {
        Ok(connection) => connection,
        Err(rejection) => return rejection,
    };
    let mut buffer = [0; 1024];
    match timeout(patience(), connection.read(&mut buffer)).await.expect("an answer") {
        Ok(length) => panic!("{length} bytes, and no alert"),
        Err(rejection) => rejection,
    }
}

fn with_tls13(server: &Server, client: Option<&Identity>) -> Arc<ClientConfig> {
    config(server.authority.roots(), client, &[&TLS13])
}

/// A1.
#[tokio::test]
async fn client_without_certificate_is_rejected_in_the_handshake() {
    let server = Server::start().await;
    let rejection = rejection(&server, with_tls13(&server, None)).await.to_string();
    assert!(rejection.contains("CertificateRequired"), "{rejection}");
}

/// A4.
#[tokio::test]
async fn foreign_authority_certificate_is_rejected_in_the_handshake() {
    let server = Server::start().await;
    let stranger = TestAuthority::new().proxy();
    let rejection = rejection(&server, with_tls13(&server, Some(&stranger))).await.to_string();
    assert!(rejection.contains("UnknownCA") || rejection.contains("DecryptError"), "{rejection}");
    assert!(server.hub.status().is_empty());
}

/// A21 (bystander).
#[tokio::test]
async fn tls_1_2_is_rejected() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let old = config(server.authority.roots(), Some(&client), &[&TLS12]);
    let rejection = rejection(&server, old).await.to_string();
    assert!(rejection.contains("ProtocolVersion"), "{rejection}");
    bystander.assert_served(&server).await;
}

/// A67 (bystander).
#[tokio::test]
async fn new_tls_configuration_applies_from_the_next_connection() {
    let mut server = Server::start().await;
    let mut bystander = Bystander::open(&server).await;
    let old_client = server.authority.proxy();
    let mut old_stream = Stream::open(&server, &old_client).await;

    let next = TestAuthority::new();
    server.tls.send_replace(next.server_config());
    let old_config = with_tls13(&server, Some(&old_client));
    assert!(dial(server.address, old_config).await.is_err(), "the server's certificate is new");
    bystander.assert_served(&server).await;

    server.authority = next;
    let new_client = server.authority.proxy();
    let mut new_stream =
        Stream::begin(connect(&server, &new_client).await, clusters(&new_client)).await;
    for (client, stream) in [(&old_client, &mut old_stream), (&new_client, &mut new_stream)] {
        server.publish(client, cluster("a", "1").1).await;
        assert_eq!(names(&stream.push().await), ["a"], "streams that are there stay");
    }
}

#[tokio::test]
async fn silent_connection_does_not_delay_other_clients() {
    let server = Server::start().await;
    let silent = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let client = server.authority.proxy();
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    assert_eq!(names(&stream.push().await), ["a"]);
    drop(silent);
}

/// A13: a resumed session would skip the certificate check.
#[tokio::test]
async fn tls_sessions_are_never_resumed() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let tls = with_tls13(&server, Some(&client));
    for _ in 0..3 {
        // The configuration keeps the tickets that it receives.
        let connection = dial(server.address, Arc::clone(&tls)).await.unwrap();
        assert_eq!(connection.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
        let channel = connect(&server, &client).await;
        let mut stream = Stream::begin(channel, clusters(&client)).await;
        server.publish(&client, cluster("a", "1").1).await;
        stream.push().await;
        assert_eq!(connection.get_ref().1.tls13_tickets_received(), 0);
    }
}

/// A13 (bystander): a client that was disconnected must present its certificate again, even with a
/// ticket.
#[tokio::test]
async fn disconnected_client_makes_a_full_handshake() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let tls = with_tls13(&server, Some(&client));
    let connector = Connector { address: server.address, config: Arc::clone(&tls) };
    let endpoint = Endpoint::from_static("http://xds");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    let mut stream = Stream::begin(channel, clusters(&client)).await;
    server.publish(&client, cluster("a", "1").1).await;
    stream.push().await;
    server.hub.disconnect(&client.name(), "its certificate is revoked");
    assert_eq!(stream.end().await.code(), Code::PermissionDenied);
    for _ in 0..2 {
        let connection = dial(server.address, Arc::clone(&tls)).await.unwrap();
        assert_eq!(connection.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
        assert_eq!(connection.get_ref().1.tls13_tickets_received(), 0);
    }
    bystander.assert_served(&server).await;
}

/// A69.
#[tokio::test]
async fn clients_connect_over_ipv6_and_dual_stack() {
    let loopback = IpAddr::from(Ipv6Addr::LOCALHOST);
    if let Err(error) = TcpListener::bind((loopback, 0)).await {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no IPv6: {error}");
        eprintln!("SKIPPED: there is no IPv6 here: {error}");
        return;
    }
    let mut server = Server::start_at(loopback, Limits::default()).await;
    Bystander::open(&server).await.assert_served(&server).await;
    server = Server::start_at(Ipv6Addr::UNSPECIFIED.into(), Limits::default()).await;
    let port = server.address.port();
    for address in [loopback, Ipv4Addr::LOCALHOST.into()] {
        server.address = (address, port).into();
        Bystander::open(&server).await.assert_served(&server).await;
    }
}
