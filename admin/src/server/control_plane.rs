//! The interface of a control plane that the admin API serves, and the errors of its requests.

use std::io;
use std::pin::Pin;
use std::sync::Weak;

use ironmesh_analysis::verdict::{EgressQuestion, EgressVerdict, IngressQuestion, IngressVerdict};
use ironmesh_analysis::{Question, Verdict};
use ironmesh_catalog::{JournalQuery, ProxyId, ServiceName, SilenceId, TokenId};

use super::access::OperatorAccess;
use super::events::EventSource;
use super::log_level::LogLevelAccess;
use super::logins::LoginAccess;
use super::mesh_reads::MeshReads;
use super::{ApiError, Principal};
use ironmesh_api::AuditView;
use ironmesh_api::CertificateList;
use ironmesh_api::JournalPage;
use ironmesh_api::TrafficView;
use ironmesh_api::VersionReport;
use ironmesh_api::{AcceptRemovalRequest, AcceptedRemoval};
use ironmesh_api::{AcceptedEndpoints, EndpointList};
use ironmesh_api::{Applied, ApplyRequest};
use ironmesh_api::{BootstrapRequest, BootstrapResponse};
use ironmesh_api::{
    ChangedServices, CreatedTokens, RevokeTokenRequest, ServicesRequest, TokenList, TokenRequest,
    TokenView,
};
use ironmesh_api::{ConvergenceView, WaitAnswer, WaitRequest};
use ironmesh_api::{CordonChange, CordonRequest, CordonResult};
use ironmesh_api::{FindingList, SilenceList, SilenceRequest, SilenceView};
use ironmesh_api::{Plan, PlanRequest};
use ironmesh_api::{ProxyConfig, ProxyDetail};
use ironmesh_api::{ProxyPage, ProxyQuery};
use ironmesh_api::{Readiness, RevisionList, RollbackRequest, RolledBack};
use ironmesh_api::{RevokeRequest, RevokedProxies};

