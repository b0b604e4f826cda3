//! Connections of clients that speak HTTP/2 and nothing else, on a clock that only the tests move.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use h2::client::SendRequest;
use h2::{Error, Reason};
use ironmesh_xds_wire::Node;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::connection_limit::ConnectionLimit;
use crate::hub::{ClientKey, Hub};
use crate::limits::Limits;
use crate::service::{Admission, StreamRejection};
use crate::validity::Validity;

mod calls;
mod health_discovery;
mod places;
mod slow_readers;
mod status;

const METHOD: &str =
    "http://xds/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The gRPC frame of a request by node `c` for all clusters (`type.googleapis.com/…`).
const FIRST_REQUEST: &[u8] =
    b"\0\0\0\0\x3a\x0a\x03\x0a\x01c\x12\x33type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Admits every client under the name that it reports.
struct AdmitAll;

impl Admission for AdmitAll {
    fn admit(&self, _: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
        Ok(node.id.as_str().into())
    }
}

/// The server's and the client's end of a connection.
fn connection() -> (Peer, DuplexStream) {
    connection_within(Limits::default())
}

fn connection_within(limits: Limits) -> (Peer, DuplexStream) {
    connection_to(&Arc::default(), limits)
}

fn connection_to(hub: &Arc<Hub>, limits: Limits) -> (Peer, DuplexStream) {
    connection_by(hub, limits, Arc::new(AdmitAll))
}

fn connection_by(
    hub: &Arc<Hub>,
    limits: Limits,
    admission: Arc<dyn Admission>,
) -> (Peer, DuplexStream) {
    let streams = Streams {
        hub: Arc::clone(hub),
        admission,
        limits,
        shutdown: CancellationToken::new(),
        rejection_log: Arc::default(),
        tasks: TaskTracker::new(),
    };
    let (client, server) = duplex(1 << 20);
    let peer =
        Peer::new(Vec::new().into(), Validity::endless(), SocketAddr::from(([127, 0, 0, 1], 1)));
    let permit = ConnectionLimit::new(streams.limits).acquire().unwrap();
    Connections::new(&streams).open(server, peer.clone(), permit);
    (peer, client)
}

/// Performs the HTTP/2 handshake. Returns the sender of requests, and the task that ends with the
/// connection.
async fn speak(io: DuplexStream) -> (SendRequest<bytes::Bytes>, JoinHandle<Result<(), Error>>) {
    let (requests, connection) = h2::client::handshake(io).await.unwrap();
    (requests, tokio::spawn(connection))
}

fn request() -> http::Request<()> {
    http::Request::post(METHOD).header("content-type", "application/grpc").body(()).unwrap()
}

/// The range from `time` to `time` and 10 ms, because tokio's timers have a resolution of 1 ms.
fn just_after(time: Duration) -> RangeInclusive<Duration> {
    time..=time + Duration::from_millis(10)
}

/// Invariant 10.
#[tokio::test(start_paused = true)]
async fn idle_connection_without_a_stream_is_closed() {
    let (_peer, io) = connection();
    let begin = Instant::now();
    let (mut requests, end) = speak(io).await;
    let (response, mut body) = requests.send_request(request(), false).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    sleep(Duration::from_secs(5)).await;
    body.send_data(bytes::Bytes::new(), true).unwrap();
    end.await.unwrap().unwrap();
    assert!(just_after(Duration::from_secs(5) + IDLE_DEADLINE).contains(&begin.elapsed()));
}

