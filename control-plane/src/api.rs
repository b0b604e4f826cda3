//! The admin API's view of the running control plane. It keeps no state of its own.

mod access;
mod certificates;
mod configuration;
mod convergence;
mod cordons;
mod endpoints;
mod enrollment;
mod events;
mod findings;
mod log_level;
mod logins;
mod mesh_reads;
mod metrics;
mod operators;
mod page_query;
mod plan;
mod proxies;
mod proxy_list;
mod readiness;
mod revocation;
mod services;
mod tokens;
mod traffic;

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_admin::{
    ApiError, Cancellation, ConnectionLosses, ControlPlane, NextChange, Principal, WriteExport,
};
use ironmesh_analysis::verdict::{
    EgressQuestion, EgressVerdict, IngressQuestion, IngressVerdict, Question, Verdict,
    VerdictBasis, egress_verdict, ingress_verdict, verdict,
};
use ironmesh_api::{
    AcceptRemovalRequest, AcceptedEndpoints, AcceptedRemoval, Applied, ApplyRequest, AuditView,
    BootstrapRequest, BootstrapResponse, CertificateList, ChangedServices, ConvergenceView,
    CordonChange, CordonRequest, CordonResult, CreatedTokens, EndpointList, FindingList,
    FindingView, JournalPage, MAX_REASON, Plan, PlanRequest, PolicyView, ProxyConfig, ProxyDetail,
    ProxyPage, ProxyQuery, Readiness, RevisionList, RevisionView, RevokeRequest,
    RevokeTokenRequest, RevokedProxies, RollbackRequest, RolledBack, ServicesRequest, SilenceList,
    SilenceRequest, SilenceView, TokenList, TokenRequest, TokenView, TrafficView, VersionReport,
    WaitAnswer, WaitRequest,
};
use ironmesh_catalog::{
    DriverName, Finding, JournalKind, JournalQuery, Mesh, PolicyRecord, PolicyRevision, ProxyId,
    ServiceName, SilenceId, TokenId,
};
use ironmesh_cert::Authority;
use ironmesh_config_language::{Document, revision_of};
use ironmesh_enrollment::EnrollmentCounters;
use ironmesh_store::Store;
use ironmesh_xds_server::Hub;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::audit::Audit;
use super::change_traces::ChangeTraces;
use super::enrollment::{Alarms, TokenTable, XdsAddresses};
use super::events::Events;
use super::health_discovery::HealthDiscovery;
use super::journal::{self, CertificateHolder, Journal};
use super::leave_table::LeaveTable;
use super::log_level::LogLevel;
use super::logins::Logins;
use super::operators::Operators;
use super::peers::Peers;
use super::policy_source::{PolicyState, Releases, SourceRequests};
use super::reconciler::{Acceptances, StatusFeeds};
use super::register::Register;
use super::sidecars::SidecarServers;
use super::silences::SilenceTable;
use super::traffic_table::TrafficTable;
use super::transfer::Exporter;
use super::versions;
pub(crate) use configuration::ActiveSettings;
use ironmesh_catalog::text::chain;
pub(crate) use plan::Planning;
pub(crate) use proxy_list::natural_key;

/// The running control plane, as the admin API serves it.
#[derive(Debug)]
pub(crate) struct RunningControlPlane {
    pub(crate) mesh: Mesh,
    pub(crate) authority: Arc<Mutex<Authority>>,
    pub(crate) register: Arc<Register>,
    pub(crate) leaves: Arc<LeaveTable>,
    pub(crate) policy: watch::Receiver<PolicyState>,
    pub(crate) source_requests: SourceRequests,
    /// The releases, if policy comes from them.
    pub(crate) releases: Option<Releases>,
    pub(crate) acceptances: Acceptances,
    pub(crate) peers: Arc<Peers>,
    pub(crate) store: Arc<Store>,
    pub(crate) exporter: Exporter,
    pub(crate) feeds: StatusFeeds,
    /// The findings about the control plane's own state.
    pub(crate) state_findings: watch::Receiver<Vec<Finding>>,
    /// Since when the local store cannot be written.
    pub(crate) local_outage: watch::Receiver<Option<Timestamp>>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) traffic: Arc<TrafficTable>,
    pub(crate) journal: Journal,
    pub(crate) events: Arc<Events>,
    pub(crate) silences: Arc<SilenceTable>,
    pub(crate) log_level: Arc<LogLevel>,
    /// The traces of changes, if they are exported.
    pub(crate) traces: Option<Arc<ChangeTraces>>,
    pub(crate) xds_addresses: XdsAddresses,
    /// The address of the enrollment listener.
    pub(crate) enrollment_address: SocketAddr,
    /// The address of the API for operators on the network, if it is on.
    pub(crate) api_address: Option<SocketAddr>,
    pub(crate) operators: Arc<Operators>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) tokens: Arc<TokenTable>,
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) enrollment_counters: Arc<EnrollmentCounters>,
    /// The lost connections of operators on the network.
    pub(crate) api_losses: Arc<ConnectionLosses>,
    pub(crate) health_discovery: Arc<HealthDiscovery>,
    /// The servers of sidecars.
    pub(crate) sidecars: SidecarServers,
    /// The sidecar driver of proxies whose enrollment chooses none.
    pub(crate) sidecar_class: DriverName,
    pub(crate) planning: Planning,
    pub(crate) settings: ActiveSettings,
    /// The findings about risks that the settings accept.
    pub(crate) risk_findings: Vec<FindingView>,
}

