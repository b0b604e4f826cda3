//! The client of the admin API, which the commands use. It never retries.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use ironmesh_analysis::verdict::{EgressQuestion, EgressVerdict, IngressQuestion, IngressVerdict};
use ironmesh_analysis::{Question, Verdict};
use ironmesh_catalog::ServiceName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::api::{
    AuditView, BootstrapRequest, BootstrapResponse, ErrorBody, ProxyConfig, ProxyDetail, Readiness,
    RevisionList, RevokeRequest, Revoked, RollbackRequest, RolledBack,
};
use crate::convergence::{ConvergenceView, WaitAnswer, WaitRequest};
use crate::endpoints::{AcceptedEndpoints, EndpointList};
use crate::plan::{Plan, PlanRequest};
use crate::proxies::{MAX_PROXY_PAGE, ProxyPage, ProxyQuery};
use crate::removals::{AcceptRemovalRequest, AcceptedRemoval};
use crate::socket_path::{SocketPathTooLong, check_socket_path};

/// The time limit of reads, of small writes, which take milliseconds, and of `/healthz`. A control plane that takes
/// longer hangs, is stopped, or is overloaded.
const LIMIT: Duration = Duration::from_secs(3);

/// The time limit of requests that load a policy, compare with all of it, or issue many certificates.
const LONG_LIMIT: Duration = Duration::from_secs(30);

/// The time limit of a plan, for which all proxies are compiled two or three times.
const PLAN_LIMIT: Duration = Duration::from_secs(600);

/// The pause between two checks of `/healthz` during a request.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// A client of the admin socket, or of the admin port.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    /// The admin port to use in place of the socket.
    port: Option<SocketAddr>,
    /// The admin port, which answers if the control plane runs and its socket is missing.
    expected_port: Option<SocketAddr>,
}

/// A connection to the socket or to the port.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send> Connection for C {}

/// The failure of an admin API request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens, or this user may not connect.
    #[error("cannot reach the control plane at `{}`: {}", socket.display(), advice(source))]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The socket is gone, and a control plane answers at the admin port.
    #[error(
        "the admin socket `{}` is missing, but a control plane answers at {port}: if it uses this state folder, the folder was removed while it was running. Do NOT restart it, which would lose its certificate authority: see `ironmesh explain IM0702`",
        socket.display()
    )]
    SocketGone {
        /// The socket.
        socket: PathBuf,
        /// The port.
        port: SocketAddr,
    },
    /// The path of the socket is longer than the system allows.
    #[error(transparent)]
    PathTooLong(#[from] SocketPathTooLong),
    /// The socket accepts connections, and its process answers nothing: it hangs, or is stopped.
    #[error(
        "the control plane at `{}` does not answer: its process accepts connections and has not answered /healthz for {} s; see its log and the load of its machine",
        socket.display(), LIMIT.as_secs()
    )]
    Silent {
        /// The socket.
        socket: PathBuf,
    },
    /// The process accepts connections, and does not answer this request in time.
    #[error(
        "the control plane at `{}` accepts connections and has not answered {request} within {} s; see its log and the load of its machine. A change may still take effect: check before you repeat it",
        socket.display(), limit.as_secs()
    )]
    Slow {
        /// The socket.
        socket: PathBuf,
        /// The method and the path.
        request: String,
        /// How long the request was allowed to take.
        limit: Duration,
    },
    /// The connection broke.
    #[error(
        "the control plane did not answer: it closed the connection or sent an invalid response; see its log"
    )]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The control plane rejected the request.
    #[error("{0}")]
    Rejected(String),
    /// The control plane failed, or is busy.
    #[error("{0}")]
    Failed(String),
}

impl ClientError {
    /// Whether the control plane gave no answer: it is not running, restarts or hangs.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Slow { .. } | Self::Broken(_)
        )
    }
}

