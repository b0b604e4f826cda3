//! Probes of each kind, against applications that speak it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ironmesh_tests::Programs;
use ironmesh_tests::process::Child;
use rustix::process::Signal;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::shop::{HTTP, Kind, SERVERS, Shop, policy};

/// An application with gRPC's health service. Dropping it stops it.
struct GrpcApp {
    serving: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl GrpcApp {
    async fn start(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let serving = Arc::new(AtomicBool::new(true));
        let mut tasks = JoinSet::new();
        let is_serving = Arc::clone(&serving);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let is_serving = Arc::clone(&is_serving);
                let service = service_fn(move |request: Request<Incoming>| {
                    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                    let status = if is_serving.load(Ordering::Relaxed) { 1 } else { 2 };
                    std::future::ready(Ok::<_, Infallible>(health_response(status)))
                });
                let http2 = http2::Builder::new(TokioExecutor::new());
                let connection = http2.serve_connection(TokioIo::new(stream), service);
                connections.spawn(async { drop(connection.await) });
            }
        });
        Self { serving, _tasks: tasks }
    }
}

fn health_response(
    status: u8,
) -> Response<impl Body<Data = Bytes, Error = Infallible> + Send + 'static> {
    let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 0x08, status]);
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(message).with_trailers(std::future::ready(Some(Ok(trailers))));
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_probes_by_grpc_tcp_and_command() {
    probe_by_each_kind(Kind::Agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_probes_by_grpc_and_tcp_and_runs_no_command() {
    probe_by_each_kind(Kind::Envoy).await;
}

async fn probe_by_each_kind(kind: Kind) {
    let Some(programs) = Programs::find() else { return };
    let shop = Shop::start(&programs, kind, "grpc = { service = \"shop.Store\" }").await;
    let address = |host| shop.mesh.loopback().socket(host, 8080);
    let [first, second] = SERVERS.map(|host| GrpcApp::start(address(host)));
    let (first, second) = (first.await, second.await);
    shop.wait_for(["healthy", "healthy"]).await;
    first.serving.store(false, Ordering::Relaxed);
    shop.wait_for(["unhealthy", "healthy"]).await;
    shop.wait_for_hosts(1).await;
    first.serving.store(true, Ordering::Relaxed);
    shop.wait_for(["healthy", "healthy"]).await;

    // Policy changes the probe, and no application leaves because of that.
    shop.mesh.write_policy("policy.toml", &policy("tcp = {}"));
    drop(second);
    shop.wait_for(["healthy", "unhealthy"]).await;
    let _second = GrpcApp::start(address(SERVERS[1])).await;
    shop.wait_for(["healthy", "healthy"]).await;

    shop.mesh.write_policy("policy.toml", &policy("command = \"pass\""));
    drop(first);
    match kind {
        Kind::Agent => {
            shop.wait_for_probe("command").await;
            shop.wait_for(["healthy", "healthy"]).await;
        }
        Kind::Envoy => shop.wait_for_unknown("an Envoy without an agent runs no commands").await,
    }
    shop.wait_for_hosts(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_process_that_the_agent_probes_leaves_its_callers() {
    stop_process(Kind::Agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_process_that_envoy_probes_leaves_its_callers() {
    stop_process(Kind::Envoy).await;
}

/// The kernel goes on accepting connections of a process that is stopped.
async fn stop_process(kind: Kind) {
    let Some(programs) = Programs::find() else { return };
    let shop = Shop::start(&programs, kind, &HTTP.replace("/healthz", "/")).await;
    let folder = shop.mesh.folder().join("served");
    fs_err::create_dir(&folder).unwrap();
    let process = |host| {
        let address = shop.mesh.loopback().host(host).to_string();
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "8080", "--bind", &address]).current_dir(&folder);
        Child::start("the application", &mut command, &shop.mesh.folder().join("app.log"))
    };
    let [first, _second] = SERVERS.map(process);
    shop.wait_for(["healthy", "healthy"]).await;
    first.signal(Signal::STOP);
    shop.wait_for(["unhealthy", "healthy"]).await;
    shop.wait_for_hosts(1).await;
    shop.load().finish().await.assert_undisturbed();
    first.signal(Signal::CONT);
    shop.wait_for(["healthy", "healthy"]).await;
    shop.wait_for_hosts(2).await;
}
