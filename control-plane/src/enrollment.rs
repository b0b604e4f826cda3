//! The enrollment of machines: decides who becomes a proxy by which token, and which proxy renews its certificate.
//!
//! It owns the tokens and the alarms about copied tokens and certificates. The register owns the join records; the
//! protocol, with its limits and proofs, is that of `ironmesh-enrollment`.
//!
//! ```text
//! operator ──► TokenTable (store) ◄── use, once ── join ──► Authority ──► Register
//! Azure    ──► machines, attested documents ────── azure ───────┘
//! machine  ──► ironmesh-enrollment ──────────────► renewal ─────┘
//!                             └─────────────────► service certificates ──► Authority
//! ```

mod addresses;
mod alarms;
mod attestation;
mod azure;
mod checks;
mod health;
mod join;
mod leave;
mod renewal;
mod service_certificates;
mod serving;
#[cfg(test)]
mod tests;
mod tokens;
mod traffic;

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_catalog::{
    Actor, JoinRecord, JournalEntry, JournalKind, JournalOutcome, JournalSubject, Mesh, Snapshot,
    StoreError, TokenId,
};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_cert::{Authority, ProxyCertificate};
use ironmesh_config_settings::ReloadableSettings;
use ironmesh_enrollment::{
    AzureAnswer, AzureEnrollment, Enrolled, Enroller, Enrollment, EnrollmentError, HealthAnswer,
    HealthReport, IssuedServiceCertificate, Leave, ProxyRenewal, ProxyStatus, ServingAnswer,
    ServingReport, WorkloadRequest,
};
use ironmesh_xds_server::Hub;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::health_table::HealthTable;
use crate::journal::{Journal, line};
use crate::leave_table::LeaveTable;
use crate::peers::Peers;
use crate::policy_source::PolicyState;
use crate::reconciler::convergence::Convergence;
use crate::register::Register;
use crate::serving_table::ServingTable;
use crate::traffic_table::TrafficTable;
pub(crate) use addresses::XdsAddresses;
pub(crate) use alarms::{Alarms, CertificateAlarm};
pub(crate) use attestation::AttestationTrust;
pub(crate) use azure::AzureJoins;
pub(crate) use checks::{check_address, check_known_as, check_services};
pub(crate) use health::{ORDERED_INTERVAL, report_interval};
use ironmesh_catalog::text::chain;
pub(crate) use tokens::TokenTable;

/// The decisions about machines that enroll and renew.
#[derive(Debug)]
pub(crate) struct MachineEnrollment {
    pub(crate) mesh: Mesh,
    pub(crate) authority: Arc<Mutex<Authority>>,
    pub(crate) register: Arc<Register>,
    pub(crate) tokens: Arc<TokenTable>,
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) journal: Journal,
    pub(crate) xds: XdsAddresses,
    pub(crate) hub: Arc<Hub>,
    pub(crate) leaves: Arc<LeaveTable>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) serving: Arc<ServingTable>,
    pub(crate) health: Arc<HealthTable>,
    pub(crate) traffic: Arc<TrafficTable>,
    /// The newest snapshot, which determines the probes.
    pub(crate) snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    pub(crate) convergence: watch::Receiver<Convergence>,
    /// The active policy, which determines the accounts of services.
    pub(crate) policy: watch::Receiver<PolicyState>,
    /// The settings, which determine the lifetime of service certificates.
    pub(crate) settings: watch::Receiver<ReloadableSettings>,
    /// The machines of Azure, and the trust in their documents.
    pub(crate) azure: AzureJoins,
    /// Held while a token is used, so that a repeated request waits for the certificate of the first.
    pub(crate) enrolling: Mutex<()>,
}

impl Enroller for MachineEnrollment {
    fn enroll(
        &self,
        enrollment: Enrollment,
        peer: SocketAddr,
    ) -> Result<Enrolled, EnrollmentError> {
        self.join(&enrollment, peer, Timestamp::now())
    }

    fn enroll_azure(
        &self,
        enrollment: &AzureEnrollment,
        peer: SocketAddr,
    ) -> Result<AzureAnswer, EnrollmentError> {
        self.join_azure(enrollment, peer, Timestamp::now())
    }

    fn renew(&self, renewal: ProxyRenewal, peer: SocketAddr) -> Result<Enrolled, EnrollmentError> {
        self.renew_certificate(&renewal, peer, Timestamp::now())
    }

    fn renew_expired(
        &self,
        renewal: ProxyRenewal,
        peer: SocketAddr,
    ) -> Result<Enrolled, EnrollmentError> {
        self.renew_certificate(&renewal, peer, Timestamp::now())
    }

