//! Health discovery streams: clients that report in time, too often, or too much.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use h2::{RecvStream, SendStream};
use ironmesh_xds_wire::EndpointReport;
use ironmesh_xds_wire::pb::envoy::service::health::v3::HealthCheckSpecifier;
use tokio::sync::watch;

use super::*;

/// The gRPC frames of the first message of node `c`, and of an empty report.
const FIRST: &[u8] = b"\0\0\0\0\x07\x0a\x05\x0a\x03\x0a\x01c";
const REPORT: &[u8] = b"\0\0\0\0\x02\x12\x00";

/// Admits every client until it is revoked, sends specifiers, and counts reports.
struct Checks {
    is_revoked: AtomicBool,
    specifier: watch::Sender<Arc<HealthCheckSpecifier>>,
    reports: AtomicUsize,
}

impl Admission for Checks {
    fn admit(&self, _: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
        if self.is_revoked.load(Ordering::Relaxed) {
            return Err(StreamRejection("its certificate is revoked".to_owned()));
        }
        Ok(node.id.as_str().into())
    }

    fn health_checks(&self, _: &ClientKey, _: &Node) -> watch::Receiver<Arc<HealthCheckSpecifier>> {
        self.specifier.subscribe()
    }

    fn health_reported(&self, _: &ClientKey, _: Vec<EndpointReport>) {
        self.reports.fetch_add(1, Ordering::Relaxed);
    }
}

struct World {
    hub: Arc<Hub>,
    checks: Arc<Checks>,
    requests: SendRequest<bytes::Bytes>,
    _peer: Peer,
}

async fn world() -> World {
    let (is_revoked, specifier, reports) = Default::default();
    let checks = Arc::new(Checks { is_revoked, specifier, reports });
    let hub = Arc::default();
    let (peer, io) = connection_by(&hub, Limits::default(), Arc::clone(&checks) as _);
    let (requests, _) = speak(io).await;
    World { hub, checks, requests, _peer: peer }
}

impl World {
    async fn open(&mut self, first: &'static [u8]) -> (RecvStream, SendStream<bytes::Bytes>) {
        let method = "http://xds/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck";
        let request = http::Request::post(method)
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let (response, mut body) = self.requests.send_request(request, false).unwrap();
        body.send_data(first.into(), false).unwrap();
        (response.await.unwrap().into_body(), body)
    }

    fn reports(&self) -> usize {
        self.checks.reports.load(Ordering::Relaxed)
    }
}

/// The specifier that a client reads.
async fn specifier(stream: &mut RecvStream) -> Vec<u8> {
    let frame = timeout(Duration::from_secs(10), stream.data()).await.expect("a specifier");
    frame.unwrap().unwrap().to_vec()
}

async fn end(stream: &mut RecvStream) -> tonic::Status {
    let trailers = timeout(Duration::from_secs(300), stream.trailers()).await.expect("it ends");
    tonic::Status::from_header_map(&trailers.unwrap().unwrap()).unwrap()
}

/// Envoy reports only after a specifier on its stream.
#[tokio::test(start_paused = true)]
async fn health_stream_gets_a_specifier_at_once_and_each_change() {
    let mut world = world().await;
    let (mut stream, mut body) = world.open(FIRST).await;
    assert_eq!(specifier(&mut stream).await, [0; 5], "an empty one");
    body.send_data(REPORT.into(), false).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.reports(), 1);
    // So reports an Envoy that probes nothing.
    body.send_data(bytes::Bytes::from_static(&[0; 5]), false).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.reports(), 2);
    let interval = Some(prost_duration(1));
    let changed = HealthCheckSpecifier { interval, ..HealthCheckSpecifier::default() };
    world.checks.specifier.send_replace(Arc::new(changed));
    assert_eq!(specifier(&mut stream).await, b"\0\0\0\0\x04\x12\x02\x08\x01");
}

fn prost_duration(seconds: i64) -> ironmesh_xds_wire::pb::google::protobuf::Duration {
    ironmesh_xds_wire::pb::google::protobuf::Duration { seconds, nanos: 0 }
}

#[tokio::test(start_paused = true)]
async fn revoked_client_loses_its_health_stream_and_gets_no_other() {
    let mut world = world().await;
    let (mut stream, _body) = world.open(FIRST).await;
    specifier(&mut stream).await;
    world.hub.disconnect("other", "it is not this one");
    world.checks.is_revoked.store(true, Ordering::Relaxed);
    let (mut second, _second) = world.open(FIRST).await;
    let status = end(&mut second).await;
    assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status}");
    world.hub.disconnect("c", "its certificate is revoked");
    let status = end(&mut stream).await;
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    assert_eq!(status.message(), "its certificate is revoked");
}

/// A85.
#[tokio::test(start_paused = true)]
async fn too_frequent_health_reports_are_read_slowly_and_end_the_stream() {
    let mut world = world().await;
    let (mut stream, mut body) = world.open(FIRST).await;
    specifier(&mut stream).await;
    for _ in 0..1000 {
        body.send_data(REPORT.into(), false).unwrap();
    }
    let begin = Instant::now();
    let status = end(&mut stream).await;
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
    assert!(begin.elapsed() >= Duration::from_secs(60), "{:?}", begin.elapsed());
    assert!(world.reports() < 150, "{}", world.reports());
    assert_eq!(world.hub.counters().streams_closed(CloseReason::Flood), 1);
}

/// A85.
#[tokio::test(start_paused = true)]
async fn malformed_health_messages_end_the_stream() {
    let mut world = world().await;
    for (bytes, code) in [
        (REPORT, tonic::Code::InvalidArgument),
        (b"\0\0\0\0\0".as_slice(), tonic::Code::InvalidArgument),
        (b"\0\0\0\0\x01\xff", tonic::Code::InvalidArgument),
        // A message of 256 KiB and one byte begins.
        (b"\0\0\x04\0\x01", tonic::Code::ResourceExhausted),
    ] {
        let (mut stream, _body) = world.open(bytes).await;
        assert_eq!(end(&mut stream).await.code(), code, "{bytes:?}");
    }
    let (mut stream, mut body) = world.open(FIRST).await;
    specifier(&mut stream).await;
    body.send_data(FIRST.into(), false).unwrap();
    assert_eq!(end(&mut stream).await.code(), tonic::Code::InvalidArgument);
    assert_eq!(world.reports(), 0);
}

/// A85: in a hot restart two processes have one stream each, and the newer one counts.
#[tokio::test(start_paused = true)]
async fn reports_of_the_newest_health_stream_count() {
    let mut world = world().await;
    let (mut first, mut first_body) = world.open(FIRST).await;
    specifier(&mut first).await;
    let (mut second, mut second_body) = world.open(FIRST).await;
    specifier(&mut second).await;
    first_body.send_data(REPORT.into(), false).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.reports(), 0);
    second_body.send_data(REPORT.into(), false).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.reports(), 1);
    // The newer process ends, as after a failed hot restart: the other one goes on.
    second_body.send_data(bytes::Bytes::new(), true).unwrap();
    assert_eq!(end(&mut second).await.code(), tonic::Code::Ok);
    first_body.send_data(REPORT.into(), false).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.reports(), 2);
    let (mut second, _second_body) = world.open(FIRST).await;
    specifier(&mut second).await;
    let (mut third, _third_body) = world.open(FIRST).await;
    specifier(&mut third).await;
    assert_eq!(end(&mut first).await.code(), tonic::Code::ResourceExhausted);
    assert_eq!(world.hub.counters().streams_closed(CloseReason::TooManyStreams), 1);
}
