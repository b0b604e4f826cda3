use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;

const LONG: Duration = Duration::from_secs(600);

/// Where a server with these bounds is.
async fn start(bounds: Bounds) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(|| async { "here" }));
    tokio::spawn(serve(listener, move |_| router.clone(), bounds));
    address
}

/// What comes back for these bytes until the server closes the connection.
async fn sent(address: SocketAddr, bytes: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(bytes.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn silent_and_half_sent_requests_are_closed() {
    let head = Duration::from_millis(20);
    let address = start(Bounds { connections: 8, head, life: LONG, grace: LONG }).await;
    for begun in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n"] {
        let answer = sent(address, begun).await.unwrap();
        assert!(!answer.contains("here"), "{begun}: {answer}");
    }
    // So is one that is kept alive and asks for nothing more.
    let answer = sent(address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(answer.ends_with("here"), "{answer}");
}

#[tokio::test]
async fn connection_ends_after_its_life() {
    let life = Duration::from_millis(20);
    let address = start(Bounds { connections: 8, head: LONG, life, grace: life }).await;
    assert_eq!(sent(address, "GET / HT").await.unwrap(), "");
}

#[tokio::test]
async fn connection_beyond_the_limit_is_closed_until_one_ends() {
    let address = start(Bounds { connections: 1, head: LONG, life: LONG, grace: LONG }).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    // It is served, and so it has the place.
    assert_eq!(first.read_u8().await.unwrap(), b'H');
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let second = sent(address, request).await;
    assert!(second.as_ref().map_or(true, String::is_empty), "{second:?}");
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = sent(address, request).await;
        if answer.as_ref().is_ok_and(|answer| answer.ends_with("here")) {
            return;
        }
        assert!(Instant::now() < deadline, "the place is not free again: {answer:?}");
        tokio::task::yield_now().await;
    }
}
