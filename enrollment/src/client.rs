//! The client of the machines' API.
//!
//! It sends nothing before it has verified the control plane: hash of the CA or roots, chain, and SPIFFE ID. It
//! tries its addresses in order, and repeats a request until its time limit. Each repetition is safe: an enrollment
//! with the same token and key yields the same certificate for five minutes, a renewal or a service certificate only
//! yields a newer one, a leave is marked once, and the newest report counts.

mod address;
mod ca_hash_verifier;
mod error;
mod exchange;
mod imds;
mod trust;
mod untrusted;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ironmesh_catalog::backoff::Backoff;
use ironmesh_catalog::{ProxyName, Secret};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_cert::{MachineRequest, WorkloadLeaf};
use rustls::ClientConfig;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use crate::api::{
    AzureEnrollRequest, Challenge, EnrollRequest, Enrolled, ExpiredRenewalRequest, HealthAnswer,
    HealthReport, IssuedServiceCertificate, LeaveRequest, LeaveResult, ProxyStatus, RenewRequest,
    ServiceCertificateRequest, ServingAnswer, ServingReport,
};
use crate::attestation::attestation_nonce;
use crate::possession;
pub use address::{ControlPlaneAddress, InvalidAddress};
pub use error::EnrollmentClientError;
pub(crate) use exchange::Exchange;
pub use imds::{ImdsError, MetadataService, NoMetadataService};
pub use trust::ServerTrust;
pub use untrusted::UntrustedServer;

/// How long one request to one address may take.
const ATTEMPT: Duration = Duration::from_secs(15);

/// How long one leave at one address may take: the control plane waits up to 15 seconds for the callers.
const LEAVE_ATTEMPT: Duration = Duration::from_secs(25);

/// How long one enrollment by an attested document may take at one address: the control plane may look the machine up.
const LOOK_UP_ATTEMPT: Duration = Duration::from_secs(30);

/// How long the connection to one address may take, if there are others: an address that swallows packets must not use the
/// time of those that work.
const CONNECT: Duration = Duration::from_secs(4);

/// The default time limit of a call, with all its attempts.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// The longest time limit: less than the five minutes in which an enrollment may be repeated.
const MAX_LIMIT: Duration = Duration::from_secs(240);

/// The waits between rounds over all addresses.
const LEAST_WAIT: Duration = Duration::from_millis(500);
const MOST_WAIT: Duration = Duration::from_secs(8);

/// The report of a failed attempt that is repeated: why it failed, and for how long further ones follow.
pub type RetryNotice = fn(&EnrollmentClientError, Duration);

/// The current identity of a machine: its proxy's certificate and key.
#[derive(Debug, Clone)]
pub struct MachineIdentity {
    /// The certificate and its issuers, in PEM.
    pub certificate: String,
    /// The private key (PKCS#8 in PEM).
    pub key: Secret,
}

/// A client of the machines' API of one control plane, which may have several replicas.
#[derive(Debug, Clone)]
pub struct EnrollmentClient {
    addresses: Vec<ControlPlaneAddress>,
    trust: ServerTrust,
    limit: Duration,
    has_retries: bool,
    retry_notice: RetryNotice,
}

/// What a machine asks of the control plane when Azure attests it.
#[derive(Debug, Clone)]
pub struct AzureJoin {
    /// The metadata service that attests the machine.
    pub metadata: MetadataService,
    /// The certificate signing request, in PEM.
    pub certificate_request: String,
    /// The address to which callers connect, if the machine states one.
    pub address: Option<IpAddr>,
    /// The name of the proxy, for display, if the machine states one.
    pub name: Option<ProxyName>,
}

