//! The client of the admin API, which the commands use. Only the wait for a policy revision repeats requests.

mod error;
mod events;
mod exchange;
mod mesh_reads;
mod server;
/// A query in the form of a URL.
fn query_string(query: &JournalQuery) -> String {
    let JournalQuery { since, kind, limit, after, before } = query;
    let parts = [
        since.map(|since| format!("since={since}")),
        kind.map(|kind| format!("kind={kind}")),
        limit.map(|limit| format!("limit={limit}")),
        after.map(|after| format!("after={after}")),
        before.map(|before| format!("before={before}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests;
mod until_synced;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, StatusCode};
use ironmesh_analysis::verdict::{EgressQuestion, EgressVerdict, IngressQuestion, IngressVerdict};
use ironmesh_analysis::{Question, Verdict};
use ironmesh_catalog::{JournalQuery, OperatorName, ServiceName, SilenceId, TokenId};

pub use error::ClientError;
use exchange::{broken, decode};
use ironmesh_api::AuditView;
use ironmesh_api::CertificateList;
use ironmesh_api::TrafficView;
use ironmesh_api::VersionReport;
use ironmesh_api::{AcceptRemovalRequest, AcceptedRemoval};
use ironmesh_api::{AcceptedEndpoints, EndpointList};
use ironmesh_api::{Applied, ApplyRequest, MAX_APPLY, apply_too_large};
use ironmesh_api::{BootstrapRequest, BootstrapResponse};
use ironmesh_api::{
    ChangedServices, CreatedTokens, RevokeTokenRequest, ServicesRequest, TokenList, TokenRequest,
    TokenView,
};
use ironmesh_api::{ConvergenceView, WaitAnswer, WaitRequest};
use ironmesh_api::{CordonChange, CordonRequest, CordonResult};
use ironmesh_api::{
    CredentialRequest, IssuedCredential, OperatorList, OperatorView, RevokeOperatorRequest,
};
use ironmesh_api::{FindingList, SilenceList, SilenceRequest, SilenceView};
use ironmesh_api::{JournalPage, MAX_JOURNAL_PAGE};
use ironmesh_api::{LinkRequest, LoginLink, SessionList, SessionView};
use ironmesh_api::{LogLevelRequest, LogLevelView};
use ironmesh_api::{MAX_PROXY_PAGE, ProxyPage, ProxyQuery};
use ironmesh_api::{Plan, PlanRequest};
use ironmesh_api::{ProxyConfig, ProxyDetail};
use ironmesh_api::{Readiness, RevisionList, RollbackRequest, RolledBack};
use ironmesh_api::{RevokeRequest, RevokedProxies};
pub use server::RemoteServer;

/// The time limit of reads and of `/healthz`. A control plane that takes longer hangs, is stopped, or is overloaded.
const LIMIT: Duration = Duration::from_secs(3);

/// The time limit of requests that load a policy, compare with all of it, issue many certificates, or wait for the
/// disk: a change that is made must not be reported as a failure.
const LONG_LIMIT: Duration = Duration::from_secs(30);

/// The time limit of a plan, for which all proxies are compiled two or three times.
const PLAN_LIMIT: Duration = Duration::from_secs(600);

/// The time limit of a release, whose files are all synced to the disk.
const APPLY_LIMIT: Duration = Duration::from_secs(120);

/// The time limit for the beginning of an export: the control plane first verifies each record of the store.
const EXPORT_LIMIT: Duration = Duration::from_secs(120);

/// A client of a control plane.
#[derive(Debug, Clone)]
pub struct Client {
    target: Target,
    /// The admin port, which answers if the control plane runs and its socket is missing.
    expected_port: Option<SocketAddr>,
}

/// Where the control plane is reached.
#[derive(Debug, Clone)]
enum Target {
    Socket(PathBuf),
    Port(SocketAddr),
    Server(RemoteServer),
}

impl Client {
    /// A client of the socket at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self { target: Target::Socket(socket.to_owned()), expected_port: None }
    }

    /// A client of a control plane on the network.
    pub fn remote(server: RemoteServer) -> Self {
        Self { target: Target::Server(server), expected_port: None }
    }

    /// The same client with the admin port, which distinguishes a missing socket from a stopped control plane.
    #[must_use]
    pub fn expecting(self, port: SocketAddr) -> Self {
        Self { expected_port: Some(port), ..self }
    }

    /// The client of the same control plane by its admin port, which only reads: for when the socket is gone.
    #[must_use]
    pub fn via_port(self, port: SocketAddr) -> Self {
        Self { target: Target::Port(port), ..self }
    }

    /// Whether the control plane is ready, and the state of policy and mesh.
    pub async fn readiness(&self) -> Result<Readiness, ClientError> {
        let (status, body) = self.exchange::<()>(Method::GET, "/readyz", None, LIMIT).await?;
        // The status is not a success while it is not ready.
        let status =
            if status == StatusCode::SERVICE_UNAVAILABLE { StatusCode::OK } else { status };
        decode((status, body))
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

    /// The certificates of the mesh.
    pub async fn certificates(&self) -> Result<CertificateList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/certificates", None).await
    }

    /// Creates tokens by which machines enroll.
    pub async fn create_tokens(
        &self,
        request: &TokenRequest,
    ) -> Result<CreatedTokens, ClientError> {
        self.long_call("/v1/tokens", request).await
    }

    /// The stored tokens.
    pub async fn tokens(&self) -> Result<TokenList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/tokens", None).await
    }

    /// Revokes a token.
    pub async fn revoke_token(
        &self,
        id: &TokenId,
        request: &RevokeTokenRequest,
    ) -> Result<TokenView, ClientError> {
        self.long_call(&format!("/v1/tokens/{id}/revoke"), request).await
    }

    /// Gives the proxy with this name, or whose UUID is or begins with `id`, other services.
    pub async fn set_services(
        &self,
        id: &str,
        request: &ServicesRequest,
    ) -> Result<ChangedServices, ClientError> {
        self.long_call(&format!("/v1/proxies/{id}/services"), request).await
    }

    /// Cordons, drains or uncordons the proxy with this name, or whose UUID is or begins with `id`. Waits for its callers.
    pub async fn change_cordon(
        &self,
        id: &str,
        change: CordonChange,
        request: &CordonRequest,
    ) -> Result<CordonResult, ClientError> {
        self.long_call(&format!("/v1/proxies/{id}/{}", change.word()), request).await
    }

    /// The versions of all proxies in use.
    pub async fn versions(&self) -> Result<VersionReport, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/versions", None).await
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

    /// The traffic of a service, or of all.
    pub async fn traffic(&self, service: Option<&ServiceName>) -> Result<TrafficView, ClientError> {
        let path = service
            .map_or_else(|| "/v1/traffic".to_owned(), |service| format!("/v1/traffic/{service}"));
        self.call::<(), _>(Method::GET, &path, None).await
    }

    /// Accepts the endpoint removal that is held back for a service.
    pub async fn accept_endpoints(
        &self,
        service: &ServiceName,
    ) -> Result<AcceptedEndpoints, ClientError> {
        let path = format!("/v1/endpoints/{service}/accept");
        decode(self.exchange::<()>(Method::POST, &path, None, LONG_LIMIT).await?)
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

    /// Revokes proxies, all or none; or predicts that.
    pub async fn revoke(&self, request: &RevokeRequest) -> Result<RevokedProxies, ClientError> {
        self.long_call("/v1/revocations", request).await
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
        self.long_call("/v1/policy/accept", request).await
    }

    /// Makes a release of policy documents, and activates it.
    pub async fn apply(&self, request: &ApplyRequest) -> Result<Applied, ClientError> {
        // The server would close the connection, perhaps before its answer is read.
        let bytes = serde_json::to_vec(request).map_err(broken)?.len();
        if bytes > MAX_APPLY {
            return Err(ClientError::Rejected(apply_too_large()));
        }
        let path = "/v1/policy/apply";
        decode(self.exchange(Method::POST, path, Some(request), APPLY_LIMIT).await?)
    }

    /// How far all proxies have ACKed what they should have.
    pub async fn convergence(&self) -> Result<ConvergenceView, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/convergence", None).await
    }

    /// Waits until a policy revision is synced, for the time of the request at most.
    pub async fn policy_wait(&self, request: &WaitRequest) -> Result<WaitAnswer, ClientError> {
        self.long_call("/v1/policy/wait", request).await
    }

    /// The journal's entries of a query, at most [`ironmesh_api::MAX_JOURNAL_PAGE`] of them.
    pub async fn journal(&self, query: &JournalQuery) -> Result<JournalPage, ClientError> {
        self.call::<(), _>(Method::GET, &format!("/v1/journal?{}", query_string(query)), None).await
    }

    /// The newest entries up to the limit of a query; without one, all of them, from as many pages as that needs.
    pub async fn journal_pages(&self, query: JournalQuery) -> Result<JournalPage, ClientError> {
        let mut all = self.journal(&query).await?;
        // The newest come first, so that the control plane reads nothing from before `since`.
        let mut is_full = query.limit.is_none() && all.entries.len() >= MAX_JOURNAL_PAGE;
        while is_full {
            let before = all.entries.first().map(|entry| entry.sequence);
            let earlier = self.journal(&JournalQuery { before, ..query }).await?.entries;
            is_full = earlier.len() >= MAX_JOURNAL_PAGE;
            all.entries.splice(0..0, earlier);
        }
        Ok(all)
    }

    /// Writes a sealed export of the store at this moment to `output`.
    pub async fn export(&self, output: &mut (dyn Write + Send)) -> Result<(), ClientError> {
        self.download("/v1/store/export", output, (EXPORT_LIMIT, LONG_LIMIT)).await
    }

    /// The level of the log of this control plane.
    pub async fn log_level(&self) -> Result<LogLevelView, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/log-level", None).await
    }

    /// Sets another level of the log for a while.
    pub async fn set_log_level(
        &self,
        request: &LogLevelRequest,
    ) -> Result<LogLevelView, ClientError> {
        self.long_call("/v1/log-level", request).await
    }

    /// All active findings of the mesh, also silenced ones.
    pub async fn findings(&self) -> Result<FindingList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/findings", None).await
    }

    /// The stored silences, also those that have ended.
    pub async fn silences(&self) -> Result<SilenceList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/silences", None).await
    }

    /// Silences findings.
    pub async fn silence(&self, request: &SilenceRequest) -> Result<SilenceView, ClientError> {
        self.long_call("/v1/silences", request).await
    }

    /// Removes a silence.
    pub async fn remove_silence(&self, id: &SilenceId) -> Result<SilenceView, ClientError> {
        self.long_call(&format!("/v1/silences/{id}/remove"), &()).await
    }

    /// Enrolls proxies, all or none.
    pub async fn bootstrap(
        &self,
        request: &BootstrapRequest,
    ) -> Result<BootstrapResponse, ClientError> {
        self.long_call("/v1/proxies", request).await
    }

    /// The operators and their credentials.
    pub async fn operators(&self) -> Result<OperatorList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/operators", None).await
    }

    /// The logins of browsers.
    pub async fn sessions(&self) -> Result<SessionList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/sessions", None).await
    }

    /// Creates a login link.
    pub async fn create_login_link(&self, request: &LinkRequest) -> Result<LoginLink, ClientError> {
        self.long_call("/v1/login-links", request).await
    }

    /// Revokes a login link or a session.
    pub async fn revoke_session(&self, id: &TokenId) -> Result<SessionView, ClientError> {
        self.long_call(&format!("/v1/sessions/{id}/revoke"), &()).await
    }

    /// Issues a certificate or a token for an operator.
    pub async fn issue_credential(
        &self,
        request: &CredentialRequest,
    ) -> Result<IssuedCredential, ClientError> {
        self.long_call("/v1/operators", request).await
    }

    /// Revokes the credentials of an operator, or one of them.
    pub async fn revoke_operator(
        &self,
        name: &OperatorName,
        request: &RevokeOperatorRequest,
    ) -> Result<OperatorView, ClientError> {
        self.long_call(&format!("/v1/operators/{name}/revoke"), request).await
    }
}
