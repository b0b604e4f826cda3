//! Proxies: join records, node metadata, certificate states and participation.
//!
//! This module owns the facts about one proxy. It never decides whether callers use its endpoints.

mod cordon;
pub mod credentials;
mod node_metadata;
mod outside;
mod versions;
mod workload_certificates;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::certificate::SharedCertificate;
use crate::driver_name::DriverName;
use crate::labels::Labels;
use crate::locality::Locality;
use crate::name::{ServiceAccount, ServiceName};
use crate::proxy_name::ProxyName;
use crate::token_id::TokenId;
use crate::unknown_fields::UnknownFields;

pub use cordon::{Cordon, CordonMode, Drain, MachineDrain, MachineDrainState};
pub use credentials::{
    CertificateRecognition, IssuedCertificate, KeyHash, PresentedCertificate, ProxyCredentials,
};
pub use node_metadata::{CertificateSource, LogFolder, NodeMetadata, Upstream};
pub use outside::{HostUpstream, OutsideAuthority, OutsideHost};
pub use versions::ProxyVersions;
pub use workload_certificates::{
    IssuedWorkloadCertificate, TooManyCertificates, WorkloadCertificates,
};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The UUID of one proxy, assigned at enrollment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProxyId(pub Uuid);

impl ProxyId {
    /// Reads the UUID out of an Envoy node id: the UUID itself, or `type~ip~UUID~domain`.
    pub fn from_node_id(node_id: &str) -> Option<Self> {
        let mut parts = node_id.split('~');
        match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(uuid), None, ..) | (Some(_), Some(_), Some(uuid), Some(_), None) => {
                uuid.parse().ok()
            }
            _ => None,
        }
    }
}

impl fmt::Display for ProxyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a proxy without a name of its own.
impl From<ProxyId> for ProxyName {
    fn from(id: ProxyId) -> Self {
        Self(id.to_string().into())
    }
}

impl FromStr for ProxyId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

/// The stored facts of an enrolled proxy. They decide what the proxy may do; its node metadata does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRecord {
    /// The proxy.
    pub id: ProxyId,
    /// Its name, for people; none in a record of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ProxyName>,
    /// The services that it may serve, at least one. The first one names its certificate, and its account
    /// identifies the proxy when it calls others.
    pub services: Vec<ServiceName>,
    /// The address at which other proxies dial it.
    pub mesh_address: SocketAddr,
    /// Further addresses at which providers report its machine, such as its own address behind a NAT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The provider's key of its machine, if there is one: in Azure, the `vmId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// When it was enrolled.
    #[serde(rename = "joined_at")]
    pub enrolled_at: Timestamp,
    /// What it is.
    #[serde(default)]
    pub kind: ProxyKind,
    /// The program that carries its traffic.
    #[serde(default)]
    pub driver: DriverName,
    /// The token by which it was enrolled; none if an operator made its files, or Azure attested its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenId>,
    /// Its machine in Azure, if it was enrolled by an attested document. [`JoinRecord::machine`] is then the
    /// `vmId`, which this enrollment binds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureBinding>,
    /// Its key and certificates; none in a record of an earlier version until its first connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<ProxyCredentials>,
    /// When its certificate expires.
    pub certificate_expires_at: Timestamp,
    /// The service certificates that were issued for keys of its machine, until they have expired.
    #[serde(default, skip_serializing_if = "WorkloadCertificates::is_empty")]
    pub workload_certificates: WorkloadCertificates,
    /// The accounts whose shared certificates the control plane has sent to it. None is ever removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shared_accounts: BTreeSet<ServiceAccount>,
    /// The shared certificates that it may have had when it was revoked; none before the control plane has determined
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Vec<SharedCertificate>>,
    /// When its first xDS connection was accepted. Since then its certificate is claimed.
    pub claimed_at: Option<Timestamp>,
    /// Labels set at its enrollment, such as the version that it runs.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Its locality, set at its enrollment. It applies to its own calls, and to its endpoints without a locality
    /// from a provider.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
    /// The service ports that it has ACKed.
    pub participation: Participation,
    /// The ports of these without a backend: no provider reports an application there, or the proxy has not ACKed
    /// it yet. The proxy then forwards to policy's target port, so callers use it for no endpoint with another port.
    #[serde(rename = "vacant", default, skip_serializing_if = "Participation::is_empty")]
    pub ports_without_backend: Participation,
    /// Where its Envoy gets its service certificates from, by its newest xDS connection.
    #[serde(default, skip_serializing_if = "CertificateSource::is_default")]
    pub certificates: CertificateSource,
    /// The versions of its programs, by its newest connection and the newest report of its agent.
    #[serde(default, skip_serializing_if = "ProxyVersions::is_empty")]
    pub versions: ProxyVersions,
    /// Its revocation, if it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
    /// The cordon by which an operator has taken it out of service, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Cordon>,
    /// Since when it is unreachable: its xDS stream has been lost for 60 seconds outside a mass disconnect.
    #[serde(rename = "suspect_since", default, skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<Timestamp>,
    /// The fields of a newer version, which are stored again with the record.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The machine in Azure that a proxy is bound to, as the provider showed it at the enrollment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AzureBinding {
    /// The id of the machine's resource.
    pub resource: String,
    /// What identifies its OS disk, which a reimage replaces. Without it, no reimage is recognized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_disk: Option<String>,
}

