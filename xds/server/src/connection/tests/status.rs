//! Clients that request their status, and do not read the answer.

use std::sync::atomic::{AtomicBool, Ordering};

use h2::{RecvStream, SendStream};

use super::*;

const SERVICE: &str = "http://xds/envoy.service.status.v3.ClientStatusDiscoveryService";

/// The gRPC frame of the request of node `c`.
const STATUS_REQUEST: &[u8] = b"\0\0\0\0\x05\x12\x03\x0a\x01c";

/// Calls a method, and sends nothing more on a call.
async fn send_request(
    requests: &mut SendRequest<bytes::Bytes>,
    method: &str,
) -> (RecvStream, SendStream<bytes::Bytes>) {
    let is_call = method == "FetchClientStatus";
    let request = http::Request::post(format!("{SERVICE}/{method}"))
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (response, mut body) = requests.send_request(request, false).unwrap();
    body.send_data(STATUS_REQUEST.into(), is_call).unwrap();
    (response.await.unwrap().into_body(), body)
}

/// Connects a client whose windows allow the server to send nothing.
async fn client_that_does_not_read(io: DuplexStream) -> SendRequest<bytes::Bytes> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (requests, connection) = builder.handshake(io).await.unwrap();
    tokio::spawn(connection);
    requests.ready().await.unwrap()
}

/// A43: otherwise the server would hold one answer for each stream.
#[tokio::test(start_paused = true)]
async fn second_status_request_fails_until_first_answer_is_sent() {
    let hub = Arc::new(Hub::default());
    let (_peer, io) = connection_to(&hub, Limits::default());
    let mut requests = client_that_does_not_read(io).await;
    let (first, body) = send_request(&mut requests, "FetchClientStatus").await;
    // By now the first call has been answered.
    sleep(Duration::from_secs(1)).await;
    let begin = Instant::now();
    let (mut second, _body) = send_request(&mut requests, "FetchClientStatus").await;
    let end = timeout(Duration::from_secs(300), second.trailers()).await.expect("it is rejected");
    let status = tonic::Status::from_header_map(&end.unwrap().unwrap()).unwrap();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
    assert!(just_after(Duration::from_secs(60)).contains(&begin.elapsed()));
    assert_eq!(hub.counters().streams_closed(CloseReason::SlowReader), 1);

    let (mut third, _body) = send_request(&mut requests, "FetchClientStatus").await;
    // The client gives up the first call, which frees its answer.
    drop((first, body));
    let again = timeout(Duration::from_secs(20), third.trailers()).await;
    assert!(again.is_err(), "its answer waits before how it ends: {again:?}");
    // Now the third call holds the permit.
    let (mut fourth, _body) = send_request(&mut requests, "FetchClientStatus").await;
    let end = timeout(Duration::from_secs(300), fourth.trailers()).await.expect("it is rejected");
    assert!(end.unwrap().is_some());
    assert_eq!(hub.counters().streams_closed(CloseReason::SlowReader), 2);
}

/// A43: nor do unread answers fill a queue.
#[tokio::test(start_paused = true)]
async fn status_stream_with_unread_answer_is_closed() {
    let hub = Arc::new(Hub::default());
    let (_peer, io) = connection_to(&hub, Limits::default());
    let mut requests = client_that_does_not_read(io).await;
    let (_answers, mut body) = send_request(&mut requests, "StreamClientStatus").await;
    body.send_data(STATUS_REQUEST.into(), false).unwrap();
    sleep(Duration::from_secs(61)).await;
    assert_eq!(hub.counters().streams_closed(CloseReason::SlowReader), 1);
}

/// Invariant 10: an expensive encoding delays no other client, even on a single thread.
#[test]
fn other_requests_are_served_while_a_status_is_built() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let hub = Arc::new(Hub::default());
    // No status can be built until this lock is released.
    let held = hub.lock();
    let (served, is_served) = std::sync::mpsc::channel();
    let its_hub = Arc::clone(&hub);
    let client = runtime.spawn(async move {
        let (_peer, io) = connection_to(&its_hub, Limits::default());
        let (mut requests, _connection) = speak(io).await;
        let (answer, _body) = send_request(&mut requests, "FetchClientStatus").await;
        for _ in 0..10 {
            let request = http::Request::post("http://xds/grpc.health.v1.Health/Check")
                .header("content-type", "application/grpc")
                .body(())
                .unwrap();
            let (response, mut body) = requests.send_request(request, false).unwrap();
            body.send_data(bytes::Bytes::from_static(&[0; 5]), true).unwrap();
            let mut response = response.await.unwrap().into_body();
            assert_eq!(response.data().await.unwrap().unwrap(), &b"\0\0\0\0\x02\x08\x01"[..]);
        }
        served.send(()).unwrap();
        answer
    });
    is_served.recv_timeout(Duration::from_secs(30)).expect("others are served meanwhile");
    drop(held);
    let answer = runtime.block_on(async { client.await.unwrap().data().await.unwrap().unwrap() });
    assert!(answer.len() > 5, "{answer:?}");
}

/// Admits every client until it is revoked.
#[derive(Default)]
struct RevocableAdmission {
    is_revoked: AtomicBool,
}

impl Admission for RevocableAdmission {
    fn admit(&self, _: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
        if self.is_revoked.load(Ordering::Relaxed) {
            return Err(StreamRejection("its certificate is revoked".to_owned()));
        }
        Ok(node.id.as_str().into())
    }
}

/// A12.
#[tokio::test(start_paused = true)]
async fn idle_status_stream_ends_when_its_client_is_revoked() {
    let (hub, admission) = (Arc::new(Hub::default()), Arc::new(RevocableAdmission::default()));
    let (_peer, io) = connection_by(&hub, Limits::default(), Arc::clone(&admission) as _);
    let (mut requests, end) = speak(io).await;
    let (mut answers, _body) = send_request(&mut requests, "StreamClientStatus").await;
    assert!(answers.data().await.unwrap().is_ok());
    hub.disconnect("other", "it is not this one");
    sleep(Duration::from_secs(60)).await;
    admission.is_revoked.store(true, Ordering::Relaxed);
    hub.disconnect("c", "its certificate is revoked");
    let begin = Instant::now();
    let answer = timeout(Duration::from_secs(300), answers.trailers()).await.expect("it ends");
    let status = tonic::Status::from_header_map(&answer.unwrap().unwrap()).unwrap();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    assert_eq!(status.message(), "its certificate is revoked");
    timeout(Duration::from_secs(300), end).await.expect("its connection ends").unwrap().unwrap();
    assert!(begin.elapsed() <= GRACE + LEAVE_DEADLINE, "{:?}", begin.elapsed());
}
