//! Probes of real sockets and commands, also of those that behave badly.

mod commands;
mod sockets;

use std::net::SocketAddr;
use std::time::Duration;

use ironmesh_catalog::{ApplicationState, Probe, StatusRange};
use ironmesh_enrollment::{HealthReport, MAX_BODY, MAX_REASON, ReportedApplication, TrafficReport};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::probe::probe;
use super::within_bounds;
use crate::settings::Commands;

/// Long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// A limit that the probe is meant to reach.
const SHORT: Duration = Duration::from_millis(200);

fn http(http2: bool) -> Probe {
    let statuses = vec![StatusRange::default()];
    Probe::Http { path: "/healthz".to_owned(), host: None, statuses, http2 }
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An application that reads the head of a request, and then calls `answer` with the connection.
async fn application<F: Future<Output = ()> + Send + 'static>(
    answer: impl Fn(TcpStream) -> F + Copy + Send + 'static,
) -> SocketAddr {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                answer(stream).await;
            });
        }
    });
    address
}

#[test]
fn health_comes_before_traffic_that_does_not_fit() {
    let report = |count: u16| HealthReport {
        applications: (1..=count)
            .map(|port| ReportedApplication {
                service: "shop/store".parse().unwrap(),
                port,
                target: port,
                state: ApplicationState::Unhealthy,
                reason: Some("x".repeat(MAX_REASON)),
            })
            .collect(),
        traffic: Some(TrafficReport::default()),
        ..HealthReport::default()
    };
    assert!(within_bounds(report(10)).traffic.is_some());
    let large = within_bounds(report(256));
    assert!(large.traffic.is_none() && large.applications.len() == 256);
    assert!(serde_json::to_vec(&large).unwrap().len() <= MAX_BODY);
}