/// What a proxy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyKind {
    /// It stands beside the applications of its machine.
    #[default]
    Sidecar,
}

/// The revocation of a proxy: the control plane rejects each of its certificates. It is final; the machine can be
/// enrolled as a new proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// When it was revoked.
    pub at: Timestamp,
    /// The reason that the operator gave, or that of the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its cause; none in a record of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<RevocationCause>,
}

/// The cause of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevocationCause {
    /// An operator: its keys may be in other hands, so peers refuse it.
    Operator,
    /// The proxy has left the mesh for good, at its own request.
    Left,
    /// Its machine was reimaged, which destroyed its keys, and enrolled again.
    Reimaged,
}

impl Revocation {
    /// The reason of a proxy that has left the mesh for good, at its own request.
    pub const LEFT: &str = "left the mesh";

    /// The reason of a proxy whose machine was enrolled again.
    pub const REIMAGED: &str = "Azure has reimaged its machine, which was enrolled again";

    /// The revocation by an operator.
    pub fn by_operator(at: Timestamp, reason: Option<String>) -> Self {
        Self { at, reason, cause: Some(RevocationCause::Operator) }
    }

    /// That of a proxy that has left the mesh.
    pub fn left(at: Timestamp) -> Self {
        Self { at, reason: Some(Self::LEFT.to_owned()), cause: Some(RevocationCause::Left) }
    }

    /// That of a proxy whose machine was reimaged.
    pub fn reimaged(at: Timestamp) -> Self {
        Self { at, reason: Some(Self::REIMAGED.to_owned()), cause: Some(RevocationCause::Reimaged) }
    }

    /// Its cause. Earlier versions recorded only the reason.
    pub fn cause(&self) -> RevocationCause {
        self.cause.unwrap_or(match self.reason.as_deref() {
            Some(Self::LEFT) => RevocationCause::Left,
            _ => RevocationCause::Operator,
        })
    }

    /// Whether it is an operator's.
    pub fn is_by_operator(&self) -> bool {
        self.cause() == RevocationCause::Operator
    }
}

impl JoinRecord {
    /// How its machine becomes a new proxy, when this one is of no more use.
    pub fn enroll_again(&self) -> &'static str {
        if self.azure.is_some() {
            // The binding of the machine outlives the proxy, also its revocation.
            "reimage the machine in Azure, or enroll the machine again with a token (`ironmesh proxy token --azure-vm-id`)"
        } else {
            "enroll the machine again with a new token (`ironmesh proxy token`)"
        }
    }

    /// Whether an operator revoked it, so that peers refuse it.
    pub fn is_refused_by_peers(&self) -> bool {
        self.revoked.as_ref().is_some_and(Revocation::is_by_operator)
    }
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Seconds are precise enough for people.
        write!(f, "revoked on {:.0}", self.at)?;
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

