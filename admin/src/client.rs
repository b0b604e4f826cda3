//! The calling side: what the commands use to speak to a running control plane.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use ironmesh_catalog::verdict::{InwardQuestion, InwardVerdict, OutwardQuestion, OutwardVerdict};
use ironmesh_catalog::{ProxyId, Question, ServiceName, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use crate::api::{
    AuditView, BootstrapRequest, BootstrapResponse, ErrorBody, ProxyConfig, ProxyDetail, ProxyView,
    Readiness, RevisionList, RevokeRequest, Revoked, RollbackRequest, RolledBack,
};
use crate::endpoints::{Accepted, EndpointList};
use crate::plan::{Plan, PlanRequest};
use crate::removals::{AcceptRemovalRequest, AcceptedRemoval};

/// How long the control plane may take to accept a connection and to answer `/healthz`. One that takes longer hangs
/// or is stopped, whatever it was asked.
const LIVENESS: Duration = Duration::from_secs(3);

/// How long an answer of a live control plane may take. Issuing takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a plan may take, for which all proxies are compiled twice or three times.
const PLAN_PATIENCE: Duration = Duration::from_secs(600);

/// A client of the admin socket, or of the admin port.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    /// The port to use in place of the socket.
    port: Option<SocketAddr>,
}

/// A connection to either.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send> Connection for C {}

/// A call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens, or not for us.
    #[error(
        "cannot reach the control plane at `{}`: is `ironmesh serve` running with this state folder, and as this user?",
        socket.display()
    )]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The socket accepts connections, and its process answers nothing: it hangs, or is stopped.
    #[error(
        "the control plane at `{}` does not answer: its process accepts connections and has not answered /healthz for {} s; see its log and the load of its machine",
        socket.display(), LIVENESS.as_secs()
    )]
    Silent {
        /// The socket.
        socket: PathBuf,
    },
    /// The connection broke.
    #[error("the control plane did not answer")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The control plane says no.
    #[error("{0}")]
    Refused(String),
    /// The control plane cannot do it now.
    #[error("{0}")]
    Failed(String),
}