impl ControlPlane for RunningControlPlane {
    fn readiness(&self) -> Readiness {
        self.readiness_view()
    }

    fn liveness(&self) -> Result<(), ApiError> {
        match self.sidecars.dead().as_slice() {
            [] => Ok(()),
            dead => {
                let dead = dead.join(", ");
                Err(ApiError::Internal(format!("these sidecars are no longer served: {dead}")))
            }
        }
    }

    fn debug(&self, name: &str) -> Result<serde_json::Value, ApiError> {
        self.sidecars.debug(name).map_err(|names| {
            ApiError::NotFound(format!("no debug handler `{name}`; there is: {}", names.join(", ")))
        })
    }

    fn proxies(&self, query: &ProxyQuery) -> Result<ProxyPage, ApiError> {
        self.proxy_page(query)
    }

    fn proxy(&self, id: &str) -> Result<ProxyDetail, ApiError> {
        self.find(id).map(|record| self.detail(&record))
    }

    fn proxy_config(&self, id: &str) -> Result<ProxyConfig, ApiError> {
        self.find(id).map(|record| self.config(record.id))
    }

    fn certificates(&self) -> CertificateList {
        self.certificate_list()
    }

    fn revoke(
        &self,
        principal: &Principal,
        request: &RevokeRequest,
    ) -> Result<RevokedProxies, ApiError> {
        let result = self.revoke_proxies(request);
        if request.dry_run {
            return result;
        }
        let mut entries = journal::revocations(principal, request, result.as_ref(), &self.register);
        let last = entries.pop();
        for entry in entries {
            self.journal.record(entry);
        }
        if let Some(last) = last {
            self.journal.record_and_wait(last);
        }
        result
    }

    fn endpoints(&self, service: Option<&ServiceName>) -> Result<EndpointList, ApiError> {
        self.endpoint_list(service)
    }

    fn accept_endpoints(
        &self,
        principal: &Principal,
        service: &ServiceName,
    ) -> Result<AcceptedEndpoints, ApiError> {
        let result = self.accept(service);
        let entry = journal::held_endpoints(principal, service, result.as_ref());
        self.journal.record_and_wait(entry);
        result
    }

    fn explain(&self, question: &Question) -> Result<Verdict, ApiError> {
        self.answer_question(|newest| verdict(newest, question, VerdictBasis::Mesh))
    }

    fn explain_outward(&self, question: &EgressQuestion) -> Result<EgressVerdict, ApiError> {
        self.answer_question(|newest| egress_verdict(newest, question))
    }

    fn explain_inward(&self, question: &IngressQuestion) -> Result<IngressVerdict, ApiError> {
        self.answer_question(|newest| ingress_verdict(newest, question))
    }

    fn plan(&self, request: &PlanRequest, cancellation: &Cancellation) -> Result<Plan, ApiError> {
        self.make_plan(request, cancellation)
    }

    fn policy_revisions(&self) -> Result<RevisionList, ApiError> {
        let mut kept = match &self.releases {
            Some(releases) => releases.records().map_err(|e| ApiError::Internal(chain(&e)))?,
            None => self.store.policies().map_err(|error| ApiError::Internal(chain(&error)))?,
        };
        let PolicyView { active_record, rolled_back, .. } = self.policy.borrow().view.clone();
        if let Some(active_record) = &active_record
            && self.releases.is_none()
            && kept.iter().all(|record| record.revision != active_record.revision)
        {
            // It became active a moment ago, and will be stored.
            kept.insert(0, active_record.clone());
        }
        let current = active_record.map(|record| record.revision);
        let view = |record: PolicyRecord| {
            let current = current.as_ref() == Some(&record.revision);
            RevisionView { record, current }
        };
        Ok(RevisionList { revisions: kept.into_iter().map(view).collect(), rolled_back })
    }

