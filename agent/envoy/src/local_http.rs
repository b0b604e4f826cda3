//! HTTP/1.1 requests to a Unix socket or a port of this machine: to Envoy's admin interface, the supervisor or the agent.
//! A connection leads to one process, also after a new process has bound its socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
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

/// A connection, for one request after the other.
#[derive(Debug)]
pub struct LocalConnection {
    sender: SendRequest<Empty<Bytes>>,
}

impl LocalConnection {
    /// Connects.
    pub async fn open(address: &LocalAddress) -> Result<Self, LocalHttpError> {
        match address {
            LocalAddress::Socket(socket) => {
                Self::over(UnixStream::connect(socket).await.map_err(LocalHttpError::Connect)?)
                    .await
            }
            LocalAddress::Tcp(port) => {
                Self::over(TcpStream::connect(port).await.map_err(LocalHttpError::Connect)?).await
            }
        }
    }

    async fn over<S>(stream: S) -> Result<Self, LocalHttpError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(broken)?;
        // The task ends with the last response, or when it is dropped.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sends a request, and returns the response with its body still to be read.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
    ) -> Result<Response<Incoming>, LocalHttpError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_LENGTH, 0)
            .body(Empty::<Bytes>::new())
            .map_err(|error| LocalHttpError::Broken(error.into()))?;
        self.sender.ready().await.map_err(broken)?;
        self.sender.send_request(request).await.map_err(broken)
    }

    /// Reads the body of a successful response to `GET path`, of at most `limit` bytes.
    pub async fn get(&mut self, path: &str, limit: usize) -> Result<Bytes, LocalHttpError> {
        body(self.send(Method::GET, path).await?, limit).await
    }
}

fn broken(error: hyper::Error) -> LocalHttpError {
    LocalHttpError::Broken(error.into())
}

/// Sends a request, and returns the response with its body still to be read.
pub(crate) async fn send(
    address: &LocalAddress,
    method: Method,
    path: &str,
) -> Result<Response<Incoming>, LocalHttpError> {
    LocalConnection::open(address).await?.send(method, path).await
}

/// Sends a request, and reads the body of its successful response.
pub async fn exchange(
    address: &LocalAddress,
    method: Method,
    path: &str,
) -> Result<Bytes, LocalHttpError> {
    body(send(address, method, path).await?, MAX_BODY).await
}

/// The body of a successful response.
async fn body(response: Response<Incoming>, limit: usize) -> Result<Bytes, LocalHttpError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), limit).collect().await;
    let body = body.map_err(LocalHttpError::Broken)?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body).chars().take(200).collect();
    Err(LocalHttpError::Status { status, text })
}
