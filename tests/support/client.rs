//! HTTP clients on single connections that the test owns.
//!
//! They never reconnect or retry: whether a connection survives is often the point of a test.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

/// An HTTP response with its whole body.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON: {error}: {}", self.text()))
    }

    /// The header `name` as text, if present.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// One kept-alive HTTP/1.1 connection.
#[derive(Debug)]
pub struct Http1Connection {
    sender: http1::SendRequest<Body>,
}

impl Http1Connection {
    /// Connects to `address` in plaintext.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Self::over(dial(address).await?).await
    }

    /// Speaks HTTP/1.1 on an open connection, such as one with TLS.
    pub async fn over(stream: impl Stream) -> anyhow::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sends `GET path` with this `Host`.
    pub async fn get(&mut self, path: &str, host: &str) -> anyhow::Result<Response> {
        self.request(Method::GET, path, &[("host", host)]).await
    }

    /// Sends a request without a body. `target` is sent literally: a path, or a whole URL as to a
    /// proxy.
    ///
    /// A connection that the peer has closed is an error.
    pub async fn request(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Response> {
        self.send(method, target, headers, Bytes::new()).await
    }

    /// Sends a request with a body, as [`Self::request`] does without one.
    pub async fn send(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Response> {
        let request = build(method, target.parse()?, headers.iter().copied())?;
        let body = body.into();
        let request = if body.is_empty() {
            request
        } else {
            request.map(|_| BodyExt::boxed(Full::new(body)))
        };
        with_timeout(async {
            self.sender.ready().await.context("the connection is closed")?;
            read(self.sender.send_request(request).await?).await
        })
        .await
    }

    /// Whether the peer has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// One HTTP/2 connection with prior knowledge. Requests may run concurrently.
#[derive(Debug, Clone)]
pub struct Http2Connection {
    sender: http2::SendRequest<Body>,
}

impl Http2Connection {
    /// Connects to `address` in plaintext.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Self::over(dial(address).await?).await
    }

    /// Speaks HTTP/2 on an open connection, such as one with TLS.
    pub async fn over(stream: impl Stream) -> anyhow::Result<Self> {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sends `GET path` with this `:authority`.
    pub async fn get(&mut self, path: &str, host: &str) -> anyhow::Result<Response> {
        self.request(Method::GET, path, &[("host", host)]).await
    }

    /// Sends a request without a body. A header `host` becomes the `:authority`.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Response> {
        let host = headers.iter().find(|(name, _)| *name == "host").map(|(_, value)| *value);
        let others = headers.iter().copied().filter(|(name, _)| *name != "host");
        let request = build(method, uri(host.context("no host")?, path)?, others)?;
        with_timeout(async {
            self.sender.ready().await.context("the connection is closed")?;
            read(self.sender.send_request(request).await?).await
        })
        .await
    }

    /// Opens a stream whose two directions stay open, as those of gRPC do. The server must echo, as
    /// an [`App`](crate::App) with HTTP/2 does at `/echo`.
    pub async fn open_echo(&mut self, path: &str, host: &str) -> anyhow::Result<EchoStream> {
        let (sender, receiver) = mpsc::channel(1);
        let frames = ReceiverStream::new(receiver).map(|chunk| Ok(Frame::data(chunk)));
        let mut request = Request::new(BodyExt::boxed(StreamBody::new(frames)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri(host, path)?;
        request.headers_mut().insert(header::TE, "trailers".parse()?);
        request.headers_mut().insert(header::CONTENT_TYPE, "application/grpc".parse()?);
        with_timeout(async {
            self.sender.ready().await.context("the connection is closed")?;
            let response = self.sender.send_request(request).await?;
            if response.status() != StatusCode::OK {
                bail!("the stream was rejected: {}", response.status());
            }
            Ok(EchoStream { sender, body: response.into_body() })
        })
        .await
    }

    /// Whether the peer has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// A stream that is open in both directions.
#[derive(Debug)]
pub struct EchoStream {
    sender: mpsc::Sender<Bytes>,
    body: Incoming,
}

impl EchoStream {
    /// Sends `message` and waits until as many bytes return.
    pub async fn exchange(&mut self, message: Bytes) -> anyhow::Result<()> {
        with_timeout(async {
            let mut missing = message.len();
            self.sender.send(message).await.context("the stream is closed")?;
            while missing > 0 {
                let frame = self.body.frame().await.context("the stream has ended")??;
                let data = frame.into_data().ok().context("the stream ended with trailers")?;
                missing = missing.checked_sub(data.len()).context("more came than was sent")?;
            }
            Ok(())
        })
        .await
    }

    /// Ends the request, and waits for the end of the response.
    pub async fn finish(self) -> anyhow::Result<()> {
        let Self { sender, mut body } = self;
        drop(sender);
        with_timeout(async {
            while let Some(frame) = body.frame().await {
                frame?;
            }
            Ok(())
        })
        .await
    }
}

/// Sends one `GET` on a new HTTP/1.1 connection.
pub async fn get_once(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> anyhow::Result<Response> {
    let mut connection = Http1Connection::connect(address).await?;
    if headers.iter().any(|(name, _)| *name == "host") {
        return connection.request(Method::GET, path, headers).await;
    }
    let host = address.to_string();
    let headers = [headers, &[("host", host.as_str())]].concat();
    connection.request(Method::GET, path, &headers).await
}

/// A transport for HTTP.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// Opens a TCP connection without Nagle's algorithm, which would delay a request by 40 ms.
pub(crate) async fn dial(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = with_timeout(async { Ok(TcpStream::connect(address).await?) })
        .await
        .with_context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Opens a TCP connection from the address `source`, which the server sees.
pub async fn dial_from(source: IpAddr, address: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(source, 0))?;
    let stream = with_timeout(async { Ok(socket.connect(address).await?) })
        .await
        .with_context(|| format!("connecting from {source} to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn uri(host: &str, path: &str) -> anyhow::Result<Uri> {
    Ok(Uri::builder().scheme("http").authority(host).path_and_query(path).build()?)
}

fn build<'a>(
    method: Method,
    uri: Uri,
    headers: impl Iterator<Item = (&'a str, &'a str)>,
) -> anyhow::Result<Request<Body>> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    Ok(request.body(BodyExt::boxed(Empty::new()))?)
}

async fn read(response: http::Response<Incoming>) -> anyhow::Result<Response> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response { status: head.status, headers: head.headers, body })
}

/// Whether a request failed before it was sent: the peer closed the connection between the check
/// and the write. A client may repeat such a request, whatever its method (RFC 9110, section
/// 9.2.2).
pub fn is_unsent(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<hyper::Error>()
        .is_some_and(|error| error.is_canceled() || error.is_closed())
}

/// Limits the time of a request, so that a test fails instead of hanging.
async fn with_timeout<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    timeout(REQUEST_TIMEOUT, work).await.context("no answer in time")?
}

type Body = BoxBody<Bytes, Infallible>;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::eventually::eventually;

    /// A server that answers one request and then closes, before or after it reads the next.
    async fn serve_once(reads_another: bool) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            assert!(stream.read(&mut buffer).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            if reads_another {
                assert!(stream.read(&mut buffer).await.unwrap() > 0);
            }
        });
        address
    }

    #[tokio::test]
    async fn request_on_closed_connection_is_unsent() {
        let mut connection = Http1Connection::connect(serve_once(false).await).await.unwrap();
        connection.get("/", "shop").await.unwrap();
        eventually("the close", async || connection.is_closed().then_some(()).ok_or("open")).await;
        let error = connection.get("/", "shop").await.unwrap_err();
        assert!(is_unsent(&error), "{error:#}");
    }

    #[tokio::test]
    async fn request_that_server_read_is_not_unsent() {
        let mut connection = Http1Connection::connect(serve_once(true).await).await.unwrap();
        connection.get("/", "shop").await.unwrap();
        let error = connection.get("/", "shop").await.unwrap_err();
        assert!(!is_unsent(&error), "{error:#}");
    }
}