/// The state of a proxy's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateState {
    /// No xDS connection has used it yet.
    Unclaimed,
    /// An xDS connection has used it.
    Claimed,
    /// No xDS connection used it within the time limit, and the control plane rejects it.
    EnrollmentExpired,
    /// It has expired.
    Expired,
    /// An operator revoked it.
    Revoked,
}

impl JoinRecord {
    /// The time limit for the first connection of a certificate (docs/reference/names.md).
    const UNCLAIMED: SignedDuration = SignedDuration::from_hours(24);

    /// The record of a newly enrolled proxy: unclaimed, without labels, with no port ACKed.
    pub fn new(
        id: ProxyId,
        services: Vec<ServiceName>,
        mesh_address: SocketAddr,
        enrolled_at: Timestamp,
        certificate_expires_at: Timestamp,
    ) -> Self {
        Self {
            id,
            name: None,
            services,
            mesh_address,
            addresses: Vec::new(),
            machine: None,
            enrolled_at,
            kind: ProxyKind::default(),
            driver: DriverName::default(),
            token: None,
            azure: None,
            credentials: None,
            certificate_expires_at,
            workload_certificates: WorkloadCertificates::default(),
            shared_accounts: BTreeSet::new(),
            refused: None,
            claimed_at: None,
            labels: Labels::default(),
            locality: Locality::default(),
            participation: Participation::default(),
            ports_without_backend: Participation::default(),
            certificates: CertificateSource::default(),
            versions: ProxyVersions::default(),
            revoked: None,
            cordon: None,
            unreachable_since: None,
            unknown: UnknownFields::default(),
        }
    }

    /// The name that outputs show: its own, or its id in a record of an earlier version.
    pub fn display_name(&self) -> ProxyName {
        self.name.clone().unwrap_or_else(|| self.id.into())
    }

    /// All addresses at which providers may report its machine, each once.
    pub fn known_as(&self) -> BTreeSet<IpAddr> {
        self.addresses.iter().copied().chain([self.mesh_address.ip()]).collect()
    }

    /// The services of which callers may see the difference between two records of one proxy. Its service certificates
    /// and versions are visible to none, and its progress with a port only to callers of that service.
    pub(crate) fn services_that_differ(&self, other: &Self) -> BTreeSet<ServiceName> {
        let same = Self {
            workload_certificates: other.workload_certificates.clone(),
            shared_accounts: other.shared_accounts.clone(),
            refused: other.refused.clone(),
            participation: other.participation.clone(),
            ports_without_backend: other.ports_without_backend.clone(),
            versions: other.versions.clone(),
            ..self.clone()
        };
        if same != *other {
            return self.services.iter().chain(&other.services).cloned().collect();
        }
        let acked = self.participation.0.symmetric_difference(&other.participation.0);
        let (ours, theirs) = (&self.ports_without_backend.0, &other.ports_without_backend.0);
        let ports = acked.chain(ours.symmetric_difference(theirs));
        ports.map(|(service, _)| service.clone()).collect()
    }

    /// When its current certificate was issued.
    pub fn certificate_issued_at(&self) -> Timestamp {
        self.credentials.as_ref().map_or(self.enrolled_at, |known| known.current.issued_at)
    }

    /// What a presented certificate is to this proxy. The first one binds a record without credentials.
    pub fn recognize(
        &self,
        presented: &PresentedCertificate,
        now: Timestamp,
    ) -> CertificateRecognition {
        match &self.credentials {
            Some(credentials) => credentials.recognize(presented, now),
            None => CertificateRecognition::Current,
        }
    }

    /// The state of its certificate at `now`.
    pub fn certificate_state(&self, now: Timestamp) -> CertificateState {
        match self.claimed_at {
            _ if self.revoked.is_some() => CertificateState::Revoked,
            _ if self.certificate_expires_at <= now => CertificateState::Expired,
            Some(_) => CertificateState::Claimed,
            None if self.is_enrollment_expired(now) => CertificateState::EnrollmentExpired,
            None => CertificateState::Unclaimed,
        }
    }

