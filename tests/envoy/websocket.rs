//! WebSockets through two sidecars: an HTTP/1.1 upgrade at both ends, and an HTTP/2 stream between
//! the proxies (RFC 8441).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::upgrade::{Upgraded, on};
use hyper_util::rt::TokioIo;
use ironmesh_tests::eventually::patience;
use ironmesh_tests::{Mesh, Programs, ProxyOptions, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bookstore::wait_for_endpoint;

const POLICY: &str = r#"
[[service]]
name = "chat"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "guest"

[[http_route_group]]
name = "chat"
matches = [{ name = "rooms", path_regex = "/rooms/.*", methods = ["GET"] }]

[[traffic_target]]
name = "guests"
destination = { name = "chat" }
sources = [{ name = "guest" }]
rules = [{ kind = "HTTPRouteGroup", name = "chat" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn websocket_passes_two_sidecars_if_its_request_is_granted() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let _app = echo(mesh.loopback().socket(41, 8080)).await;
    let chat = mesh.envoy(&ProxyOptions::new("default/chat", 41)).await;
    let options = ProxyOptions::new("default/guest", 51).upstream("default/chat=8000");
    let guest = mesh.envoy(&options).await;
    wait_for_endpoint(&guest, "default/chat|80").await;

    for port in [8000, 15080] {
        let mut socket = eventually("the upgrade", async || {
            upgrade(guest.socket(port), "/rooms/1")
                .await?
                .map_err(|status| anyhow::anyhow!("answered {status} on port {port}"))
        })
        .await;
        for message in [b"first".to_vec(), vec![0, 0xff, b'\r', b'\n'], vec![7; 100_000]] {
            let (mut read, mut write) = split(&mut socket);
            let mut echoed = vec![0; message.len()];
            let exchange =
                async { tokio::try_join!(write.write_all(&message), read.read_exact(&mut echoed)) };
            timeout(patience(), exchange).await.expect("an echo in time").unwrap();
            assert!(echoed == message, "not what was sent came back");
        }
        // A close passes, too.
        socket.shutdown().await.unwrap();
        let mut rest = Vec::new();
        timeout(patience(), socket.read_to_end(&mut rest)).await.expect("an end in time").unwrap();
        assert!(rest.is_empty());
    }
    // The rest of the chat is denied to the guest, by any protocol.
    let rejected = upgrade(guest.socket(8000), "/admin").await.unwrap();
    assert_eq!(rejected.err(), Some(StatusCode::FORBIDDEN));
    // The proxies spoke HTTP/2.
    assert!(guest.stat("cluster.default/chat|80.upstream_cx_http2_total").await > 0);
    assert_eq!(guest.sum(r"^cluster\.default/chat\|80\.upstream_cx_http1_total$").await, 0);
    chat.assert_no_update_errors().await;
    guest.assert_no_update_errors().await;
}

/// Requests a WebSocket: the connection, or the status of the rejection.
async fn upgrade(
    address: SocketAddr,
    path: &str,
) -> anyhow::Result<Result<TokioIo<Upgraded>, StatusCode>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let request = Request::get(path)
        .header(header::HOST, "chat")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==")
        .body(Empty::<Bytes>::new())?;
    let answer = timeout(ANSWER, sender.send_request(request)).await.context("no answer")??;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Err(answer.status()));
    }
    let accepted = answer.headers().get(header::SEC_WEBSOCKET_ACCEPT);
    anyhow::ensure!(accepted.is_some_and(|value| value == ACCEPT), "{:?}", answer.headers());
    Ok(Ok(TokioIo::new(on(answer).await?)))
}

/// An application that accepts every WebSocket upgrade and echoes bytes.
async fn echo(address: SocketAddr) -> JoinSet<()> {
    let listener = TcpListener::bind(address).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let http = server::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(accept))
                .with_upgrades();
            connections.spawn(http);
        }
    });
    tasks
}

async fn accept(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let requested = request.headers().get(header::UPGRADE);
    if !requested.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        let mut answer = Response::new(Empty::new());
        *answer.status_mut() = StatusCode::UPGRADE_REQUIRED;
        return Ok(answer);
    }
    tokio::spawn(async move {
        let (mut read, mut write) = split(TokioIo::new(on(request).await.unwrap()));
        let _ = copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    });
    let answer = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, ACCEPT)
        .body(Empty::new());
    Ok(answer.unwrap())
}

/// The response to the key of the request (RFC 6455 §1.3).
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const ANSWER: Duration = Duration::from_secs(10);
