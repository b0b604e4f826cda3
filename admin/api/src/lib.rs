//! The JSON types of the admin API.
//!
//! It owns the answers and requests of `/v1`, for the server, the client and the texts of commands. It has no IO.

mod access;
mod audit;
mod certificates;
mod configuration;
mod convergence;
mod cordons;
mod endpoints;
mod enrollment;
mod events;
mod join_record;
mod journal;
mod log_level;
mod logins;
mod operators;
mod plan;
mod proxies;
mod proxy_detail;
mod readiness;
mod releases;
mod removals;
mod revocation;
mod services;
mod silences;
mod tokens;
mod traffic;
mod versions;

pub use access::{
    AccessExtent, AccessPage, AccessQuery, CallerView, CallersView, MAX_ACCESS_PAGE,
    MAX_CALLER_RULES, MAX_PAGE_CALLERS, MAX_PORT_CALLERS, PortAccessView,
};
pub use audit::{AuditView, DeniedRequest, DeniedView, OthersView};
pub use certificates::{
    CertificateKind, CertificateKindSummary, CertificateList, CertificateProblem,
    CertificateRenewer, CertificateSummary, CertificateUse, CertificateView,
};
pub use configuration::{
    DocumentsQuery, MAX_PROVIDER_SERVICES, PolicyDocument, PolicyDocuments, ProviderList,
    ProviderReportView, ProviderStatus, SettingView, SettingsView, UnreportedService,
};
pub use convergence::{
    ConvergenceView, LaggardView, MAX_LAGGARDS, MAX_WAIT, SyncState, WaitAnswer, WaitOutcome,
    WaitRequest,
};
pub use cordons::{
    CordonChange, CordonRequest, CordonResult, CordonView, MAX_CORDON_LAGGARDS, MachineKind,
};
pub use endpoints::{
    AcceptedEndpoints, ConflictView, EndpointList, EndpointRow, HeldView, ProblemView,
    ProviderView, ProxyWithoutEndpoint, ReportedHealth, ServiceEndpoints, SourceView, StaleView,
};
pub use enrollment::{
    BootstrapRequest, BootstrapResponse, EnrolledProxy, EnrollmentRequest, MAX_ENROLLMENTS,
    MAX_KNOWN_AS,
};
pub use events::{
    ChangedProxies, EVENTS_PATH, EventId, EventKind, EventsQuery, FindingChange, FindingsEvent,
    LaggedEvent, MAX_EVENT_OBJECTS, MAX_EVENT_READERS, PolicyEvent, ProviderChange, ProvidersEvent,
    ProxiesEvent, ReadinessEvent, ReceivedEvent, ResetEvent,
};
pub use join_record::{JoinRecordView, RevocationView, VersionsView};
pub use journal::{JournalPage, MAX_JOURNAL_PAGE};
pub use log_level::{DEFAULT_LOG_LEVEL_TIME, LogLevelRequest, LogLevelView, MAX_LOG_LEVEL_TIME};
pub use logins::{LinkRequest, LoginLink, LoginRequest, SessionList, SessionView};
pub use operators::{
    CredentialRequest, CredentialView, IssuedCredential, MAX_CREDENTIAL_LIFETIME, MAX_OPERATORS,
    OperatorList, OperatorView, RevokeOperatorRequest,
};
pub use plan::{
    FieldChange, MAX_PLAN, Plan, PlanRequest, PlannedProxy, ProxyGroup, ResourceChange,
};
pub use proxies::{
    MAX_PROXY_PAGE, NackView, OriginView, ProxyFilter, ProxyPage, ProxyQuery, ProxyView, SyncView,
};
pub use proxy_detail::{
    ApplicationView, EndpointView, ExchangeView, NackedVersion, NodeView, ProxyConfig, ProxyDetail,
    ResourceView, UpstreamView,
};
pub use readiness::{
    ErrorBody, FindingView, HandshakesView, PeerControlPlane, PlaceView, PolicyView, Readiness,
    RejectedAddress, RejectedHandshake, RelatedView, RevisionList, RevisionView, RollbackRequest,
    RolledBack,
};
pub use releases::{Applied, ApplyRequest, MAX_APPLY, apply_too_large};
pub use removals::{AcceptRemovalRequest, AcceptedRemoval, HeldRemoval};
pub use revocation::{
    MAX_REASON, MAX_REVOCATIONS, ReachView, RevokeRequest, Revoked, RevokedProxies,
};
pub use services::{
    EndpointCounts, MAX_SERVICE_PAGE, PortView, ServiceDetail, ServicePage, ServicePortDetail,
    ServiceQuery, ServiceView,
};
pub use silences::{FindingList, SilenceList, SilenceRequest, SilenceView, SilencedView};
pub use tokens::{
    ChangedServices, CreatedToken, CreatedTokens, MAX_TOKEN_TTL, MAX_TOKENS, RevokeTokenRequest,
    ServicesRequest, TokenList, TokenMisuseView, TokenRequest, TokenUseView, TokenView,
};
pub use traffic::{TrafficDirection, TrafficReporter, TrafficRow, TrafficView};
pub use versions::{ComponentVersions, MAX_OUTDATED, OutdatedProxy, VersionCount, VersionReport};