    fn issue_service_certificate(
        &self,
        request: WorkloadRequest,
        peer: SocketAddr,
    ) -> Result<IssuedServiceCertificate, EnrollmentError> {
        self.issue_workload_certificate(&request, peer, Timestamp::now())
    }

    fn record_serving(
        &self,
        proxy: &VerifiedProxy,
        report: ServingReport,
        peer: SocketAddr,
    ) -> Result<ServingAnswer, EnrollmentError> {
        self.record_serving_report(proxy, report, peer, Timestamp::now())
    }

    fn record_health(
        &self,
        proxy: &VerifiedProxy,
        report: HealthReport,
        peer: SocketAddr,
    ) -> Result<HealthAnswer, EnrollmentError> {
        self.record_health_report(proxy, report, peer, Timestamp::now())
    }

    fn leave(&self, proxy: &VerifiedProxy, peer: SocketAddr) -> Result<Leave, EnrollmentError> {
        self.begin_leave(proxy, peer, Timestamp::now())
    }

    fn revoke_left(&self, proxy: &VerifiedProxy, peer: SocketAddr) -> Result<(), EnrollmentError> {
        self.revoke_at_own_request(proxy, peer, Timestamp::now())
    }

    fn rejoin(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
    ) -> Result<ProxyStatus, EnrollmentError> {
        self.end_leave(proxy, peer, Timestamp::now())
    }

    fn proxy_status(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
    ) -> Result<ProxyStatus, EnrollmentError> {
        self.own_status(proxy, peer, Timestamp::now())
    }
}

impl MachineEnrollment {
    /// Everything that the machine needs, with this certificate chain.
    fn response(&self, record: &JoinRecord, certificate: String) -> Enrolled {
        let credentials = record.credentials.as_ref();
        let issued_at = credentials.map_or(record.enrolled_at, |known| known.current.issued_at);
        let (control_plane, note) = self.xds.for_proxy_at(record.mesh_address.ip());
        Enrolled {
            id: record.id,
            name: record.display_name(),
            address: record.mesh_address.ip(),
            services: record.services.clone(),
            driver: record.driver.clone(),
            certificate,
            issued_at,
            expires_at: record.certificate_expires_at,
            roots: self.authority.lock().trust_bundle().roots,
            control_plane,
            control_plane_id: self.mesh.trust_domain.control_plane().0.to_string(),
            domain: self.mesh.domain.clone(),
            notes: note.into_iter().collect(),
        }
    }

    /// Records what a machine did, or why it was rejected.
    fn record(
        &self,
        kind: JournalKind,
        who: Actor,
        peer: SocketAddr,
        subject: JournalSubject,
        rejected: Option<&str>,
        now: Timestamp,
    ) {
        self.journal.record(entry(kind, who, peer, subject, rejected, now));
    }
}

/// The entry about what a machine did, or why it was rejected.
fn entry(
    kind: JournalKind,
    who: Actor,
    peer: SocketAddr,
    subject: JournalSubject,
    rejected: Option<&str>,
    now: Timestamp,
) -> JournalEntry {
    let outcome = match rejected {
        None => JournalOutcome::Done,
        Some(reason) => JournalOutcome::Rejected { reason: line(reason) },
    };
    let origin = Some(peer.to_string());
    JournalEntry { origin, subject, outcome, ..JournalEntry::new(now, kind, who) }
}

/// The subject of an entry about a proxy.
fn subject(record: &JoinRecord) -> JournalSubject {
    JournalSubject {
        proxy: Some(record.id),
        name: record.name.as_ref().map(ToString::to_string),
        services: crate::journal::few(&record.services),
        ..JournalSubject::default()
    }
}

/// The holder of a token, as the journal names it.
fn holder(token: Option<&TokenId>) -> Actor {
    Actor::Machine { token: token.cloned(), vm_id: None }
}

/// The error of a machine's request when the store fails. The machine repeats the request.
fn unavailable(error: &(dyn std::error::Error + 'static)) -> EnrollmentError {
    tracing::error!(error = chain(error), "cannot store an enrollment or a renewal");
    EnrollmentError::Unavailable(
        "the control plane cannot write its state: try again, and see its log".to_owned(),
    )
}

/// A join record with this certificate as its first one.
fn with_first_certificate(
    record: JoinRecord,
    certificate: &ProxyCertificate,
    now: Timestamp,
) -> JoinRecord {
    let credentials =
        ironmesh_catalog::ProxyCredentials::new(certificate.key.clone(), certificate.issued(now));
    JoinRecord { credentials: Some(credentials), ..record }
}

/// Why a change of the register was not made.
enum ChangeError {
    Rejected(EnrollmentError),
    Store(StoreError),
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ChangeError> for EnrollmentError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Rejected(error) => error,
            ChangeError::Store(error) => unavailable(&error),
        }
    }
}