    fn roll_back(
        &self,
        principal: &Principal,
        request: RollbackRequest,
    ) -> Result<RolledBack, ApiError> {
        let by = journal::author(principal, request.by);
        let request = RollbackRequest { by, ..request };
        let (revision, message) = (request.revision.clone(), request.message.clone());
        let checked = check_lines(&[&request.message, &request.by]);
        let before = self.inactive_policy();
        let result = checked.and_then(|()| self.source_requests.roll_back(request));
        // A rollback to the active revision may end a hold, or keep the folder's policy from becoming active.
        let is_old = result.as_ref().is_ok_and(|done| done.is_old);
        if is_old && self.inactive_policy() == before {
            return result;
        }
        self.journal.record_and_wait(journal::policy_change(
            principal,
            JournalKind::Rollback,
            Some(&revision),
            message.as_deref(),
            result.as_ref().map(|done| &done.policy),
        ));
        result
    }

    fn accept_removal(
        &self,
        principal: &Principal,
        request: AcceptRemovalRequest,
    ) -> Result<AcceptedRemoval, ApiError> {
        let by = journal::author(principal, request.by);
        let request = AcceptRemovalRequest { by, ..request };
        let revision = request.revision.clone();
        let checked = check_lines(&[&request.by]);
        let result = checked.and_then(|()| self.source_requests.accept(request));
        let removals = result.as_ref().map(|done| format!("removes {}", done.removals)).ok();
        self.journal.record_and_wait(journal::policy_change(
            principal,
            JournalKind::Accept,
            revision.as_deref(),
            removals.as_deref(),
            result.as_ref().map(|done| &done.policy),
        ));
        result
    }

    fn apply(&self, principal: &Principal, request: ApplyRequest) -> Result<Applied, ApiError> {
        let by = journal::author(principal, request.by);
        let request = ApplyRequest { by, ..request };
        let (revision, message) = (revision_in(&request), request.message.clone());
        let checked = check_lines(&[&request.message, &request.by, &request.commit]);
        let result = checked.and_then(|()| self.source_requests.apply(request));
        if result.as_ref().is_ok_and(|done| done.is_old) {
            return result;
        }
        self.journal.record_and_wait(journal::policy_change(
            principal,
            JournalKind::Apply,
            Some(&revision.0),
            message.as_deref(),
            result.as_ref().map(|done| &done.policy),
        ));
        result
    }

    fn convergence(&self) -> ConvergenceView {
        self.convergence_view()
    }

    fn policy_wait(&self, request: &WaitRequest) -> Result<WaitAnswer, ApiError> {
        self.wait_answer(request)
    }

    fn next_change(&self) -> NextChange {
        let mut convergence = self.feeds.convergence.clone();
        let mut disconnected = self.feeds.disconnected.clone();
        let mut ready = self.feeds.ready.clone();
        let mut peers = self.peers.changes();
        convergence.mark_unchanged();
        disconnected.mark_unchanged();
        ready.mark_unchanged();
        // (Where a sender has gone, the control plane stops.)
        Box::pin(async move {
            tokio::select! {
                _ = convergence.changed() => {}
                _ = disconnected.changed() => {}
                _ = ready.changed() => {}
                _ = peers.changed() => {}
            }
        })
    }

    fn audit(&self) -> AuditView {
        self.audit.view_with(self.peers.audit())
    }

    fn traffic(&self, service: Option<&ServiceName>) -> Result<TrafficView, ApiError> {
        self.traffic_view(service)
    }

    fn metrics(&self) -> String {
        self.exposition()
    }

    fn bootstrap(
        &self,
        principal: &Principal,
        request: &BootstrapRequest,
    ) -> Result<BootstrapResponse, ApiError> {
        let result = self.enroll(request);
        let entry = journal::enrollment(principal, request, result.as_ref());
        if result.is_ok() {
            self.journal.record_issued(CertificateHolder::proxies(&request.services), entry.count);
        }
        self.journal.record_and_wait(entry);
        result
    }

    fn create_tokens(
        &self,
        principal: &Principal,
        request: &TokenRequest,
    ) -> Result<CreatedTokens, ApiError> {
        let result = self.new_tokens(request);
        let only = result.as_ref().ok().and_then(|created| match &created.tokens[..] {
            [only] => Some(&only.id),
            _ => None,
        });
        let (count, error) = (request.count, result.as_ref().err());
        let message = result.as_ref().ok().map(|created| {
            let expiry = created.expires_at;
            format!("expires {expiry:.0}")
        });
        let entry =
            journal::token_change(principal, &request.services, only, count, message, error);
        self.journal.record_and_wait(entry);
        result
    }

