//! One exchange with the control plane: the connection, the request, its time limit, and the check for a hang.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::{advice_about_server, advice_about_socket};
use super::{Client, ClientError, LIMIT, LONG_LIMIT, RemoteServer, Target};
use crate::socket_path::check_socket_path;
use ironmesh_api::ErrorBody;

/// The path of the probe.
const HEALTH: &str = "/healthz";

/// The pause between two checks of `/healthz` during a request.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// A connection to the socket or to the port.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send> Connection for C {}

impl Client {
    pub(super) async fn call<B: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<A, ClientError> {
        decode(self.exchange(method, path, body, LIMIT).await?)
    }

    pub(super) async fn long_call<B: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<A, ClientError> {
        decode(self.exchange(Method::POST, path, Some(body), LONG_LIMIT).await?)
    }

    /// A connection, and the `Host` of its requests.
    async fn connect(&self) -> io::Result<(Box<dyn Connection>, String)> {
        Ok(match &self.target {
            Target::Socket(socket) => {
                (Box::new(UnixStream::connect(socket).await?), "ironmesh".to_owned())
            }
            Target::Port(port) => (Box::new(TcpStream::connect(port).await?), port.to_string()),
            Target::Server(server) => {
                let (stream, host) = server.connect().await?;
                (Box::new(stream), host)
            }
        })
    }

    /// The socket or the server, for errors.
    fn place(&self) -> String {
        match &self.target {
            Target::Socket(socket) => socket.display().to_string(),
            Target::Port(port) => port.to_string(),
            Target::Server(server) => server.to_string(),
        }
    }

    /// Sends a request and reads the response to its end, within `limit` in all. The control plane must answer
    /// `/healthz` first, so that one that hangs receives no change to make later. It must answer it again during the
    /// request, so that a long limit does not hide a hang.
    pub(super) async fn exchange<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
        limit: Duration,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let deadline = Instant::now() + limit;
        self.probe(LIMIT).await?;
        let hang = async {
            loop {
                sleep(PROBE_INTERVAL).await;
                if let Err(error) = self.probe(LIMIT.saturating_sub(PROBE_INTERVAL)).await {
                    return error;
                }
            }
        };
        let slow = self.slow(&method, path, limit);
        tokio::select! {
            biased;
            answered = timeout_at(deadline, self.send(method, path, body)) => answered.map_err(slow)?,
            error = hang => Err(error),
        }
    }

    /// Requests what is too large for memory, and writes it to `output`. The answer begins within `begin`, and is not silent
    /// for longer than `limit` afterwards.
    pub(super) async fn download(
        &self,
        path: &str,
        output: &mut (dyn Write + Send),
        (begin, limit): (Duration, Duration),
    ) -> Result<(), ClientError> {
        self.probe(LIMIT).await?;
        let slow = self.slow(&Method::POST, path, limit);
        let read = async |response: Response<Incoming>| {
            let status = response.status();
            let mut body = response.into_body();
            if !status.is_success() {
                let body = body.collect().await.map_err(broken)?.to_bytes();
                return decode::<IgnoredAny>((status, body)).map(drop);
            }
            while let Some(frame) = timeout(limit, body.frame()).await.map_err(&slow)? {
                if let Ok(data) = frame.map_err(broken)?.into_data() {
                    output.write_all(&data).map_err(ClientError::Output)?;
                }
            }
            Ok(())
        };
        self.exchange_by::<(), _>(Method::POST, path, None, Some(begin), read).await
    }

    /// The error of a request that has taken longer than `limit`.
    pub(super) fn slow(
        &self,
        method: &Method,
        path: &str,
        limit: Duration,
    ) -> impl Fn(Elapsed) -> ClientError + use<> {
        let (place, request) = (self.place(), format!("{method} {path}"));
        move |_| ClientError::Slow { place: place.clone(), request: request.clone(), limit }
    }

    /// Checks that the control plane answers `/healthz`.
    pub(super) async fn probe(&self, limit: Duration) -> Result<(), ClientError> {
        let answered = timeout(limit, self.send::<()>(Method::GET, HEALTH, None)).await;
        let silent = |_| ClientError::Silent { place: self.place() };
        answered.map_err(silent)?.map(|_| ())
    }

    /// Whether a control plane answers.
    async fn is_healthy(&self) -> bool {
        let answer = timeout(LIMIT, self.send::<()>(Method::GET, HEALTH, None)).await;
        matches!(answer, Ok(Ok((status, _))) if status.is_success())
    }

    /// The error of a failed connection.
    async fn unreachable(&self, source: io::Error) -> ClientError {
        let place = self.place();
        let Target::Socket(socket) = &self.target else {
            return ClientError::Unreachable {
                place,
                advice: advice_about_server(&source),
                source,
            };
        };
        if source.kind() == io::ErrorKind::NotFound
            && let Some(port) = self.expected_port
        {
            let by_port = self.clone().via_port(port);
            if Box::pin(by_port.is_healthy()).await {
                return ClientError::SocketGone { socket: socket.clone(), port };
            }
        }
        ClientError::Unreachable { place, advice: advice_about_socket(&source), source }
    }

    /// Sends one request on its own connection, and reads the response to its end.
    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        self.exchange_by(method, path, body, None, async |response: Response<Incoming>| {
            let status = response.status();
            Ok((status, response.into_body().collect().await.map_err(broken)?.to_bytes()))
        })
        .await
    }

    /// Sends one request on its own connection, and reads the response by `read`. The response begins within `begin`; without
    /// it, the caller bounds the whole exchange.
    pub(super) async fn exchange_by<B: Serialize, A>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
        begin: Option<Duration>,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<A, ClientError>,
    ) -> Result<A, ClientError> {
        if let Target::Socket(socket) = &self.target {
            check_socket_path(socket)?;
        }
        let (stream, host) = match self.connect().await {
            Ok(connected) => connected,
            Err(source) => return Err(self.unreachable(source).await),
        };
        let body = body.map(serde_json::to_vec).transpose().map_err(broken)?.unwrap_or_default();
        let slow = begin.map(|begin| self.slow(&method, path, begin));
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json");
        // The probe needs no credential; a rejected one would be charged twice.
        if let Target::Server(RemoteServer { token: Some(token), .. }) = &self.target
            && path != HEALTH
        {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let request = request.body(Full::<Bytes>::from(body)).map_err(broken)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(broken)?;
        // The connection ends with its sender, which ends with the exchange.
        let exchange = async move {
            let response = sender.send_request(request);
            let response = match (begin, slow) {
                (Some(begin), Some(slow)) => timeout(begin, response).await.map_err(slow)?,
                _ => response.await,
            };
            read(response.map_err(broken)?).await
        };
        // Either may end first; the response is read to its end.
        tokio::join!(exchange, connection).0
    }
}

/// The content of a response, or its error.
pub(super) fn decode<A: DeserializeOwned>(
    (status, body): (StatusCode, Bytes),
) -> Result<A, ClientError> {
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(broken);
    }
    let error = serde_json::from_slice(&body).map_or_else(
        |_| format!("{status}: {}", String::from_utf8_lossy(&body)),
        |body: ErrorBody| body.error,
    );
    Err(if status.is_server_error() {
        ClientError::Failed(error)
    } else {
        ClientError::Rejected(error)
    })
}

pub(super) fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Broken(error.into())
}