    /// Whether no connection used its first certificate within the time limit.
    pub fn is_enrollment_expired(&self, now: Timestamp) -> bool {
        self.claimed_at.is_none() && now.duration_since(self.enrolled_at) > Self::UNCLAIMED
    }

    /// Whether the proxy can connect at `now`.
    pub fn is_in_use(&self, now: Timestamp) -> bool {
        let state = self.certificate_state(now);
        matches!(state, CertificateState::Unclaimed | CertificateState::Claimed)
    }
}

/// The service ports that a proxy has active: it has ACKed the inbound listener with the port and the port's
/// certificate. The store keeps it, so that control-plane restarts do not affect traffic (invariant 8).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Participation(pub BTreeSet<(ServiceName, u16)>);

impl Participation {
    /// Whether it has no port.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A proxy as the compiler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its join record.
    pub record: JoinRecord,
    /// Its node metadata.
    pub metadata: NodeMetadata,
}

impl Proxy {
    /// The address on which it listens for the mesh.
    pub fn bind(&self) -> IpAddr {
        self.metadata.bind.unwrap_or_else(|| self.record.mesh_address.ip())
    }

    /// The address on which it listens for its own applications, and Envoy for its admin.
    ///
    /// 127.0.0.1, unless the proxy's mesh address is itself one of the loopback: then that one, so
    /// that several proxies on one machine have ports of their own.
    pub fn local_address(&self) -> IpAddr {
        local_address(self.bind())
    }

    /// The address of its applications.
    pub fn app_address(&self) -> IpAddr {
        self.metadata.app_address.unwrap_or(LOCALHOST)
    }
}

/// The address for listeners of the proxy's own machine, given its mesh address.
pub fn local_address(bind: IpAddr) -> IpAddr {
    if bind.is_loopback() { bind } else { LOCALHOST }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_state_follows_claim_expiry_and_revocation() {
        let enrolled: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let after = |hours| enrolled + SignedDuration::from_hours(hours);
        let mut record = JoinRecord::new(
            ProxyId(Uuid::nil()),
            vec!["store".parse().unwrap()],
            SocketAddr::from(([10, 0, 0, 1], 15003)),
            enrolled,
            after(1000),
        );
        let is = |record: &JoinRecord, hours, state| {
            assert_eq!(record.certificate_state(after(hours)), state, "after {hours} h");
        };
        is(&record, 24, CertificateState::Unclaimed);
        is(&record, 25, CertificateState::EnrollmentExpired);
        assert!(record.is_in_use(after(24)) && !record.is_in_use(after(25)));
        record.claimed_at = Some(after(1));
        is(&record, 25, CertificateState::Claimed);
        is(&record, 999, CertificateState::Claimed);
        is(&record, 1000, CertificateState::Expired);
        assert!(record.is_in_use(after(999)) && !record.is_in_use(after(1000)));
        record.revoked = Some(Revocation::by_operator(after(2), Some("stolen".to_owned())));
        is(&record, 3, CertificateState::Revoked);
        assert!(!record.is_in_use(after(3)));
        let words = record.revoked.unwrap().to_string();
        assert_eq!(words, "revoked on 2026-01-01T02:00:00Z: stolen");
    }

    #[test]
    fn proxy_id_is_read_from_a_uuid_or_four_part_node_id() {
        let uuid = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f";
        let id: ProxyId = uuid.parse().unwrap();
        assert_eq!(ProxyId::from_node_id(uuid), Some(id));
        let four = format!("sidecar~10.0.0.1~{uuid}~mesh.internal");
        assert_eq!(ProxyId::from_node_id(&four), Some(id));
        for bad in ["", "vm1", "a~b", &format!("{four}~x"), &format!("sidecar~{uuid}"), "a~b~c~d"] {
            assert_eq!(ProxyId::from_node_id(bad), None, "{bad}");
        }
    }
}
