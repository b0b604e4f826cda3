//! Connections that callers hold open: streams after a withdrawal, and requests that never end.

use std::net::SocketAddr;

use bytes::Bytes;
use ironmesh_tests::eventually::patience;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{
    App, Http2Connection, Ledger, Mesh, Programs, ProxyOptions, TcpConnection, client, eventually,
    get_once, tls,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::bookstore::ensure_status;

/// Two services that differ only in their time limit, and a ledger with a limit.
const SERVICES: &str = r#"
[[service]]
name = "bounded"
ports = [{ name = "rpc", port = 80, protocol = "http2", target_port = 8080 }]
max_connection_duration = "2s"

[[service]]
name = "unbounded"
ports = [{ name = "rpc", port = 80, protocol = "http2", target_port = 8081 }]

[[service]]
name = "ledger"
ports = [{ name = "sql", port = 3306, protocol = "tcp", target_port = 8090 }]
max_connection_duration = "2s"

[[service]]
name = "buyer"

[[tcp_route]]
name = "all"

[[traffic_target]]
name = "ledger"
destination = { name = "ledger" }
sources = [{ name = "buyer" }]
rules = [{ kind = "TCPRoute", name = "all" }]
"#;

/// The file `grants.toml`.
const GRANTS: &str = r#"
[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "bounded"
destination = { name = "bounded" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]

[[traffic_target]]
name = "unbounded"
destination = { name = "unbounded" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

const MESSAGE: Bytes = Bytes::from_static(b"still there");

#[tokio::test(flavor = "multi_thread")]
async fn stream_survives_withdrawal_unless_its_duration_is_bounded() {
    let Some(programs) = Programs::find() else { return };
    let policy = [("services.toml", SERVICES), ("grants.toml", GRANTS)];
    let mesh = Mesh::start(&programs, &policy).await;
    let _apps = [
        App::http2("bounded", mesh.loopback().socket(21, 8080)).await,
        App::http2("unbounded", mesh.loopback().socket(21, 8081)).await,
    ];
    let _ledger = Ledger::start("ledger", mesh.loopback().socket(21, 8090)).await;
    let server = ProxyOptions::new("default/bounded", 21);
    let server =
        mesh.envoy(&server.with_service("default/unbounded").with_service("default/ledger")).await;
    let buyer = ProxyOptions::new("default/buyer", 11)
        .upstream("default/bounded=8001")
        .upstream("default/unbounded=8002")
        .upstream("default/ledger=3306");
    let buyer = mesh.envoy(&buyer).await;
    for port in [8001, 8002] {
        eventually(&format!("an answer at {port}"), async || {
            ensure_status(&get_once(buyer.socket(port), "/", &[]).await?, 200)
        })
        .await;
    }
    let open = async |port, host| {
        let mut connection = Http2Connection::connect(buyer.socket(port)).await.unwrap();
        let mut stream = connection.open_echo("/echo", host).await.unwrap();
        stream.exchange(MESSAGE).await.unwrap();
        (connection, stream)
    };
    let (_unbounded, mut survivor) = open(8002, "unbounded").await;
    let (_bounded, mut stream) = open(8001, "bounded").await;
    mesh.remove_policy("grants.toml");
    eventually("the withdrawal", async || {
        ensure_status(&get_once(buyer.socket(8002), "/", &[]).await?, 403)
    })
    .await;
    // A withdrawal does not end open streams; the time limit does.
    survivor.exchange(MESSAGE).await.unwrap();
    eventually("the end of the bounded stream", async || {
        stream.exchange(MESSAGE).await.err().ok_or("it is open")
    })
    .await;
    survivor.exchange(MESSAGE).await.unwrap();

    let mut connection = eventually("the ledger to speak", async || {
        let mut connection = TcpConnection::connect(buyer.socket(3306)).await?;
        connection.line().await?;
        anyhow::Ok(connection)
    })
    .await;
    eventually("the end of the bounded connection", async || {
        connection.exchange("still there").await.err().ok_or("it is open")
    })
    .await;
    server.assert_no_update_errors().await;
    buyer.assert_no_update_errors().await;
}

const INGRESS: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[ingress_backend]]
name = "store"
backends = [{ name = "store", port = { number = 80, protocol = "http", ingress_port = 8443 } }]
sources = [{ kind = "IPRange", name = "127.0.0.0/8" }]
"#;

/// The server's answer to a partial request, until it closes the connection.
async fn response_to_partial_request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> anyhow::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: store\r\n").await?;
    let mut answer = Vec::new();
    let end = timeout(patience(), stream.read_to_end(&mut answer)).await;
    // TLS may end without close_notify, which is an error of the last read.
    anyhow::ensure!(end.is_ok(), "it is open after {:?}", patience());
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_request_is_closed_at_mesh_port_and_ingress() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", INGRESS)]).await;
    let _app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
    let server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
    let ingress: SocketAddr = server.socket(8443);
    eventually("an answer of the ingress", async || {
        ensure_status(&get_once(ingress, "/", &[]).await?, 200)
    })
    .await;
    let folder = mesh.bootstrap(&ProxyOptions::new("default/store", 22)).await;
    let peer = ProxyClient::connect(&folder, mesh.xds()).await.unwrap();
    let (chain, key) = peer.service_certificate("default/store").await.unwrap();
    let (port, sni) = (server.socket(15003), "80.store.default.mesh.internal");
    let inside =
        tls::connect_mesh(port, sni, &["ironmesh"], &chain, &key, &peer.roots).await.unwrap();
    let outside = client::dial_from(mesh.loopback().host(31), ingress).await.unwrap();
    let (inside, outside) =
        tokio::join!(response_to_partial_request(inside), response_to_partial_request(outside));
    for answer in [inside.unwrap(), outside.unwrap()] {
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
    }
}
