//! One HTTP/1.1 request on a connection of its own, to a Unix socket or a port of this machine: to Envoy's admin interface,
//! the supervisor or the agent.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::plan::BoxError;

/// The most bytes of a response. A dump of a large mesh's listeners has some megabytes.
const MAX_BODY: usize = 64 << 20;

/// Where a process of this machine serves HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalAddress {
    /// A Unix socket.
    Socket(PathBuf),
    /// A TCP port, on loopback.
    Tcp(SocketAddr),
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// The failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum LocalHttpError {
    /// Nothing listens, or this user may not connect.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] BoxError),
    /// The response is an error.
    #[error("it answered with status {status}: {text}")]
    Status {
        /// The status.
        status: StatusCode,
        /// The begin of the body.
        text: String,
    },
}

/// Sends a request, and returns the response with its body still to be read.
pub(crate) async fn send(
    address: &LocalAddress,
    method: Method,
    path: &str,
) -> Result<Response<Incoming>, LocalHttpError> {
    match address {
        LocalAddress::Socket(socket) => {
            let stream = UnixStream::connect(socket).await.map_err(LocalHttpError::Connect)?;
            send_on(stream, method, path).await
        }
        LocalAddress::Tcp(port) => {
            let stream = TcpStream::connect(port).await.map_err(LocalHttpError::Connect)?;
            send_on(stream, method, path).await
        }
    }
}

async fn send_on<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    method: Method,
    path: &str,
) -> Result<Response<Incoming>, LocalHttpError> {
    let broken = |error: hyper::Error| LocalHttpError::Broken(error.into());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_LENGTH, 0)
        .body(Empty::<Bytes>::new())
        .map_err(|error| LocalHttpError::Broken(error.into()))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(broken)?;
    // The task ends with the response, or when it is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(broken)
}

/// Sends a request, and reads the body of its successful response.
pub async fn exchange(
    address: &LocalAddress,
    method: Method,
    path: &str,
) -> Result<Bytes, LocalHttpError> {
    let response = send(address, method, path).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
    let body = body.map_err(LocalHttpError::Broken)?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body).chars().take(200).collect();
    Err(LocalHttpError::Status { status, text })
}
