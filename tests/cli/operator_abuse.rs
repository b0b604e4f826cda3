//! Hostile clients of the listener for operators: each affects only its own source.

use std::net::{IpAddr, SocketAddr};

use http::Method;
use ironmesh_tests::tls::connect_over;
use ironmesh_tests::{Http1Connection, Response, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::operators::{api, roots, start, token_text};
use crate::server::Server;

/// A connection of TCP from this host of the test's network.
async fn connect(server: &Server, host: u8) -> std::io::Result<TcpStream> {
    let source: IpAddr = server.loopback.socket(host, 0).ip();
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(api(server)).await
}

/// The same after the handshake.
async fn handshake(server: &Server, host: u8) -> anyhow::Result<TlsStream<TcpStream>> {
    let stream = connect(server, host).await?;
    connect_over(stream, "control-plane.internal", &["http/1.1"], None, &roots(server)).await
}

/// A request with a token, on a connection of its own.
async fn read_with(server: &Server, host: u8, token: &str) -> anyhow::Result<Response> {
    let mut connection = Http1Connection::over(handshake(server, host).await?).await?;
    let (authority, bearer) = (api(server).to_string(), format!("Bearer {token}"));
    let headers = [("host", &*authority), ("authorization", &*bearer)];
    connection.request(Method::GET, "/v1/proxies", &headers).await
}

/// A login with a link, on a connection of its own.
async fn log_in(server: &Server, host: u8, link: &str) -> anyhow::Result<Response> {
    let mut connection = Http1Connection::over(handshake(server, host).await?).await?;
    let authority = api(server).to_string();
    let headers = [("host", &*authority), ("content-type", "application/json")];
    let body = serde_json::to_vec(&json!({ "link": link }))?;
    connection.send(Method::POST, "/v1/login", &headers, body).await
}

#[tokio::test]
async fn guesses_block_their_source_alone() {
    let Some((server, _child)) = start().await else { return };
    let good = token_text(&server, "root", "viewer", "1h");
    let (tokens, links, other) = (40, 41, 42);
    let guess = format!("imo1_0123456789abcdef_{}", "0".repeat(64));
    let guess_link = guess.replace("imo1", "iml1");
    for attempt in 0..20 {
        let answer = read_with(&server, tokens, &guess).await.unwrap();
        assert_eq!(answer.status, 401, "{attempt}: {}", answer.text());
        let answer = log_in(&server, links, &guess_link).await.unwrap();
        assert_eq!(answer.status, 401, "{attempt}: {}", answer.text());
    }
    // Also with the right token, the source is not served for a minute.
    for blocked in [tokens, links] {
        let answer = read_with(&server, blocked, &good).await;
        assert!(answer.is_err(), "{answer:?}");
    }
    assert_eq!(read_with(&server, other, &good).await.unwrap().status, 200);
}

#[tokio::test]
async fn open_connections_of_one_source_leave_others_served() {
    let Some((server, _child)) = start().await else { return };
    let good = token_text(&server, "root", "viewer", "1h");
    let (flood, other) = (40, 41);
    // Half of a head each.
    let mut held = Vec::new();
    for _ in 0..128 {
        let mut stream = handshake(&server, flood).await.unwrap();
        stream.write_all(b"GET /v1/proxies HTTP/1.1\r\n").await.unwrap();
        held.push(stream);
    }
    eventually("the limit of the source", async || {
        let mut more = connect(&server, flood).await?;
        let read = more.read(&mut [0]).await;
        anyhow::ensure!(matches!(read, Ok(0) | Err(_)), "one more is served");
        Ok(())
    })
    .await;
    assert_eq!(read_with(&server, other, &good).await.unwrap().status, 200);
    // The connections end without their client.
    for mut stream in held {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(!String::from_utf8_lossy(&rest).contains(" 200 "), "{rest:?}");
    }
}

#[tokio::test]
async fn huge_body_is_rejected_before_it_is_read() {
    let Some((server, _child)) = start().await else { return };
    let admin = token_text(&server, "root", "admin", "1h");
    let host = api(&server);
    for path in ["/v1/login", "/v1/policy/apply", "/v1/silences"] {
        let mut stream = handshake(&server, 40).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {admin}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            1_u64 << 30
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413", "{path}");
    }
}
