//! The admin API of a running control plane: server and client.
//!
//! Two listeners serve it. The Unix socket `<state>/admin.sock` (mode 0600) may issue and change. The TCP listener, for
//! people, probes and dashboards, may only read, because it requires no credentials. This crate owns the JSON types of
//! both sides. It keeps no state: all answers come from the [`ControlPlane`] that is passed in.

mod api;
mod audit;
mod certificates;
mod client;
mod convergence;
mod endpoints;
mod enrollment;
mod join_record;
mod journal;
mod plan;
mod proxies;
mod proxy_detail;
mod releases;
mod removals;
mod revocation;
mod server;
mod socket_path;
mod tokens;
mod traffic;

pub use api::{
    FindingView, HandshakesView, PeerControlPlane, PlaceView, PolicyView, Readiness,
    RejectedAddress, RejectedHandshake, RelatedView, RevisionList, RevisionView, RollbackRequest,
    RolledBack,
};
pub use audit::{AuditView, DeniedRequest, DeniedView, OthersView};
pub use certificates::{
    CertificateKind, CertificateKindSummary, CertificateList, CertificateProblem,
    CertificateRenewer, CertificateSummary, CertificateUse, CertificateView,
};
pub use client::{Client, ClientError};
pub use convergence::{
    ConvergenceView, LaggardView, MAX_LAGGARDS, MAX_WAIT, SyncState, WaitAnswer, WaitOutcome,
    WaitRequest,
};
pub use endpoints::{
    AcceptedEndpoints, ConflictView, EndpointList, EndpointRow, HeldView, ProblemView,
    ProviderView, ProxyWithoutEndpoint, ReportedHealth, ServiceEndpoints, SourceView, StaleView,
};
pub use enrollment::{
    BootstrapRequest, BootstrapResponse, EnrolledProxy, EnrollmentRequest, MAX_ENROLLMENTS,
    MAX_KNOWN_AS,
};
pub use join_record::{JoinRecordView, RevocationView};
pub use journal::{JournalPage, MAX_JOURNAL_PAGE, Operator};
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
pub use releases::{Applied, ApplyRequest, MAX_APPLY};
pub use removals::{AcceptRemovalRequest, AcceptedRemoval, HeldRemoval};
pub use revocation::{
    MAX_REASON, MAX_REVOCATIONS, ReachView, RevokeRequest, Revoked, RevokedProxies,
};
pub use server::{
    ApiError, BindError, Cancellation, ControlPlane, NextChange, WriteExport, bind_socket,
    serve_reads, serve_socket,
};
pub use socket_path::{SocketPathTooLong, check_socket_path};
pub use tokens::{
    ChangedServices, CreatedToken, CreatedTokens, MAX_TOKEN_TTL, MAX_TOKENS, RevokeTokenRequest,
    ServicesRequest, TokenList, TokenMisuseView, TokenRequest, TokenUseView, TokenView,
};
pub use traffic::{TrafficDirection, TrafficReporter, TrafficRow, TrafficView};