/// A12: a client with a revoked certificate may still request health.
#[tokio::test(start_paused = true)]
async fn connection_with_only_a_health_watch_is_closed() {
    let (_peer, io) = connection();
    let begin = Instant::now();
    let (mut requests, end) = speak(io).await;
    let watch = http::Request::post("http://xds/grpc.health.v1.Health/Watch")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (response, mut body) = requests.send_request(watch, false).unwrap();
    body.send_data(bytes::Bytes::from_static(&[0; 5]), true).unwrap();
    let mut response = response.await.unwrap().into_body();
    assert!(response.data().await.unwrap().is_ok());
    let left = timeout(2 * IDLE_DEADLINE, end).await.expect("its connection ends");
    left.unwrap().unwrap();
    assert!(just_after(IDLE_DEADLINE + GRACE).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

/// Invariant 10, A37: after its TLS handshake the client sends nothing.
#[tokio::test(start_paused = true)]
async fn silent_connection_is_closed() {
    let (_peer, mut io) = connection();
    let begin = Instant::now();
    let mut received = Vec::new();
    io.read_to_end(&mut received).await.unwrap();
    let all = IDLE_DEADLINE + GRACE + LEAVE_DEADLINE;
    assert!(just_after(all).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn leaving_connection_gets_goaway_before_its_streams_end() {
    let (peer, io) = connection();
    let (requests, end) = speak(io).await;
    let mut requests = requests.ready().await.unwrap();
    let (response, _body) = requests.send_request(request(), false).unwrap();
    let mut response = response.await.unwrap().into_body();
    let begin = Instant::now();
    peer.leave();
    // The stream carries nothing except its final status.
    assert!(response.data().await.is_none());
    assert!(just_after(GRACE).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    let trailers = response.trailers().await.unwrap().unwrap();
    let status = tonic::Status::from_header_map(&trailers).unwrap();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(requests.ready().await.is_err(), "no stream can be opened any more");
    end.await.unwrap().unwrap();
}

/// A46.
#[tokio::test(start_paused = true)]
async fn connections_of_maximum_age_close_spread_over_time() {
    let age = Duration::from_secs(1000);
    let mut ends = Vec::new();
    for _ in 0..20 {
        let (_peer, io) =
            connection_within(Limits { connection_age: Some(age), ..Limits::default() });
        let begin = Instant::now();
        let (mut requests, end) = speak(io).await;
        let (response, mut body) = requests.send_request(request(), false).unwrap();
        let mut response = response.await.unwrap().into_body();
        // The first request, with a node.
        body.send_data(FIRST_REQUEST.into(), false).unwrap();
        assert!(response.data().await.is_none());
        let trailers = response.trailers().await.unwrap().unwrap();
        let status = tonic::Status::from_header_map(&trailers).unwrap();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
        end.await.unwrap().unwrap();
        ends.push(begin.elapsed());
    }
    let (first, last) = (*ends.iter().min().unwrap(), *ends.iter().max().unwrap());
    assert!(first >= age * 9 / 10 + GRACE, "{first:?}");
    assert!(last <= age * 11 / 10 + GRACE + Duration::from_millis(10), "{last:?}");
    assert!(last > first + age / 20, "{ends:?}");
}

/// Invariant 10, A69.
#[tokio::test(start_paused = true)]
async fn connection_without_ping_replies_is_closed() {
    let (peer, mut io) = connection();
    let begin = Instant::now();
    let stream = peer.open();
    let first = [PREFACE, &frame(SETTINGS, 0, &[])[..]].concat();
    io.write_all(&first).await.unwrap();
    let mut received = Vec::new();
    io.read_to_end(&mut received).await.unwrap();
    assert!(just_after(KEEPALIVE.0 + KEEPALIVE.1).contains(&begin.elapsed()));
    drop(stream);
}

/// An HTTP/2 frame whose only possible flag is END_HEADERS.
fn frame(of: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[of, u8::from(of == HEADERS) * 4], &stream.to_be_bytes(), payload].concat()
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// The error code of the server's GOAWAY.
fn goaway_reason(mut received: &[u8]) -> Option<Reason> {
    while let [a, b, c, of, _, _, _, _, _, rest @ ..] = received {
        let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap();
        let (payload, rest) = rest.split_at(length);
        if *of == GOAWAY {
            return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()).into());
        }
        received = rest;
    }
    None
}

/// A38. Written by hand, because h2's own client sends nothing for a stream that it resets at once.
#[tokio::test(start_paused = true)]
async fn rapid_resets_end_the_connection() {
    let (_peer, mut io) = connection();
    let begin = Instant::now();
    let mut flood = [PREFACE, &frame(SETTINGS, 0, &[])[..]].concat();
    for stream in (1..2000).step_by(2) {
        // `POST /`, with authority `x`.
        flood.extend(frame(HEADERS, stream, &[0x83, 0x86, 0x84, 0x41, 1, b'x']));
        flood.extend(frame(RST_STREAM, stream, &8_u32.to_be_bytes()));
    }
    io.write_all(&flood).await.unwrap();
    let mut received = Vec::new();
    io.read_to_end(&mut received).await.unwrap();
    assert_eq!(goaway_reason(&received), Some(Reason::ENHANCE_YOUR_CALM));
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

/// Invariant 10, A39.
#[tokio::test(start_paused = true)]
async fn streams_and_headers_are_bounded() {
    let (_peer, io) = connection();
    let (mut requests, _end) = speak(io).await;
    let mut many = Vec::new();
    for _ in 0..MAX_STREAMS {
        let (response, body) = requests.send_request(request(), false).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
        many.push(body);
    }
    assert_eq!(requests.current_max_send_streams(), usize::try_from(MAX_STREAMS).unwrap());
    many.clear();

    let (_peer, io) = connection();
    let (mut requests, _end) = speak(io).await;
    let mut huge = request();
    let value = "x".repeat(usize::try_from(MAX_HEADERS).unwrap());
    huge.headers_mut().insert("token", value.parse().unwrap());
    let (response, _body) = requests.send_request(huge, false).unwrap();
    assert_eq!(response.await.unwrap().status(), http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}
