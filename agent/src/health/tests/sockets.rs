//! Probes by TCP, HTTP and gRPC.

use super::*;

async fn write(mut stream: TcpStream, text: &'static str) {
    // A probe may be over before all is written.
    let _ = stream.write_all(text.as_bytes()).await;
}

async fn outcome(address: SocketAddr, one: &Probe) -> Result<(), String> {
    probe(one, address, LIMIT, &Commands::new()).await
}

#[tokio::test]
async fn http_probe_examines_the_status() {
    let good = application(|stream| write(stream, "HTTP/1.1 204 No Content\r\n\r\n")).await;
    assert_eq!(outcome(good, &http(false)).await, Ok(()));
    let bad = application(|stream| write(stream, "HTTP/1.1 503 Busy\r\n\r\n")).await;
    assert_eq!(outcome(bad, &http(false)).await, Err("status 503".to_owned()));
}

#[tokio::test]
async fn redirect_is_not_followed() {
    const REDIRECT: &str =
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
    let address = application(|stream| write(stream, REDIRECT)).await;
    assert_eq!(outcome(address, &http(false)).await, Err("status 302".to_owned()));
}

#[tokio::test]
async fn answer_of_ten_megabytes_is_not_read_to_its_end() {
    let address = application(|mut stream: TcpStream| async move {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10485760\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(&vec![b'a'; 10 << 20]).await;
    });
    assert_eq!(outcome(address.await, &http(false)).await, Ok(()));
    let endless_head = application(|mut stream: TcpStream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(b"a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n").await.is_ok() {}
    });
    let failed = outcome(endless_head.await, &http(false)).await.unwrap_err();
    assert!(failed.starts_with("request failed"), "{failed}");
}

#[tokio::test]
async fn reset_and_half_an_answer_are_failures() {
    let reset = application(|stream: TcpStream| async move {
        drop(stream);
    });
    let failed = outcome(reset.await, &http(false)).await.unwrap_err();
    assert!(failed.starts_with("request failed"), "{failed}");
    let half_a_head = application(|stream| write(stream, "HTTP/1.1 200 O")).await;
    let failed = outcome(half_a_head, &http(false)).await.unwrap_err();
    assert!(failed.starts_with("request failed"), "{failed}");
    let half_a_body =
        application(|stream| write(stream, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"));
    let failed = outcome(half_a_body.await, &http(false)).await.unwrap_err();
    assert!(failed.starts_with("response ended early"), "{failed}");
    let no_http = application(|stream| write(stream, "220 mail ready\r\n")).await;
    outcome(no_http, &http(false)).await.unwrap_err();
}

#[tokio::test]
async fn application_that_never_answers_fails_at_the_time_limit() {
    let silent = application(|stream: TcpStream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    let address = silent.await;
    let failed = probe(&http(false), address, SHORT, &Commands::new()).await;
    assert_eq!(failed, Err("no answer within 200 ms".to_owned()));
    for one in [http(true), Probe::Grpc { service: None }] {
        let failed = probe(&one, address, SHORT, &Commands::new()).await;
        assert_eq!(failed, Err("no answer within 200 ms".to_owned()), "{one}");
    }
}

#[tokio::test]
async fn tcp_probe_needs_an_open_port() {
    let (listener, address) = listener().await;
    assert_eq!(outcome(address, &Probe::Tcp).await, Ok(()));
    drop(listener);
    let failed = outcome(address, &Probe::Tcp).await.unwrap_err();
    assert!(failed.starts_with(&format!("cannot connect to {address}")), "{failed}");
}

/// A gRPC server whose health service answers with this status, and the path that it was asked at.
async fn grpc_server(message: &'static [u8], grpc_status: &'static str) -> SocketAddr {
    use axum::body::Body;
    use axum::response::Response;
    let (listener, address) = listener().await;
    let answer = move || async move {
        let response = Response::builder().header("content-type", "application/grpc");
        let response = response.header("grpc-status", grpc_status);
        response.body(Body::from(message)).unwrap()
    };
    let router: axum::Router =
        axum::Router::new().route("/grpc.health.v1.Health/Check", axum::routing::post(answer));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            let io = hyper_util::rt::TokioIo::new(stream);
            let executor = hyper_util::rt::TokioExecutor::new();
            let serve = hyper::server::conn::http2::Builder::new(executor);
            tokio::spawn(async move { drop(serve.serve_connection(io, service).await) });
        }
    });
    address
}

#[tokio::test]
async fn grpc_probe_examines_the_health_service() {
    let grpc = Probe::Grpc { service: Some("shop.Store".to_owned()) };
    let serving = grpc_server(b"\0\0\0\0\x02\x08\x01", "0").await;
    assert_eq!(outcome(serving, &grpc).await, Ok(()));
    let not_serving = grpc_server(b"\0\0\0\0\x02\x08\x02", "0").await;
    let failed = outcome(not_serving, &grpc).await;
    assert_eq!(failed, Err("the server answers that it is not serving".to_owned()));
    let unknown = grpc_server(b"", "5").await;
    assert_eq!(outcome(unknown, &grpc).await, Err("gRPC status 5".to_owned()));
    let without_service = outcome(serving, &http(true)).await;
    assert_eq!(without_service, Err("status 404".to_owned()));
}
