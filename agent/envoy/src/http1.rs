//! One HTTP/1.1 request on a connection of its own, to a Unix socket or a port of this machine.

use std::io;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::plan::{BoxError, EnvoyAdminAddress};

/// The most bytes of a response. A dump of a large mesh's listeners has some megabytes.
const MAX_BODY: usize = 64 << 20;

/// The failure of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Http1Error {
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[source] BoxError),
    #[error("it answered with status {status}: {text}")]
    Status { status: StatusCode, text: String },
}

/// Sends a request, and returns the response with its body still to be read.
pub(crate) async fn send(
    address: &EnvoyAdminAddress,
    method: Method,
    path: &str,
) -> Result<Response<Incoming>, Http1Error> {
    match address {
        EnvoyAdminAddress::Socket(socket) => {
            let stream = UnixStream::connect(socket).await.map_err(Http1Error::Connect)?;
            send_on(stream, method, path).await
        }
        EnvoyAdminAddress::Tcp(port) => {
            let stream = TcpStream::connect(port).await.map_err(Http1Error::Connect)?;
            send_on(stream, method, path).await
        }
    }
}

async fn send_on<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    method: Method,
    path: &str,
) -> Result<Response<Incoming>, Http1Error> {
    let broken = |error: hyper::Error| Http1Error::Broken(error.into());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_LENGTH, 0)
        .body(Empty::<Bytes>::new())
        .map_err(|error| Http1Error::Broken(error.into()))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(broken)?;
    // The task ends with the response, or when it is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(broken)
}

/// Sends a request, and reads the body of its successful response.
pub(crate) async fn exchange(
    address: &EnvoyAdminAddress,
    method: Method,
    path: &str,
) -> Result<Bytes, Http1Error> {
    let response = send(address, method, path).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
    let body = body.map_err(Http1Error::Broken)?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body).chars().take(200).collect();
    Err(Http1Error::Status { status, text })
}