/// The interface of a running control plane for the admin API.
pub trait ControlPlane:
    OperatorAccess + MeshReads + LoginAccess + LogLevelAccess + EventSource
{
    /// Whether the control plane is ready, and the state of policy and mesh.
    fn readiness(&self) -> Readiness;

    /// Fails if a part of the control plane serves no more, and only a restart helps.
    fn liveness(&self) -> Result<(), ApiError>;

    /// The answer of the debug handler with this name.
    fn debug(&self, name: &str) -> Result<serde_json::Value, ApiError>;

    /// A page of the enrolled proxies.
    fn proxies(&self, query: &ProxyQuery) -> Result<ProxyPage, ApiError>;

    /// The details of the proxy with this name, or whose UUID is or begins with `id`. Takes as long as examining all its resources.
    fn proxy(&self, id: &str) -> Result<ProxyDetail, ApiError>;

    /// All resources of the proxy with this name, or whose UUID is or begins with `id`. Takes as long as encoding them.
    fn proxy_config(&self, id: &str) -> Result<ProxyConfig, ApiError>;

    /// The certificates of the mesh. Takes as long as listing all proxies.
    fn certificates(&self) -> CertificateList;

    /// Revokes proxies for good, all or none; or predicts that. May block on the store.
    fn revoke(
        &self,
        principal: &Principal,
        request: &RevokeRequest,
    ) -> Result<RevokedProxies, ApiError>;

    /// The endpoints of a service, or of all. Takes as long as examining all of them.
    fn endpoints(&self, service: Option<&ServiceName>) -> Result<EndpointList, ApiError>;

    /// Accepts the endpoint removal that is held back for a service. Blocks until that is done.
    fn accept_endpoints(
        &self,
        principal: &Principal,
        service: &ServiceName,
    ) -> Result<AcceptedEndpoints, ApiError>;

    /// Whether policy allows a call, and why.
    fn explain(&self, question: &Question) -> Result<Verdict, ApiError>;

    /// Whether policy allows a call that leaves the mesh, and why.
    fn explain_outward(&self, question: &EgressQuestion) -> Result<EgressVerdict, ApiError>;

    /// Whether policy allows a call from outside of the mesh, and why.
    fn explain_inward(&self, question: &IngressQuestion) -> Result<IngressVerdict, ApiError>;

    /// Predicts what other policy documents would change, and changes nothing. Takes as long as compiling all proxies
    /// twice, and stops early if the client disconnects.
    fn plan(&self, request: &PlanRequest, cancellation: &Cancellation) -> Result<Plan, ApiError>;

    /// The stored policy revisions. May block on the store.
    fn policy_revisions(&self) -> Result<RevisionList, ApiError>;

    /// Makes an earlier policy revision active again. May block on the store.
    fn roll_back(
        &self,
        principal: &Principal,
        request: RollbackRequest,
    ) -> Result<RolledBack, ApiError>;

    /// Activates a removal from the policy folder that is held back. May block on the store.
    fn accept_removal(
        &self,
        principal: &Principal,
        request: AcceptRemovalRequest,
    ) -> Result<AcceptedRemoval, ApiError>;

    /// Makes a release of policy documents, and activates it. Blocks until it is durable.
    fn apply(&self, principal: &Principal, request: ApplyRequest) -> Result<Applied, ApiError>;

    /// How far all proxies have ACKed what they should have. Takes as long as listing those that have not.
    fn convergence(&self) -> ConvergenceView;

    /// Whether a policy revision is synced now. Takes as long as listing the proxies that have not ACKed everything.
    fn policy_wait(&self, request: &WaitRequest) -> Result<WaitAnswer, ApiError>;

    /// The next change of what [`ControlPlane::policy_wait`] answers.
    fn next_change(&self) -> NextChange;

    /// The calls that strict mode would deny, of services in audit mode.
    fn audit(&self) -> AuditView;

    /// The traffic that agents have reported, of a service or of all. Takes as long as adding up all of it.
    fn traffic(&self, service: Option<&ServiceName>) -> Result<TrafficView, ApiError>;

    /// The metrics, in the OpenMetrics text format.
    fn metrics(&self) -> String;

    /// Enrolls proxies, all or none. May block on the store.
    fn bootstrap(
        &self,
        principal: &Principal,
        request: &BootstrapRequest,
    ) -> Result<BootstrapResponse, ApiError>;

    /// Creates tokens by which machines enroll, all or none. May block on the store.
    fn create_tokens(
        &self,
        principal: &Principal,
        request: &TokenRequest,
    ) -> Result<CreatedTokens, ApiError>;

    /// The stored tokens. May block on the store.
    fn tokens(&self) -> Result<TokenList, ApiError>;

    /// Revokes a token. May block on the store.
    fn revoke_token(
        &self,
        principal: &Principal,
        id: &TokenId,
        request: &RevokeTokenRequest,
    ) -> Result<TokenView, ApiError>;

    /// Gives the proxy with this name, or whose UUID is or begins with `id`, other services. May block on the store.
    fn set_services(
        &self,
        principal: &Principal,
        id: &str,
        request: &ServicesRequest,
    ) -> Result<ChangedServices, ApiError>;

    /// The journal's entries of a query. May block on the store.
    fn journal(&self, query: &JournalQuery) -> Result<JournalPage, ApiError>;

    /// Exports the store at this moment: what it returns writes the sealed export, and blocks on its output. Takes as long as
    /// reading the whole store.
    fn export(&self, principal: &Principal) -> Result<WriteExport, ApiError>;

    /// Cordons, drains or uncordons the proxy with this name, or whose UUID is or begins with `id`; or predicts that. May
    /// block on the store.
    fn change_cordon(
        &self,
        principal: &Principal,
        id: &str,
        change: CordonChange,
        request: &CordonRequest,
    ) -> Result<CordonResult, ApiError>;

    /// How far the callers of a proxy have ACKed its cordon. [`ControlPlane::next_change`] resolves when it changes.
    fn cordon_state(&self, id: ProxyId) -> Result<CordonResult, ApiError>;

    /// The versions of all proxies in use. Takes as long as listing them.
    fn versions(&self) -> VersionReport;

    /// All active findings of the mesh, also silenced ones. Takes as long as listing all proxies.
    fn findings(&self) -> FindingList;

    /// The stored silences, also those that have ended. Takes as long as listing all findings.
    fn silences(&self) -> SilenceList;

    /// Silences findings. May block on the store.
    fn silence(
        &self,
        principal: &Principal,
        request: &SilenceRequest,
    ) -> Result<SilenceView, ApiError>;

    /// Removes a silence. May block on the store.
    fn remove_silence(
        &self,
        principal: &Principal,
        id: &SilenceId,
    ) -> Result<SilenceView, ApiError>;
}

/// Writes an export.
pub type WriteExport = Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>;

/// Resolves at a change.
pub type NextChange = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Detects that the client no longer waits for its answer.
#[derive(Debug)]
pub struct Cancellation(pub(super) Weak<()>);

impl Cancellation {
    /// Whether the client no longer waits.
    pub fn is_cancelled(&self) -> bool {
        self.0.strong_count() == 0
    }
}
