//! The interface that decides about machines, and the errors of its answers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use ironmesh_catalog::{ProxyName, Secret, ServiceSecret};
use ironmesh_cert::MachineRequest;
use ironmesh_cert::peer::VerifiedProxy;
use tokio::time::Instant;

use crate::api::{
    Enrolled, EnrollmentErrorCode, HealthAnswer, HealthReport, IssuedServiceCertificate,
    LeaveResult, ProxyStatus, ServingAnswer, ServingReport,
};

/// Decides who is enrolled and renewed, and issues the certificates.
///
/// All methods may block. `peer` is the address from which the request comes.
pub trait Enroller: Send + Sync + 'static {
    /// Enrolls a machine by its token.
    ///
    /// Unknown, expired and used tokens are the same error. The same token with the same public key within five
    /// minutes must yield the same certificate, because a client repeats a request whose response was lost.
    fn enroll(&self, enrollment: Enrollment, peer: SocketAddr)
    -> Result<Enrolled, EnrollmentError>;

    /// Enrolls a machine by an attested document of Azure, or asks for one look-up of the machine first.
    ///
    /// It verifies the document for the nonce of the enrollment. The identity comes from the machine that the
    /// provider shows, never from the request. The same public key within five minutes must yield the same
    /// certificate.
    fn enroll_azure(
        &self,
        enrollment: &AzureEnrollment,
        peer: SocketAddr,
    ) -> Result<AzureAnswer, EnrollmentError>;

    /// Renews the certificate of a proxy that has presented a valid one.
    ///
    /// It decides about revocation, and about a request for another key than the current one.
    fn renew(&self, renewal: ProxyRenewal, peer: SocketAddr) -> Result<Enrolled, EnrollmentError>;

    /// Renews the certificate of a proxy that has proved to hold the key of an expired one. The request is for that
    /// key.
    ///
    /// It decides about revocation, and about how long ago the certificate may have expired.
    fn renew_expired(
        &self,
        renewal: ProxyRenewal,
        peer: SocketAddr,
    ) -> Result<Enrolled, EnrollmentError>;

    /// Issues a service certificate to a proxy, for a key of its machine.
    ///
    /// It decides about revocation, and determines the account by the secret and the services of the proxy.
    fn issue_service_certificate(
        &self,
        request: WorkloadRequest,
        peer: SocketAddr,
    ) -> Result<IssuedServiceCertificate, EnrollmentError>;

    /// Marks a proxy as leaving. A repeated call changes nothing, except that the mark lasts longer.
    fn leave(&self, proxy: &VerifiedProxy, peer: SocketAddr) -> Result<Leave, EnrollmentError>;

    /// Revokes a proxy that has left, at its own request.
    fn revoke_left(&self, proxy: &VerifiedProxy, peer: SocketAddr) -> Result<(), EnrollmentError>;

    /// Ends the leave of a proxy, if it leaves.
    fn rejoin(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
    ) -> Result<ProxyStatus, EnrollmentError>;

    /// Records which ports of a proxy accept callers, in place of its earlier report.
    fn record_serving(
        &self,
        proxy: &VerifiedProxy,
        report: ServingReport,
        peer: SocketAddr,
    ) -> Result<ServingAnswer, EnrollmentError>;

    /// Records the health of the applications of a proxy, in place of its earlier report.
    ///
    /// It decides which applications the proxy may report about, and how often.
    fn record_health(
        &self,
        proxy: &VerifiedProxy,
        report: HealthReport,
        peer: SocketAddr,
    ) -> Result<HealthAnswer, EnrollmentError>;

    /// The state of a proxy.
    fn proxy_status(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
    ) -> Result<ProxyStatus, EnrollmentError>;
}

