//! Hostile and slow clients: each affects only its own address (invariant 10).

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::support::*;
use crate::{EnrollmentLimits, MAX_BODY};

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

#[tokio::test]
async fn oversized_body_is_rejected_before_it_is_read() {
    let server = Server::start().await;
    let announced =
        format!("POST /v1/enroll HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 1 << 30);
    let (status, body) = server.send(&announced, None).await;
    assert_eq!((status, code(&body)), (413, "request_invalid"));
    let chunk = "x".repeat(MAX_BODY + 1);
    let chunked = format!(
        "POST /v1/enroll HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{chunk}",
        chunk.len()
    );
    let (status, body) = server.send(&chunked, None).await;
    assert_eq!((status, code(&body)), (413, "request_invalid"));
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let short = Duration::from_millis(300);
    let limits = EnrollmentLimits {
        handshake_time: short,
        request_time: short,
        ..EnrollmentLimits::default()
    };
    let server = Server::with(limits).await;
    let begin = Instant::now();
    // Silent before the handshake.
    let mut silent = connect_from(LOOPBACK, server.address).await.unwrap();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(server.lost("slow_handshake"), 1);
    // Silent after the handshake, and within the head.
    for head in ["", "POST /v1/enroll HTTP/1.1\r\n"] {
        let mut stream = server.connect(LOOPBACK, TLS13, None).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    assert_eq!(server.lost("no_request"), 2);
    // Silent within the body.
    let head = "POST /v1/enroll HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{";
    let (status, body) = server.send(head, None).await;
    assert_eq!((status, code(&body)), (408, "request_invalid"));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    server.client().enroll(&request().1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshake_flood_of_one_address_leaves_another_served() {
    let limits = EnrollmentLimits {
        handshakes_per_second: 50,
        connections_per_source: 64,
        failures_per_minute: 1000,
        ..EnrollmentLimits::default()
    };
    let server = Arc::new(Server::with(limits).await);
    let flooded = Arc::new(Semaphore::new(0));
    let mut flood = JoinSet::new();
    for _ in 0..64 {
        let (server, flooded) = (Arc::clone(&server), Arc::clone(&flooded));
        flood.spawn(async move {
            loop {
                if server.connect([127, 0, 0, 2], TLS13, None).await.is_ok() {
                    flooded.add_permits(1);
                }
            }
        });
    }
    // More than the burst. The tests of `handshake_slots` check the delay, on virtual time.
    flooded.acquire_many(100).await.unwrap().forget();
    for _ in 0..5 {
        server.client().enroll(&request().1).await.unwrap();
    }
    flood.abort_all();
    assert_eq!(server.calls().len(), 5);
}

#[tokio::test]
async fn address_with_repeated_failures_is_blocked_for_a_time() {
    let limits = EnrollmentLimits {
        failures_per_minute: 5,
        block: Duration::from_secs(1),
        ..EnrollmentLimits::default()
    };
    let server = Server::with(limits).await;
    let host = [127, 0, 0, 2];
    for _ in 0..5 {
        server.connect(host, TLS12, None).await.unwrap_err();
    }
    while server.lost("bad_handshake") < 5 {
        sleep(Duration::from_millis(10)).await;
    }
    // The server blocks the address shortly after it has counted the failure.
    while server.connect(host, TLS13, None).await.is_ok() {}
    assert_eq!(server.lost("blocked"), 1);
    server.client().enroll(&request().1).await.unwrap();
    while server.connect(host, TLS13, None).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn full_queue_is_reported_as_busy() {
    let limits = EnrollmentLimits { workers: 1, queue: 1, ..EnrollmentLimits::default() };
    let server = Arc::new(Server::with(limits).await);
    let closed = server.enroller.gate.lock().await;
    let mut enrollments = JoinSet::new();
    for _ in 0..2 {
        let server = Arc::clone(&server);
        let body = enroll_body(&request().1.certificate_request);
        enrollments.spawn(async move { server.post("/v1/enroll", &body).await });
    }
    // One enrollment fills the queue until the gate opens, so the other one is answered first.
    let (status, body) = enrollments.join_next().await.unwrap().unwrap();
    assert_eq!((status, code(&body)), (503, "busy"));
    drop(closed);
    assert_eq!(enrollments.join_next().await.unwrap().unwrap().0, 200);
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn client_that_only_connects_and_leaves_is_not_blocked() {
    let limits = EnrollmentLimits { failures_per_minute: 3, ..EnrollmentLimits::default() };
    let server = Server::with(limits).await;
    for _ in 0..10 {
        drop(connect_from(LOOPBACK, server.address).await.unwrap());
    }
    while server.lost("closed") < 10 {
        sleep(Duration::from_millis(10)).await;
    }
    server.client().enroll(&request().1).await.unwrap();
}
