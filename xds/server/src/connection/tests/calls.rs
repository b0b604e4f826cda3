//! Access log streams that become silent.

use super::*;

/// The gRPC frame of the first message of node `c`, without calls.
const MESSAGE: &[u8] = b"\0\0\0\0\x07\x0a\x05\x0a\x03\x0a\x01c";

/// A81.
#[tokio::test(start_paused = true)]
async fn silent_access_log_stream_ends_with_its_connection() {
    let (_peer, io) = connection();
    let (mut requests, end) = speak(io).await;
    let request = http::Request::post(
        "http://xds/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs",
    )
    .header("content-type", "application/grpc")
    .body(())
    .unwrap();
    let (response, mut body) = requests.send_request(request, false).unwrap();
    body.send_data(MESSAGE.into(), false).unwrap();
    let mut response = response.await.unwrap().into_body();
    // The stream stays while the client reports calls.
    for _ in 0..10 {
        sleep(Duration::from_secs(20)).await;
        body.send_data(bytes::Bytes::from_static(&[0; 5]), false).unwrap();
    }
    let begin = Instant::now();
    let answer = timeout(Duration::from_secs(300), response.data()).await.expect("an answer");
    assert_eq!(answer.unwrap().unwrap(), &[0; 5][..]);
    let trailers = response.trailers().await.unwrap().unwrap();
    assert_eq!(tonic::Status::from_header_map(&trailers).unwrap().code(), tonic::Code::Ok);
    assert!(
        just_after(Duration::from_secs(30)).contains(&begin.elapsed()),
        "{:?}",
        begin.elapsed()
    );
    timeout(Duration::from_secs(300), end).await.expect("its connection ends").unwrap().unwrap();
    assert!(begin.elapsed() >= IDLE_DEADLINE + Duration::from_secs(30));
}
