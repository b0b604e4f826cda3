//! Who may connect at all.

use std::io;
use std::sync::Arc;

use ironmesh_tests::eventually::patience;
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::client::{Stream, clusters, config, connect, dial, names};
use crate::server::{Server, cluster};
use ironmesh_tests::authority::{Identity, TestAuthority};

/// How the server turns a connection down. (In TLS 1.3 the client has done its part by then, and
/// learns of it at its first read.)
async fn refusal(server: &Server, config: Arc<ClientConfig>) -> io::Error {
    let mut connection = match dial(server.address, config).await {
        Ok(connection) => connection,
        Err(refusal) => return refusal,
    };
    let mut buffer = [0; 1024];
    match timeout(patience(), connection.read(&mut buffer)).await.expect("an answer") {
        Ok(length) => panic!("{length} bytes, and no alert"),
        Err(refusal) => refusal,
    }
}

fn with_tls13(server: &Server, client: Option<&Identity>) -> Arc<ClientConfig> {
    config(server.authority.roots(), client, &[&TLS13])
}

#[tokio::test]
async fn who_shows_no_certificate_is_refused_in_the_handshake() {
    let server = Server::start().await;
    let refusal = refusal(&server, with_tls13(&server, None)).await.to_string();
    assert!(refusal.contains("CertificateRequired"), "{refusal}");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_in_the_handshake() {
    let server = Server::start().await;
    let stranger = TestAuthority::new().proxy();
    let refusal = refusal(&server, with_tls13(&server, Some(&stranger))).await.to_string();
    assert!(refusal.contains("UnknownCA") || refusal.contains("DecryptError"), "{refusal}");
    assert!(server.hub.status().is_empty());
}

#[tokio::test]
async fn tls_1_2_is_refused() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let old = config(server.authority.roots(), Some(&client), &[&TLS12]);
    let refusal = refusal(&server, old).await.to_string();
    assert!(refusal.contains("ProtocolVersion"), "{refusal}");
}

#[tokio::test]
async fn a_new_tls_configuration_is_used_from_the_next_connection_on() {
    let mut server = Server::start().await;
    let old_client = server.authority.proxy();
    let mut old_stream = Stream::open(&server, &old_client).await;

    let next = TestAuthority::new();
    server.tls.send_replace(next.server_config());
    let old_config = with_tls13(&server, Some(&old_client));
    assert!(dial(server.address, old_config).await.is_err(), "the server's certificate is new");

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
async fn a_silent_connection_stands_in_nobodys_way() {
    let server = Server::start().await;
    let silent = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let client = server.authority.proxy();
    let mut stream = Stream::open(&server, &client).await;
    server.publish(&client, cluster("a", "1").1).await;
    assert_eq!(names(&stream.push().await), ["a"]);
    drop(silent);
}

// A13: a session that is resumed would not be checked again.
#[tokio::test]
async fn no_session_is_resumed() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let tls = with_tls13(&server, Some(&client));
    for _ in 0..3 {
        // (The same configuration keeps what it is given to resume with.)
        let connection = dial(server.address, Arc::clone(&tls)).await.unwrap();
        assert_eq!(connection.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
        let channel = connect(&server, &client).await;
        let mut stream = Stream::begin(channel, clusters(&client)).await;
        server.publish(&client, cluster("a", "1").1).await;
        stream.push().await;
        assert_eq!(connection.get_ref().1.tls13_tickets_received(), 0);
    }
}
