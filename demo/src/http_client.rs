//! HTTP clients: [`HttpConnection`] is a single connection, and [`HttpClient`] opens a new one when it needs to.
//!
//! An [`HttpConnection`] never reconnects or retries: the demo shows whether it survives.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::applications::{APPLICATION, MACHINE};

/// A request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("cannot connect to {address}")]
    Connect {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("no well-formed request: `{0}`")]
    Form(String),
    #[error("connection broke")]
    Broken(#[source] hyper::Error),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Late,
}

impl RequestError {
    /// Whether the address has no listener.
    pub(crate) fn is_connection_refused(&self) -> bool {
        matches!(self, Self::Connect { source, .. }
            if source.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct DemoResponse {
    pub(crate) status: u16,
    /// The application that answered, if one did.
    pub(crate) application: Option<String>,
    /// The address of that application.
    pub(crate) machine: Option<String>,
    /// Whether the server closes the connection.
    pub(crate) closes: bool,
    pub(crate) body: Bytes,
}

impl DemoResponse {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One kept connection.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    address: SocketAddr,
    sender: Sender,
}

/// The version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// The sending half of a connection.
#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<Empty<Bytes>>),
    Two(http2::SendRequest<Empty<Bytes>>),
}

impl Sender {
    async fn send(&mut self, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

impl HttpConnection {
    /// Opens a connection for HTTP/1.1.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, RequestError> {
        Self::open_for(Version::One, address).await
    }

    /// Opens a connection for this version of HTTP.
    pub(crate) async fn open_for(
        version: Version,
        address: SocketAddr,
    ) -> Result<Self, RequestError> {
        let connect = |source| RequestError::Connect { address, source };
        let stream = bounded(async { TcpStream::connect(address).await.map_err(connect) }).await?;
        // With Nagle's algorithm a request would take 40 ms.
        stream.set_nodelay(true).map_err(connect)?;
        let stream = TokioIo::new(stream);
        // Either connection ends with its sender.
        let sender = match version {
            Version::One => {
                let (sender, connection) =
                    http1::handshake(stream).await.map_err(RequestError::Broken)?;
                tokio::spawn(connection);
                Sender::One(sender)
            }
            Version::Two => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
                    .await
                    .map_err(RequestError::Broken)?;
                tokio::spawn(connection);
                Sender::Two(sender)
            }
        };
        Ok(Self { address, sender })
    }

    /// Sends `GET path`. A closed connection is an error.
    pub(crate) async fn get(&mut self, path: &str) -> Result<DemoResponse, RequestError> {
        let request = match self.sender {
            Sender::One(_) => Request::get(path).header(header::HOST, self.address.to_string()),
            // The URI contains the host.
            Sender::Two(_) => Request::get(format!("http://{}{path}", self.address)),
        };
        let request =
            request.body(Empty::new()).map_err(|_| RequestError::Form(path.to_owned()))?;
        bounded(async {
            let response = self.sender.send(request).await.map_err(RequestError::Broken)?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(RequestError::Broken)?.to_bytes();
            let head = Response::from_parts(head, ());
            let header = |name: &str| {
                head.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
            };
            Ok(DemoResponse {
                status: head.status().as_u16(),
                application: header(APPLICATION),
                machine: header(MACHINE),
                closes: header(header::CONNECTION.as_str()).as_deref() == Some("close"),
                body,
            })
        })
        .await
    }
}

/// A client that keeps its connection, and opens a new one if that is closed.
#[derive(Debug)]
pub(crate) struct HttpClient {
    address: SocketAddr,
    kept: Option<HttpConnection>,
}

impl HttpClient {
    /// Creates a client without a connection.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, kept: None }
    }

    /// Sends `GET path`. If the kept connection is closed, repeats the request once over a new one.
    pub(crate) async fn get(&mut self, path: &str) -> Result<DemoResponse, RequestError> {
        if let Some(connection) = self.kept.take()
            && let Ok(answer) = self.get_over(connection, path).await
        {
            return Ok(answer);
        }
        self.get_over(HttpConnection::open(self.address).await?, path).await
    }

    async fn get_over(
        &mut self,
        mut connection: HttpConnection,
        path: &str,
    ) -> Result<DemoResponse, RequestError> {
        let answer = connection.get(path).await?;
        if !answer.closes {
            self.kept = Some(connection);
        }
        Ok(answer)
    }
}

/// Sends one `GET` on a new connection.
pub(crate) async fn get_once(
    address: SocketAddr,
    path: &str,
) -> Result<DemoResponse, RequestError> {
    HttpConnection::open(address).await?.get(path).await
}

/// Bounds the time of a request.
async fn bounded<T>(
    work: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    timeout(TIMEOUT, work).await.map_err(|_| RequestError::Late)?
}

const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a server that sends this answer once per connection, and then closes it.
    async fn once(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn client_reconnects_and_a_single_connection_does_not() {
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        ] {
            let address = once(answer).await;
            let mut client = HttpClient::new(address);
            let mut connection = HttpConnection::open(address).await.unwrap();
            assert_eq!(connection.get("/").await.unwrap().status, 200);
            assert!(connection.get("/").await.is_err());
            for _ in 0..3 {
                assert_eq!(client.get("/").await.unwrap().status, 200);
            }
        }
    }
}