impl Client {
    /// A client of the socket at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), port: None, expected_port: None }
    }

    /// The same client with the admin port, which distinguishes a missing socket from a stopped control plane.
    #[must_use]
    pub fn expecting(self, port: SocketAddr) -> Self {
        Self { expected_port: Some(port), ..self }
    }

    /// The client of the same control plane by its admin port, which only reads: for when the socket is gone.
    #[must_use]
    pub fn via_port(self, port: SocketAddr) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Whether the control plane is ready, and the state of policy and mesh.
    pub async fn readiness(&self) -> Result<Readiness, ClientError> {
        // The status is not a success while it is not ready.
        let (_, body) = self.exchange::<()>(Method::GET, "/readyz", None, LIMIT).await?;
        serde_json::from_slice(&body).map_err(broken)
    }

    /// The calls that strict mode would deny, of services in audit mode.
    pub async fn audit(&self) -> Result<AuditView, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/audit", None).await
    }

    /// A page of the enrolled proxies.
    pub async fn proxy_page(&self, query: &ProxyQuery) -> Result<ProxyPage, ClientError> {
        let query = serde_urlencoded::to_string(query).map_err(broken)?;
        self.call::<(), _>(Method::GET, &format!("/v1/proxies?{query}"), None).await
    }

    /// The enrolled proxies that match the query, from as many pages as its limit needs; all of them without a limit.
    pub async fn proxies(&self, mut query: ProxyQuery) -> Result<ProxyPage, ClientError> {
        let limit = query.limit.unwrap_or(usize::MAX);
        query.limit = Some(limit.min(MAX_PROXY_PAGE));
        let mut all = self.proxy_page(&query).await?;
        while let Some(next) = all.next.take().filter(|_| all.proxies.len() < limit) {
            query.limit = Some((limit - all.proxies.len()).min(MAX_PROXY_PAGE));
            query.after = Some(next);
            let page = self.proxy_page(&query).await?;
            all.proxies.extend(page.proxies);
            all.next = page.next;
        }
        Ok(all)
    }

    /// The details of the proxy with this name, or whose UUID is or begins with `id`.
    pub async fn proxy(&self, id: &str) -> Result<ProxyDetail, ClientError> {
        self.call::<(), _>(Method::GET, &format!("/v1/proxies/{id}"), None).await
    }

    /// All resources of the proxy with this name, or whose UUID is or begins with `id`.
    pub async fn proxy_config(&self, id: &str) -> Result<ProxyConfig, ClientError> {
        self.call::<(), _>(Method::GET, &format!("/v1/proxies/{id}/config"), None).await
    }

    /// The endpoints of a service, or of all.
    pub async fn endpoints(
        &self,
        service: Option<&ServiceName>,
    ) -> Result<EndpointList, ClientError> {
        let path = service.map_or_else(
            || "/v1/endpoints".to_owned(),
            |service| format!("/v1/endpoints/{service}"),
        );
        self.call::<(), _>(Method::GET, &path, None).await
    }

    /// Accepts the endpoint removal that is held back for a service.
    pub async fn accept_endpoints(
        &self,
        service: &ServiceName,
    ) -> Result<AcceptedEndpoints, ClientError> {
        self.call::<(), _>(Method::POST, &format!("/v1/endpoints/{service}/accept"), None).await
    }

    /// Whether policy allows a call, and why.
    pub async fn explain(&self, question: &Question) -> Result<Verdict, ClientError> {
        self.long_call("/v1/explain", question).await
    }

    /// Whether policy allows a call that leaves the mesh, and why.
    pub async fn explain_outward(
        &self,
        question: &EgressQuestion,
    ) -> Result<EgressVerdict, ClientError> {
        self.long_call("/v1/explain/egress", question).await
    }

    /// Whether policy allows a call from outside of the mesh, and why.
    pub async fn explain_inward(
        &self,
        question: &IngressQuestion,
    ) -> Result<IngressVerdict, ClientError> {
        self.long_call("/v1/explain/ingress", question).await
    }

    /// Predicts what other policy documents would change.
    pub async fn plan(&self, request: &PlanRequest) -> Result<Plan, ClientError> {
        decode(self.exchange(Method::POST, "/v1/plan", Some(request), PLAN_LIMIT).await?)
    }

    /// Revokes the proxy whose UUID is or begins with `id`.
    pub async fn revoke(&self, id: &str, request: &RevokeRequest) -> Result<Revoked, ClientError> {
        self.call(Method::POST, &format!("/v1/proxies/{id}/revoke"), Some(request)).await
    }

    /// The stored policy revisions.
    pub async fn policy_revisions(&self) -> Result<RevisionList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/policy/revisions", None).await
    }

    /// Makes an earlier policy revision active again.
    pub async fn roll_back(&self, request: &RollbackRequest) -> Result<RolledBack, ClientError> {
        self.long_call("/v1/policy/rollback", request).await
    }

    /// Activates a removal from the policy folder that is held back.
    pub async fn accept_removal(
        &self,
        request: &AcceptRemovalRequest,
    ) -> Result<AcceptedRemoval, ClientError> {
        self.call(Method::POST, "/v1/policy/accept", Some(request)).await
    }

    /// How far all proxies have ACKed what they should have.
    pub async fn convergence(&self) -> Result<ConvergenceView, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/convergence", None).await
    }

    /// Waits until a policy revision is synced, for the time of the request at most.
    pub async fn policy_wait(&self, request: &WaitRequest) -> Result<WaitAnswer, ClientError> {
        self.long_call("/v1/policy/wait", request).await
    }

    /// Enrolls proxies, all or none.
    pub async fn bootstrap(
        &self,
        request: &BootstrapRequest,
    ) -> Result<BootstrapResponse, ClientError> {
        self.long_call("/v1/proxies", request).await
    }

    async fn call<B: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<A, ClientError> {
        decode(self.exchange(method, path, body, LIMIT).await?)
    }

    async fn long_call<B: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<A, ClientError> {
        decode(self.exchange(Method::POST, path, Some(body), LONG_LIMIT).await?)
    }

    async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        Ok(match self.port {
            Some(port) => Box::new(TcpStream::connect(port).await?),
            None => Box::new(UnixStream::connect(&self.socket).await?),
        })
    }

    /// Sends a request and reads the response to its end, within `limit` in all. The control plane must answer
    /// `/healthz` first, so that one that hangs receives no change to make later. It must answer it again during the
    /// request, so that a long limit does not hide a hang.
    async fn exchange<B: Serialize>(
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
        let request = format!("{method} {path}");
        let slow = |_| ClientError::Slow { socket: self.socket.clone(), request, limit };
        tokio::select! {
            biased;
            answered = timeout_at(deadline, self.send(method, path, body)) => answered.map_err(slow)?,
            error = hang => Err(error),
        }
    }

    /// Checks that the control plane answers `/healthz`.
    async fn probe(&self, limit: Duration) -> Result<(), ClientError> {
        let answered = timeout(limit, self.send::<()>(Method::GET, "/healthz", None)).await;
        let silent = |_| ClientError::Silent { socket: self.socket.clone() };
        answered.map_err(silent)?.map(|_| ())
    }

    /// Whether a control plane answers.
    async fn is_healthy(&self) -> bool {
        let answer = timeout(LIMIT, self.send::<()>(Method::GET, "/healthz", None)).await;
        matches!(answer, Ok(Ok((status, _))) if status.is_success())
    }

    /// The error of a failed connection.
    async fn unreachable(&self, source: io::Error) -> ClientError {
        let socket = self.socket.clone();
        if source.kind() == io::ErrorKind::NotFound
            && self.port.is_none()
            && let Some(port) = self.expected_port
        {
            let by_port = self.clone().via_port(port);
            if Box::pin(by_port.is_healthy()).await {
                return ClientError::SocketGone { socket, port };
            }
        }
        ClientError::Unreachable { socket, source }
    }

    /// Sends one request on its own connection.
    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        if self.port.is_none() {
            check_socket_path(&self.socket)?;
        }
        let stream = match self.connect().await {
            Ok(stream) => stream,
            Err(source) => return Err(self.unreachable(source).await),
        };
        let body = body.map(serde_json::to_vec).transpose().map_err(broken)?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(
                header::HOST,
                self.port.map_or_else(|| "ironmesh".into(), |port| port.to_string()),
            )
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body))
            .map_err(broken)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(broken)?;
        // The connection ends with its sender, which ends with the exchange.
        let exchange = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        // Either may end first; the response is read to its end.
        tokio::join!(exchange, connection).0.map_err(broken)
    }
}