impl Client {
    /// A client of the socket at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), port: None }
    }

    /// The same control plane by its admin port, which only reads: for when the socket is gone.
    #[must_use]
    pub fn by_port(self, port: SocketAddr) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Whether the control plane serves, and what is wrong with its policy and its mesh.
    pub async fn readiness(&self) -> Result<Readiness, ClientError> {
        // It says so also where it is not ready, and then not by a success.
        let (_, body) = self.exchange::<()>(Method::GET, "/readyz", None, PATIENCE).await?;
        serde_json::from_slice(&body).map_err(broken)
    }

    /// What strict would deny of the calls of services in audit.
    pub async fn audit(&self) -> Result<AuditView, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/audit", None).await
    }

    /// All proxies that have joined.
    pub async fn proxies(&self) -> Result<Vec<ProxyView>, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/proxies", None).await
    }

    /// All that is known of the proxy whose UUID is or begins with `id`.
    pub async fn proxy(&self, id: &str) -> Result<ProxyDetail, ClientError> {
        self.call::<(), _>(Method::GET, &format!("/v1/proxies/{id}"), None).await
    }

    /// All that the proxy is to have whose UUID is or begins with `id`.
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

    /// Believes what the providers of a service say, though it is doubted.
    pub async fn accept_endpoints(&self, service: &ServiceName) -> Result<Accepted, ClientError> {
        self.call::<(), _>(Method::POST, &format!("/v1/endpoints/{service}/accept"), None).await
    }

    /// Whether a call would be let through, and why.
    pub async fn explain(&self, question: &Question) -> Result<Verdict, ClientError> {
        self.call(Method::POST, "/v1/explain", Some(question)).await
    }

    /// The same of a call that leaves the mesh.
    pub async fn explain_outward(
        &self,
        question: &OutwardQuestion,
    ) -> Result<OutwardVerdict, ClientError> {
        self.call(Method::POST, "/v1/explain/egress", Some(question)).await
    }

    /// The same of a call from outside of the mesh.
    pub async fn explain_inward(
        &self,
        question: &InwardQuestion,
    ) -> Result<InwardVerdict, ClientError> {
        self.call(Method::POST, "/v1/explain/ingress", Some(question)).await
    }

    /// What would change if other documents were the policy.
    pub async fn plan(&self, request: &PlanRequest) -> Result<Plan, ClientError> {
        answer(self.exchange(Method::POST, "/v1/plan", Some(request), PLAN_PATIENCE).await?)
    }

    /// Shuts a proxy out, for good.
    pub async fn revoke(
        &self,
        id: ProxyId,
        request: &RevokeRequest,
    ) -> Result<Revoked, ClientError> {
        self.call(Method::POST, &format!("/v1/proxies/{id}/revoke"), Some(request)).await
    }

    /// The policies that can be rolled back to.
    pub async fn policy_revisions(&self) -> Result<RevisionList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/policy/revisions", None).await
    }

    /// Puts a policy of before into force again.
    pub async fn roll_back(&self, request: &RollbackRequest) -> Result<RolledBack, ClientError> {
        self.call(Method::POST, "/v1/policy/rollback", Some(request)).await
    }

    /// Activates a removal from the policy folder that is held back.
    pub async fn accept_removal(
        &self,
        request: &AcceptRemovalRequest,
    ) -> Result<AcceptedRemoval, ClientError> {
        self.call(Method::POST, "/v1/policy/accept", Some(request)).await
    }

    /// Lets proxies in, all or none.
    pub async fn bootstrap(
        &self,
        request: &BootstrapRequest,
    ) -> Result<BootstrapResponse, ClientError> {
        self.call(Method::POST, "/v1/proxies", Some(request)).await
    }

    async fn call<B: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<A, ClientError> {
        answer(self.exchange(method, path, body, PATIENCE).await?)
    }

    async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        Ok(match self.port {
            Some(port) => Box::new(TcpStream::connect(port).await?),
            None => Box::new(UnixStream::connect(&self.socket).await?),
        })
    }

    /// Asks, and reads the answer to its end. An answer may take `patience` as long as the control plane is alive:
    /// it answers `/healthz` before it is asked anything, and again while it is waited for.
    async fn exchange<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        self.probe().await?;
        let death = async {
            loop {
                sleep(LIVENESS).await;
                if let Err(error) = self.probe().await {
                    return error;
                }
            }
        };
        tokio::select! {
            biased;
            answered = timeout(patience, self.send(method, path, body)) => answered.map_err(broken)?,
            error = death => Err(error),
        }
    }

    /// Whether the control plane is alive.
    async fn probe(&self) -> Result<(), ClientError> {
        let answered = timeout(LIVENESS, self.send::<()>(Method::GET, "/healthz", None)).await;
        let silent = |_| ClientError::Silent { socket: self.socket.clone() };
        answered.map_err(silent)?.map(|_| ())
    }

    /// One exchange on a connection of its own.
    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let stream = self
            .connect()
            .await
            .map_err(|source| ClientError::Unreachable { socket: self.socket.clone(), source })?;
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
        // Either may end first: the answer is read to its end.
        tokio::join!(exchange, connection).0.map_err(broken)
    }
}

/// What was answered, or why nothing was.
fn answer<A: DeserializeOwned>((status, body): (StatusCode, Bytes)) -> Result<A, ClientError> {
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
        ClientError::Refused(error)
    })
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Broken(error.into())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;
    use tokio::time::Instant;

    use super::*;

    /// A socket whose process never answers, or `/healthz` only.
    fn socket(folder: &Path, answers_healthz: bool) -> PathBuf {
        let socket = folder.join("admin.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                if answers_healthz {
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

    // Time is virtual in these tests, and moves on where everybody waits.
    #[tokio::test(start_paused = true)]
    async fn hung_control_plane_fails_every_command_within_the_liveness_limit() {
        let folder = tempfile::tempdir().unwrap();
        let client = Client::new(&socket(folder.path(), false));
        let begun = Instant::now();
        let explained = client.explain(&question()).await.map(|_| ());
        let planned = client.plan(&plan_request()).await.map(|_| ());
        for result in [explained, planned] {
            assert!(matches!(result, Err(ClientError::Silent { .. })), "{result:?}");
        }
        assert_eq!(begun.elapsed().as_secs(), 2 * LIVENESS.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn live_control_plane_has_longer_for_a_plan_than_for_other_answers() {
        let folder = tempfile::tempdir().unwrap();
        let client = Client::new(&socket(folder.path(), true));
        let given_up = timeout(PATIENCE * 2, client.explain(&question())).await;
        assert!(matches!(given_up, Ok(Err(ClientError::Broken(_)))), "{given_up:?}");
        let planning = timeout(PATIENCE * 10, client.plan(&plan_request())).await;
        assert!(planning.is_err(), "it has given up: {planning:?}");
    }
}