    fn tokens(&self) -> Result<TokenList, ApiError> {
        self.token_list()
    }

    fn export(&self, principal: &Principal) -> Result<WriteExport, ApiError> {
        self.exporter.export(principal, &self.journal)
    }

    fn revoke_token(
        &self,
        principal: &Principal,
        id: &TokenId,
        request: &RevokeTokenRequest,
    ) -> Result<TokenView, ApiError> {
        let result = self.withdraw_token(id, request);
        let services = result.as_ref().map(|token| &*token.services).unwrap_or_default();
        let message =
            format!("revoked: {}", request.reason.as_deref().unwrap_or("no reason given"));
        let error = result.as_ref().err();
        let entry = journal::token_change(principal, services, Some(id), 1, Some(message), error);
        self.journal.record_and_wait(entry);
        result
    }

    fn set_services(
        &self,
        principal: &Principal,
        id: &str,
        request: &ServicesRequest,
    ) -> Result<ChangedServices, ApiError> {
        let result = self.change_services(id, request);
        let record = result.as_ref().ok().and_then(|changed| self.register.get(changed.id));
        let outcome = match (&result, record.as_deref()) {
            (Err(error), _) => Err(error),
            (Ok(_), Some(record)) => Ok(record),
            (Ok(_), None) => return result,
        };
        let entry = journal::services_change(principal, id, &request.services, outcome);
        self.journal.record_and_wait(entry);
        result
    }

    fn journal(&self, query: &JournalQuery) -> Result<JournalPage, ApiError> {
        self.journal.page(query)
    }

    fn change_cordon(
        &self,
        principal: &Principal,
        id: &str,
        change: CordonChange,
        request: &CordonRequest,
    ) -> Result<CordonResult, ApiError> {
        self.set_cordon(principal, id, change, request)
    }

    fn cordon_state(&self, id: ProxyId) -> Result<CordonResult, ApiError> {
        self.state_of_cordon(id)
    }

    fn versions(&self) -> VersionReport {
        versions::report(&self.register.records())
    }

    fn findings(&self) -> FindingList {
        self.finding_list()
    }

    fn silences(&self) -> SilenceList {
        self.silence_list()
    }

    fn silence(
        &self,
        principal: &Principal,
        request: &SilenceRequest,
    ) -> Result<SilenceView, ApiError> {
        self.set_silence(principal, request)
    }

    fn remove_silence(
        &self,
        principal: &Principal,
        id: &SilenceId,
    ) -> Result<SilenceView, ApiError> {
        self.end_silence(principal, id)
    }
}

/// The wall-clock time of an instant in the past.
fn wall_time(at: Instant) -> Timestamp {
    let age = SignedDuration::try_from(at.elapsed()).unwrap_or(SignedDuration::MAX);
    Timestamp::now().saturating_sub(age).unwrap_or(Timestamp::MIN)
}

/// Rejects facts about a revision that do not fit into a line of a list.
fn check_lines(texts: &[&Option<String>]) -> Result<(), ApiError> {
    let is_line = |text: &String| text.len() <= MAX_REASON && !text.contains(char::is_control);
    if texts.iter().copied().flatten().all(is_line) {
        return Ok(());
    }
    let words = format!("a message and a name must each be one line of at most {MAX_REASON} bytes");
    Err(ApiError::BadRequest(words))
}

/// The revision of the documents of a request.
fn revision_in(request: &ApplyRequest) -> PolicyRevision {
    let documents = request.documents.iter();
    let mut documents: Vec<_> =
        documents.map(|(path, text)| Document::new(&**path, &**text)).collect();
    documents.sort();
    revision_of(&documents)
}

/// The revisions of the source that are not active: that of a held-back removal, and around a rollback the pinned and
/// the folder's one.
type InactivePolicy = (Option<String>, Option<(PolicyRevision, Option<PolicyRevision>)>);

impl RunningControlPlane {
    fn inactive_policy(&self) -> InactivePolicy {
        let state = self.policy.borrow();
        let held = state.view.held.as_ref().map(|held| held.revision.clone());
        let pin = state.view.rolled_back.as_ref();
        (held, pin.map(|pin| (pin.record.revision.clone(), pin.folder.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_of_a_request_does_not_depend_on_the_order() {
        let documents = [("b.toml", "# b"), ("a.toml", "# a")];
        let pairs = documents.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let request =
            ApplyRequest { documents: pairs.to_vec(), commit: None, by: None, message: None };
        let mut documents = documents.map(|(path, text)| Document::new(path, text));
        documents.sort();
        assert_eq!(revision_in(&request), revision_of(&documents));
    }
}