/// What the error of a connection to the socket means.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "this user may not use it: run this command as the owner of the state folder"
        }
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: `ironmesh serve` has stopped; see its log. Traffic goes on meanwhile"
        }
        _ => "is `ironmesh serve` running with this state folder? (`--config` names its settings)",
    }
}

/// The content of a response, or its error.
fn decode<A: DeserializeOwned>((status, body): (StatusCode, Bytes)) -> Result<A, ClientError> {
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

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Broken(error.into())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    /// A socket whose process answers `/healthz` until `hangs_after`, and nothing else.
    fn socket(folder: &Path, hangs_after: Duration) -> PathBuf {
        let socket = folder.join("admin.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let hangs_at = Instant::now() + hangs_after;
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                if Instant::now() < hangs_at {
                    let mut head = [0; 13];
                    stream.read_exact(&mut head).await.unwrap();
                    if head.starts_with(b"GET /healthz") {
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                            .await
                            .unwrap();
                    }
                }
                open.push(stream);
            }
        });
        socket
    }

    fn question() -> Question {
        let question = r#"{"caller":"a","service":"b","port":null,"request":null}"#;
        serde_json::from_str(question).unwrap()
    }

    fn plan_request() -> PlanRequest {
        PlanRequest { documents: Vec::new(), resources: false }
    }

    // Time is virtual in these tests, and advances when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn hung_control_plane_fails_every_command_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let client = Client::new(&socket(folder.path(), Duration::ZERO));
        let begun = Instant::now();
        let explained = client.explain(&question()).await.map(|_| ());
        let planned = client.plan(&plan_request()).await.map(|_| ());
        let listed = client.proxies(ProxyQuery::default()).await.map(|_| ());
        for result in [explained, planned, listed] {
            assert!(matches!(result, Err(ClientError::Silent { .. })), "{result:?}");
        }
        assert_eq!(begun.elapsed(), 3 * LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn read_or_small_write_that_hangs_fails_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let client = Client::new(&socket(folder.path(), PLAN_LIMIT));
        let accept = AcceptRemovalRequest { revision: None, by: None };
        let begun = Instant::now();
        let results = [
            client.readiness().await.map(|_| ()),
            client.proxies(ProxyQuery::default()).await.map(|_| ()),
            client.endpoints(None).await.map(|_| ()),
            client.accept_removal(&accept).await.map(|_| ()),
        ];
        for result in results {
            assert!(matches!(result, Err(ClientError::Slow { .. })), "{result:?}");
        }
        assert_eq!(begun.elapsed(), 4 * LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn long_request_detects_a_hung_control_plane_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let alive = Duration::from_secs(10);
        let client = Client::new(&socket(folder.path(), alive));
        let begun = Instant::now();
        let planned = client.plan(&plan_request()).await.map(|_| ());
        assert!(matches!(planned, Err(ClientError::Silent { .. })), "{planned:?}");
        assert!(begun.elapsed() <= alive + LIMIT, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn plan_request_has_a_longer_limit_than_other_requests() {
        let folder = tempfile::tempdir().unwrap();
        let client = Client::new(&socket(folder.path(), PLAN_LIMIT * 2));
        let given_up = timeout(LONG_LIMIT * 2, client.explain(&question())).await;
        assert!(matches!(given_up, Ok(Err(ClientError::Slow { .. }))), "{given_up:?}");
        let planning = timeout(LONG_LIMIT * 10, client.plan(&plan_request())).await;
        assert!(planning.is_err(), "it has given up: {planning:?}");
    }
}