/// A request, and what it needs.
#[derive(Clone, Copy)]
enum Call<'a> {
    Enroll(&'a EnrollRequest),
    EnrollAzure(&'a AzureJoin),
    Renew(&'a RenewRequest),
    RenewExpired { identity: &'a MachineIdentity, certificate_request: &'a str },
    ServiceCertificate(&'a ServiceCertificateRequest),
    Serving(&'a ServingReport),
    Health(&'a HealthReport),
    Leave(LeaveRequest),
    Rejoin,
    ProxyStatus,
}

impl EnrollmentClient {
    /// A client of the control plane at `addresses`, at least one, in order of preference.
    pub fn new(
        addresses: Vec<ControlPlaneAddress>,
        trust: ServerTrust,
    ) -> Result<Self, EnrollmentClientError> {
        if addresses.is_empty() {
            return Err(EnrollmentClientError::NoAddress);
        }
        Ok(Self {
            addresses,
            trust,
            limit: DEFAULT_LIMIT,
            has_retries: true,
            retry_notice: |_, _| {},
        })
    }

    /// The same client with another time limit for each call: 60 seconds by default, four minutes at most.
    #[must_use]
    pub fn with_time_limit(self, limit: Duration) -> Self {
        Self { limit: limit.min(MAX_LIMIT), ..self }
    }

    /// The same client, which tries each address only once in a call.
    #[must_use]
    pub fn without_retries(self) -> Self {
        Self { has_retries: false, ..self }
    }

    /// The same client, which reports the first failed attempt of each call if others follow.
    #[must_use]
    pub fn with_retry_notice(self, retry_notice: RetryNotice) -> Self {
        Self { retry_notice, ..self }
    }

    /// Enrolls the machine.
    pub async fn enroll(&self, request: &EnrollRequest) -> Result<Enrolled, EnrollmentClientError> {
        let tls = self.trust.client_config(None)?;
        self.issue(&tls, Call::Enroll(request), &request.certificate_request).await
    }

    /// Enrolls the machine by an attested document of Azure, which each attempt requests anew.
    pub async fn enroll_azure(&self, join: &AzureJoin) -> Result<Enrolled, EnrollmentClientError> {
        let tls = self.trust.client_config(None)?;
        self.issue(&tls, Call::EnrollAzure(join), &join.certificate_request).await
    }

    /// Renews the certificate of `identity`, which must be valid.
    pub async fn renew(
        &self,
        identity: &MachineIdentity,
        request: &RenewRequest,
    ) -> Result<Enrolled, EnrollmentClientError> {
        let tls = self.trust.client_config(Some(identity))?;
        self.issue(&tls, Call::Renew(request), &request.certificate_request).await
    }

    /// Renews the certificate of `identity`, which may have expired, by proof of possession. The request must be
    /// for the same key.
    pub async fn renew_expired(
        &self,
        identity: &MachineIdentity,
        certificate_request: &str,
    ) -> Result<Enrolled, EnrollmentClientError> {
        let tls = self.trust.client_config(None)?;
        let call = Call::RenewExpired { identity, certificate_request };
        self.issue(&tls, call, certificate_request).await
    }

    /// Requests a service certificate for a key of this machine, as the proxy of `identity`. A repetition is safe: it only
    /// yields another certificate.
    ///
    /// # Errors
    ///
    /// Also fails if the certificate is not for the key of the request.
    pub async fn issue_service_certificate(
        &self,
        identity: &MachineIdentity,
        request: &ServiceCertificateRequest,
    ) -> Result<IssuedServiceCertificate, EnrollmentClientError> {
        let key = MachineRequest::parse(&request.csr)?;
        let tls = self.trust.client_config(Some(identity))?;
        let issued: IssuedServiceCertificate =
            self.call(&tls, Call::ServiceCertificate(request)).await?;
        match WorkloadLeaf::read(&issued.chain) {
            Some(leaf) if leaf.public_key == key.public_key() => Ok(issued),
            _ => Err(EnrollmentClientError::OtherKey),
        }
    }

    /// Reports which ports of the proxy of `identity` accept callers. A repetition is safe: the newest report counts.
    pub async fn report_serving(
        &self,
        identity: &MachineIdentity,
        report: &ServingReport,
    ) -> Result<ServingAnswer, EnrollmentClientError> {
        self.call(&self.trust.client_config(Some(identity))?, Call::Serving(report)).await
    }

    /// Reports the health of the applications of the proxy of `identity`. A repetition is safe: the newest report counts.
    pub async fn report_health(
        &self,
        identity: &MachineIdentity,
        report: &HealthReport,
    ) -> Result<HealthAnswer, EnrollmentClientError> {
        self.call(&self.trust.client_config(Some(identity))?, Call::Health(report)).await
    }

    /// Announces that the proxy of `identity` leaves the mesh, and waits up to 15 seconds until its callers have ACKed
    /// that. With `revoke` the control plane then revokes the proxy. A repetition is safe.
    ///
    /// The mark ends a minute after the last request if an Envoy is still connected, when a new Envoy connects, or by [`EnrollmentClient::rejoin`].
    pub async fn leave(
        &self,
        identity: &MachineIdentity,
        request: LeaveRequest,
    ) -> Result<LeaveResult, EnrollmentClientError> {
        self.call(&self.trust.client_config(Some(identity))?, Call::Leave(request)).await
    }

    /// Ends the leave of the proxy of `identity`, if it leaves: callers use it again.
    pub async fn rejoin(
        &self,
        identity: &MachineIdentity,
    ) -> Result<ProxyStatus, EnrollmentClientError> {
        self.call(&self.trust.client_config(Some(identity))?, Call::Rejoin).await
    }

    /// The state of the proxy of `identity`, as the control plane sees it.
    pub async fn proxy_status(
        &self,
        identity: &MachineIdentity,
    ) -> Result<ProxyStatus, EnrollmentClientError> {
        self.call(&self.trust.client_config(Some(identity))?, Call::ProxyStatus).await
    }

    /// Makes a call that yields a certificate for the key of the request.
    async fn issue(
        &self,
        tls: &Arc<ClientConfig>,
        call: Call<'_>,
        certificate_request: &str,
    ) -> Result<Enrolled, EnrollmentClientError> {
        let request = MachineRequest::parse(certificate_request)?;
        with_key(self.call(tls, call).await?, request.public_key())
    }

    /// Makes a call, at each address in order, until one succeeds, an error is final, or the time is over.
    async fn call<T: DeserializeOwned>(
        &self,
        tls: &Arc<ClientConfig>,
        call: Call<'_>,
    ) -> Result<T, EnrollmentClientError> {
        let end = Instant::now() + self.limit;
        let attempt_limit = if matches!(call, Call::Leave(_)) { LEAVE_ATTEMPT } else { ATTEMPT };
        let mut backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
        let (mut is_reported, mut sent) = (false, None);
        loop {
            let (mut failures, mut may_pass) = (Vec::new(), false);
            for address in &self.addresses {
                let deadline = end.min(Instant::now() + attempt_limit);
                let connect = if self.addresses.len() > 1 { CONNECT } else { attempt_limit };
                let connected = deadline.min(Instant::now() + connect);
                let error = match attempt(tls, address, call, connected, deadline).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) if error.is_final() => {
                        return Err(sent.filter(|_| !error.was_sent()).unwrap_or(error));
                    }
                    Err(error) => error,
                };
                // Waiting does not make another server trustworthy.
                may_pass |= !error.is_untrusted_server();
                if may_pass && self.has_retries && !is_reported {
                    is_reported = true;
                    (self.retry_notice)(&error, end.saturating_duration_since(Instant::now()));
                }
                // A request that may be in effect is not forgotten when the control plane goes away after it.
                if error.was_sent() {
                    sent = Some(error);
                } else {
                    failures.push(error);
                }
            }
            let wait = backoff.step();
            if !may_pass || !self.has_retries || Instant::now() + wait >= end {
                // Of several failures, the one that the operator must know is that of trust.
                let untrusted =
                    failures.iter().position(EnrollmentClientError::is_untrusted_server);
                let untrusted = untrusted.map(|index| failures.swap_remove(index));
                let shown = untrusted.or(sent).or_else(|| failures.into_iter().next());
                return Err(shown.unwrap_or(EnrollmentClientError::NoAddress));
            }
            sleep(wait).await;
        }
    }
}

/// One attempt at one address: the connection until `connected`, all of it until `deadline`.
async fn attempt<T: DeserializeOwned>(
    tls: &Arc<ClientConfig>,
    address: &ControlPlaneAddress,
    call: Call<'_>,
    connected: Instant,
    deadline: Instant,
) -> Result<T, EnrollmentClientError> {
    let open = async |until, peer| {
        let opened = timeout_at(until, Exchange::open(tls, address, peer)).await;
        opened.unwrap_or_else(|_| {
            let (address, source) = (address.clone(), io::ErrorKind::TimedOut.into());
            Err(EnrollmentClientError::Unreachable { address, source })
        })
    };
    let exchange = open(connected, None).await?;
    let peer = exchange.peer();
    let slow = || EnrollmentClientError::Slow { address: address.clone() };
    let post = Method::POST;
    let response = match call {
        Call::Enroll(request) => {
            timeout_at(deadline, exchange.send(post, "/v1/enroll", Some(request))).await
        }
        Call::EnrollAzure(join) => {
            let challenge = exchange.send::<(), Challenge>(Method::GET, "/v1/challenge", None);
            let challenge =
                timeout_at(deadline, challenge).await.unwrap_or_else(|_| Err(slow()))?.nonce;
            let key = MachineRequest::parse(&join.certificate_request)?;
            let nonce = attestation_nonce(&challenge, key.public_key());
            // It has time limits of its own. A document that comes too late meets an expired challenge.
            let document = join.metadata.attested_document(&nonce).await.map_err(Box::new)?;
            let request = AzureEnrollRequest {
                challenge,
                document,
                certificate_request: join.certificate_request.clone(),
                address: join.address,
                name: join.name.clone(),
            };
            let deadline = Instant::now() + LOOK_UP_ATTEMPT;
            let exchange = open(deadline, peer).await?;
            timeout_at(deadline, exchange.send(post, "/v1/enroll-azure", Some(&request))).await
        }
        Call::Renew(request) => {
            timeout_at(deadline, exchange.send(post, "/v1/renew", Some(request))).await
        }
        Call::ServiceCertificate(request) => {
            let sent = exchange.send(post, "/v1/service-certificates", Some(request));
            timeout_at(deadline, sent).await
        }
        Call::Serving(report) => {
            timeout_at(deadline, exchange.send(post, "/v1/serving", Some(report))).await
        }
        Call::Health(report) => {
            timeout_at(deadline, exchange.send(post, "/v1/health", Some(report))).await
        }
        Call::Leave(request) => {
            timeout_at(deadline, exchange.send(post, "/v1/leave", Some(&request))).await
        }
        Call::Rejoin => {
            timeout_at(deadline, exchange.send::<(), _>(post, "/v1/rejoin", None)).await
        }
        Call::ProxyStatus => {
            timeout_at(deadline, exchange.send::<(), _>(Method::GET, "/v1/proxy", None)).await
        }
        Call::RenewExpired { identity, certificate_request } => {
            let challenge = exchange.send::<(), Challenge>(Method::GET, "/v1/challenge", None);
            let challenge =
                timeout_at(deadline, challenge).await.unwrap_or_else(|_| Err(slow()))?;
            // Each connection serves one request, and each control plane its own challenges. The signature is bound to the
            // server of this one.
            let exchange = open(deadline, peer).await?;
            let request =
                proof(identity, certificate_request, challenge.nonce, exchange.control_plane())?;
            timeout_at(deadline, exchange.send(post, "/v1/renew-expired", Some(&request))).await
        }
    };
    response.unwrap_or_else(|_| Err(slow()))
}

/// The request with the proof that this machine holds the key of `identity`.
pub(crate) fn proof(
    identity: &MachineIdentity,
    certificate_request: &str,
    nonce: String,
    control_plane: &str,
) -> Result<ExpiredRenewalRequest, EnrollmentClientError> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
    let certificate = certificate.map_err(|_| EnrollmentClientError::UnusableCertificate)?;
    let statement = possession::statement(&nonce, certificate_request, &certificate, control_plane);
    let statement = statement.ok_or(EnrollmentClientError::UnusableCertificate)?;
    Ok(ExpiredRenewalRequest {
        certificate: identity.certificate.clone(),
        certificate_request: certificate_request.to_owned(),
        signature: possession::sign(&identity.key, &statement)?,
        nonce,
    })
}

/// Checks that the certificate is for the machine's key: its Envoy would reject any other.
fn with_key(enrolled: Enrolled, public_key: &[u8]) -> Result<Enrolled, EnrollmentClientError> {
    let leaf = CertificateDer::from_pem_slice(enrolled.certificate.as_bytes()).ok();
    let proxy = leaf.and_then(|leaf| VerifiedProxy::read(&leaf).ok());
    match proxy {
        Some(proxy) if proxy.public_key == public_key => Ok(enrolled),
        _ => Err(EnrollmentClientError::OtherKey),
    }
}
