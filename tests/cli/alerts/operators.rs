//! The alerts about connections of operators on the network.

use std::net::SocketAddr;

use ironmesh_tests::eventually::patience;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::Alarms;
use crate::operators::{api, start};

pub(super) const ALERTS: [&str; 2] = ["ApiConnectionsRejected", "ApiHandshakesFail"];

/// Connects from an address without TLS, and waits for the end.
async fn connect_without_tls(from: SocketAddr, to: SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(from).unwrap();
    let mut client = socket.connect(to).await.unwrap();
    // A blocked source is cut before it can write.
    let _ = client.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = timeout(patience(), client.read_to_end(&mut answer)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_about_connections_of_operators_fire_and_clear() {
    let Some((server, _child)) = start().await else { return };
    let Some(mut alarms) = Alarms::start(&server).await else { return };
    let api = api(&server);
    // From a different address each time, so that none is blocked.
    let mut hosts = (10..=250).cycle().map(|host| server.loopback.socket(host, 0));
    alarms
        .fires_by("ApiHandshakesFail", async || {
            connect_without_tls(hosts.next().unwrap(), api).await;
        })
        .await;
    alarms.clears("ApiHandshakesFail").await;

    let source = server.loopback.socket(9, 0);
    alarms
        .fires_by("ApiConnectionsRejected", async || {
            for _ in 0..20 {
                connect_without_tls(source, api).await;
            }
        })
        .await;
    alarms.clears("ApiConnectionsRejected").await;
    alarms.assert_observed(&ALERTS);
}
