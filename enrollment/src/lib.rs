//! The machines' API: how a machine obtains and renews the certificate of its proxy, and leaves the mesh; on port 15129.
//!
//! This crate owns both sides of the protocol: its JSON types, the client, the TLS server with all its limits,
//! the verification of the control plane by the hash of its CA, and the proof of possession by which a machine
//! renews an expired certificate. It never decides who may enroll, stores nothing and issues nothing: each
//! answer comes from the [`Enroller`] that is passed in.
//!
//! ```text
//! machine                               control plane
//! EnrollmentClient ──► TLS 1.3 ──► limits ──► checks of request and proof ──► Enroller
//!      verifies CA hash or roots,             (certificate request, client
//!      chain and SPIFFE ID first)              certificate, challenge)
//! ```
//!
//! | request | client certificate | proof |
//! |---|---|---|
//! | `POST /v1/enroll` | none | one-time token |
//! | `GET /v1/challenge`, then `POST /v1/enroll-azure` | none | document that Azure signed for the machine |
//! | `POST /v1/renew` | the current one | TLS |
//! | `POST /v1/service-certificates` | the current one | TLS |
//! | `POST /v1/leave`, `POST /v1/rejoin`, `POST /v1/serving`, `POST /v1/health`, `GET /v1/proxy` | the current one | TLS |
//! | `GET /v1/challenge`, then `POST /v1/renew-expired` | none | signature by the key of the expired certificate |
//!
//! Each connection serves one request. Start reading at [`EnrollRequest`], then [`serve`] or [`EnrollmentClient`].

mod api;
mod attestation;
mod ca_hash;
mod client;
mod possession;
mod server;
#[cfg(test)]
mod tests;

pub use api::{
    ApplicationProbe, AzureEnrollRequest, Challenge, DrainOrder, DrainReport, EnrollRequest,
    Enrolled, EnrollmentErrorCode, ExpiredRenewalRequest, HealthAnswer, HealthReport,
    IssuedServiceCertificate, LeaveRequest, LeaveResult, MAX_BODY, MAX_NAMED_LAGGARDS, MAX_REASON,
    MAX_REPORTED_APPLICATIONS, MAX_REPORTED_BUCKETS, MAX_REPORTED_COUNT, MAX_REPORTED_FLOWS,
    ProxyStatus, ProxySync, RenewRequest, ReportedApplication, ReportedFlow, ReportedTraffic,
    ServiceCertificateRequest, ServingAnswer, ServingReport, TrafficReport,
};
pub use attestation::attestation_nonce;
pub use ca_hash::{CaHash, CaHashError};
pub use client::{
    AzureJoin, ControlPlaneAddress, EnrollmentClient, EnrollmentClientError, ImdsError,
    InvalidAddress, MachineIdentity, MetadataService, NoMetadataService, RetryNotice, ServerTrust,
    UntrustedServer,
};
pub use possession::UnusableKey;
pub use server::{
    AzureAnswer, AzureEnrollment, ConnectionLoss, Enroller, Enrollment, EnrollmentCounters,
    EnrollmentCredentials, EnrollmentError, EnrollmentLimits, Leave, LeaveWait, MachineLookUp,
    ProxyRenewal, RequestOutcome, WorkloadRequest, serve,
};