/// A leave that has begun: the result for a client that does not wait, and for one that does.
pub struct Leave {
    /// The result at once.
    pub now: LeaveResult,
    /// The result when the callers have ACKed the leave, or the wait is over. It needs no thread.
    pub wait: LeaveWait,
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leave").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The wait for the callers of a proxy that leaves.
pub type LeaveWait = Pin<Box<dyn Future<Output = LeaveResult> + Send>>;

/// A machine that asks to be enrolled. Its request is checked, its token is not.
#[derive(Debug, Clone)]
pub struct Enrollment {
    /// The token.
    pub token: Secret,
    /// The certificate request.
    pub request: MachineRequest,
    /// The address to which callers connect, if the machine states one.
    pub address: Option<IpAddr>,
    /// The name for display, if the machine states one.
    pub name: Option<ProxyName>,
}

/// A machine that asks to be enrolled by an attested document. Its request is checked, its document is not.
#[derive(Debug, Clone)]
pub struct AzureEnrollment {
    /// The nonce for which Azure must have signed the document: bound to a challenge, which is used up, and to the key
    /// of the request.
    pub nonce: String,
    /// The document.
    pub document: String,
    /// The certificate request.
    pub request: MachineRequest,
    /// The address to which callers connect, if the machine states one.
    pub address: Option<IpAddr>,
    /// The name for display, if the machine states one.
    pub name: Option<ProxyName>,
    /// When the request arrived.
    pub received_at: Instant,
    /// Whether the look-up that an earlier answer asked for was made.
    pub is_looked_up: bool,
}

/// The answer to an [`AzureEnrollment`].
pub enum AzureAnswer {
    /// The machine is enrolled.
    Enrolled(Box<Enrolled>),
    /// The machine must be looked up first: await this, and ask again.
    LookUp(MachineLookUp),
}

impl fmt::Debug for AzureAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enrolled(enrolled) => f.debug_tuple("Enrolled").field(enrolled).finish(),
            Self::LookUp(_) => f.write_str("LookUp"),
        }
    }
}

/// The look-up of a machine in Azure. It needs no thread.
pub type MachineLookUp = Pin<Box<dyn Future<Output = Result<(), EnrollmentError>> + Send>>;

/// A proxy that asks for a new certificate.
#[derive(Debug, Clone)]
pub struct ProxyRenewal {
    /// The proxy and its present certificate, which are verified.
    pub proxy: VerifiedProxy,
    /// The certificate request.
    pub request: MachineRequest,
}

/// A proxy that asks for a service certificate.
#[derive(Debug, Clone)]
pub struct WorkloadRequest {
    /// The proxy and its present certificate, which are verified.
    pub proxy: VerifiedProxy,
    /// The secret for which Envoy needs the certificate.
    pub secret: ServiceSecret,
    /// The certificate request, which is for another key than that of the proxy.
    pub request: MachineRequest,
}

/// The error of a request to the machines' API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnrollmentError {
    /// The token is unknown, expired or used. It has no further text, so that all three look the same.
    #[error(
        "token is unknown, expired or already used: create a new one with `ironmesh proxy token`"
    )]
    TokenRejected,
    /// The address is not allowed.
    #[error("{0}")]
    AddressRejected(String),
    /// The request is invalid.
    #[error("{0}")]
    RequestInvalid(String),
    /// The certificate or the proof of possession is missing or does not verify.
    #[error("{0}")]
    CertificateRejected(String),
    /// The nonce is unknown, expired or used.
    #[error(
        "challenge is unknown, expired or already used: request a new one at /v1/challenge from the same replica"
    )]
    ChallengeRejected,
    /// The attested document does not verify, or none is accepted.
    #[error("{0}")]
    AttestationRejected(String),
    /// The attested machine may not join.
    #[error("{0}")]
    MachineRejected(String),
    /// The proxy is revoked.
    #[error("{0}")]
    Revoked(String),
    /// Too many requests.
    #[error("{0}")]
    Busy(String),
    /// The control plane cannot answer now.
    #[error("{0}")]
    Unavailable(String),
}

impl EnrollmentError {
    /// The code in the response.
    pub fn code(&self) -> EnrollmentErrorCode {
        match self {
            Self::TokenRejected => EnrollmentErrorCode::TokenRejected,
            Self::AddressRejected(_) => EnrollmentErrorCode::AddressRejected,
            Self::RequestInvalid(_) => EnrollmentErrorCode::RequestInvalid,
            Self::CertificateRejected(_) => EnrollmentErrorCode::CertificateRejected,
            Self::ChallengeRejected => EnrollmentErrorCode::ChallengeRejected,
            Self::AttestationRejected(_) => EnrollmentErrorCode::AttestationRejected,
            Self::MachineRejected(_) => EnrollmentErrorCode::MachineRejected,
            Self::Revoked(_) => EnrollmentErrorCode::Revoked,
            Self::Busy(_) => EnrollmentErrorCode::Busy,
            Self::Unavailable(_) => EnrollmentErrorCode::Unavailable,
        }
    }
}
