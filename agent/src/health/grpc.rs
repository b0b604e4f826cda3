//! The gRPC probe: `grpc.health.v1.Health/Check`, encoded by hand, since each message has one field.

use std::net::SocketAddr;

use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::http::failed;

/// The most bytes of a response.
const MAX_BODY: usize = 4 << 10;

/// The bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The field `status` of the response with the value `SERVING`.
const SERVING: [u8; 2] = [0x08, 0x01];

/// Asks whether the server, or this service of it, is serving.
pub(super) async fn check(
    stream: TcpStream,
    address: SocketAddr,
    service: Option<&str>,
) -> Result<(), String> {
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(message(service.unwrap_or_default())))
        .map_err(|error| error.to_string())?;
    let opened = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(|error| failed(&error))?;
    // Dropping it ends the connection.
    let mut connections = JoinSet::new();
    connections.spawn(async { drop(connection.await) });
    let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let (head, mut body) = response.into_parts();
    if head.status != http::StatusCode::OK {
        return Err(format!("status {}", head.status.as_u16()));
    }
    let (mut content, mut trailers) = (Vec::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failed(&error))?;
        match frame.into_data() {
            Ok(data) => content.extend_from_slice(&data),
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
        if content.len() > MAX_BODY {
            return Err(format!("response is longer than {MAX_BODY} bytes"));
        }
    }
    let status = trailers.get("grpc-status").or_else(|| head.headers.get("grpc-status"));
    match status.and_then(|status| status.to_str().ok()) {
        Some("0") if content.get(PREFIX..) == Some(&SERVING) => Ok(()),
        Some("0") => Err("the server answers that it is not serving".to_owned()),
        Some(status) => Err(format!("gRPC status {}", status.chars().take(8).collect::<String>())),
        None => Err("response has no gRPC status".to_owned()),
    }
}

/// A `HealthCheckRequest` with its prefix. Policy limits the name to 1,024 characters.
fn message(service: &str) -> Bytes {
    let mut field = Vec::new();
    if !service.is_empty() {
        field.push(0x0a);
        let mut length = service.len();
        while length > 0x7f {
            field.push(0x80 | u8::try_from(length & 0x7f).unwrap_or_default());
            length >>= 7;
        }
        field.push(u8::try_from(length).unwrap_or_default());
        field.extend_from_slice(service.as_bytes());
    }
    let mut message = vec![0];
    message.extend_from_slice(&u32::try_from(field.len()).unwrap_or_default().to_be_bytes());
    message.extend_from_slice(&field);
    message.into()
}
