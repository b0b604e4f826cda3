//! HTTP over the Unix sockets of a machine: of Envoy's admin interface, of the supervisor and of the agent.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The most bytes of a response. Envoy's certificates are its longest one that is read.
const MAX_RESPONSE: usize = 4 << 20;

/// The time limit of a request. All of these answer at once, or hang.
const LIMIT: Duration = Duration::from_secs(3);

/// The failure of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalHttpError {
    /// The socket does not exist or refuses the connection: its process does not run.
    #[error("nothing answers at `{socket}`")]
    Absent {
        /// The socket.
        socket: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The process does not answer in time.
    #[error("`{socket}` does not answer within 3 s")]
    Slow {
        /// The socket.
        socket: String,
    },
    /// The response is an error, or not one of HTTP.
    #[error("`{socket}` answered {problem}")]
    Invalid {
        /// The socket.
        socket: String,
        /// What is wrong.
        problem: String,
    },
}

impl LocalHttpError {
    /// Whether no process has the socket.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }
}

/// The body of `GET path`, if its status is a success.
pub(crate) async fn get(socket: &Path, path: &str) -> Result<Bytes, LocalHttpError> {
    request(socket, Method::GET, path, LIMIT).await
}

/// The body of the response to a request without a body, if its status is a success.
pub(crate) async fn request(
    socket: &Path,
    method: Method,
    path: &str,
    limit: Duration,
) -> Result<Bytes, LocalHttpError> {
    let name = || socket.display().to_string();
    let exchange = timeout(limit, exchange(socket, method, path)).await;
    let (status, body) = exchange.map_err(|_| LocalHttpError::Slow { socket: name() })??;
    if status.is_success() {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body);
    Err(LocalHttpError::Invalid { socket: name(), problem: format!("{status}: {}", text.trim()) })
}

async fn exchange(
    socket: &Path,
    method: Method,
    path: &str,
) -> Result<(StatusCode, Bytes), LocalHttpError> {
    let name = || socket.display().to_string();
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|source| LocalHttpError::Absent { socket: name(), source })?;
    let invalid = |error: &dyn std::fmt::Display| LocalHttpError::Invalid {
        socket: name(),
        problem: error.to_string(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .body(Empty::<Bytes>::new())
        .map_err(|error| invalid(&error))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| invalid(&error))?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(|error| invalid(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
        Ok((status, body.map_err(|error| invalid(&error))?.to_bytes()))
    };
    // Either may end first; the response is read to its end.
    tokio::join!(exchange, connection).0
}
