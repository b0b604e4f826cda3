//! The JSON types of the protocol. A reader ignores unknown fields: client and server may differ in version.

mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ironmesh_catalog::{
    ApplicationState, Domain, DriverName, HealthCheck, MachineDrainState, ProbedApplication,
    ProxyId, ProxyName, Secret, ServiceAccount, ServiceName,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use traffic::{
    MAX_REPORTED_BUCKETS, MAX_REPORTED_COUNT, MAX_REPORTED_FLOWS, ReportedFlow, ReportedTraffic,
    TrafficReport,
};

/// The most bytes of a request body.
pub const MAX_BODY: usize = 64 << 10;

/// The most laggards that a [`LeaveResult`] names.
pub const MAX_NAMED_LAGGARDS: usize = 10;

/// The body of `POST /v1/enroll`.
///
/// The client may repeat it after a lost response: the same token with the same key yields the same certificate
/// for five minutes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnrollRequest {
    /// The one-time token.
    pub token: Secret,
    /// The certificate signing request, in PEM: an ECDSA P-256 key without subject and attributes.
    pub certificate_request: String,
    /// The address to which callers connect. Default: the address from which the request comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The name of the proxy, for display. If another proxy has it, the control plane adds a number. Default: a name
    /// after the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ProxyName>,
}

/// The body of `POST /v1/enroll-azure`: an enrollment by a document that Azure has signed for the machine.
///
/// The client may repeat it with a new challenge and document: the same key yields the same certificate for five
/// minutes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AzureEnrollRequest {
    /// The nonce of a [`Challenge`].
    pub challenge: String,
    /// The attested document, as the metadata service of the machine returns it (`signature`), for the nonce that
    /// [`crate::attestation_nonce`] makes of the challenge and the key of the request.
    pub document: String,
    /// The certificate signing request, in PEM: an ECDSA P-256 key without subject and attributes.
    pub certificate_request: String,
    /// The address to which callers connect, one of those that the machine has in Azure. Default: the address from
    /// which the request comes, or the machine's first one if that is none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The name of the proxy, for display, as in [`EnrollRequest::name`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ProxyName>,
}

/// The body of `POST /v1/renew`, sent with the current client certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RenewRequest {
    /// The certificate signing request, in PEM.
    pub certificate_request: String,
}

/// The body of `POST /v1/service-certificates`, sent with the current client certificate of the proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServiceCertificateRequest {
    /// The name of the secret that Envoy asks for: `service-cert` or `service-cert:<namespace>/<account>`.
    pub secret: String,
    /// The certificate signing request, in PEM: an ECDSA P-256 key without subject and attributes, and a different key than
    /// that of the proxy.
    pub csr: String,
}

/// The response of `POST /v1/service-certificates`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedServiceCertificate {
    /// The account that the certificate identifies. The control plane determines it by the record of the proxy.
    pub account: ServiceAccount,
    /// The certificate and its issuers, in PEM.
    pub chain: String,
}

/// The body of `POST /v1/serving`, sent with the current client certificate: which inbound ports of the proxy accept
/// callers, as its agent has tried by a handshake with each.
///
/// An Envoy ACKs a listener before it accepts connections there, so the ACK alone does not state that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingReport {
    /// The server names that accept callers, by the service account of the certificate that each presents.
    pub ports: BTreeMap<ServiceAccount, BTreeSet<String>>,
}

/// The response of `POST /v1/serving`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingAnswer {
    /// Whether callers may get each of these ports. If not, the agent reports again soon: a control plane that restarts
    /// forgets a report.
    pub recorded: bool,
    /// The account as which the proxy calls, by the active policy: a certificate for a different account is out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<ServiceAccount>,
}

/// The most applications in a [`HealthReport`].
pub const MAX_REPORTED_APPLICATIONS: usize = ProbedApplication::MAX;

/// The most characters of a reason in a [`HealthReport`].
pub const MAX_REASON: usize = 200;

/// The body of `POST /v1/health`, sent with the current client certificate: the health of the applications beside the
/// proxy, as its agent probes them. It replaces the earlier report.
///
/// It also carries the traffic of the proxy, so that both cost one handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// The probed applications, at most [`MAX_REPORTED_APPLICATIONS`].
    pub applications: Vec<ReportedApplication>,
    /// The traffic since the last report, if the control plane has requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficReport>,
    /// The version of the agent; none if it is of a version that does not report it, and knows no [`DrainOrder`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// How far the machine is with the newest order to drain it; none without an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainReport>,
}

/// How far a machine is with an order to drain it, in a [`HealthReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReport {
    /// The order, by its time.
    pub ordered: Timestamp,
    /// The state of the machine.
    pub state: MachineDrainState,
}

/// An application in a [`HealthReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedApplication {
    /// The service, one of the proxy.
    pub service: ServiceName,
    /// The service port.
    pub port: u16,
    /// The port on which the application listens.
    pub target: u16,
    /// Its state.
    pub state: ApplicationState,
    /// Why it is not healthy, at most [`MAX_REASON`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The response of `POST /v1/health`: what the agent probes from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthAnswer {
    /// The probes, by the active policy.
    pub probes: Vec<ApplicationProbe>,
    /// When the next report is expected, in seconds, if nothing changes. The control plane forgets a report after three
    /// times as long.
    pub report_in_seconds: u64,
    /// When the next report is expected if the proxy has traffic, in seconds; none if the control plane wants no traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_in_seconds: Option<u64>,
    /// Whether the machine is to be drained; none if the control plane is of a version that gives no such orders: the agent
    /// then changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOrder>,
}

/// Whether a machine is to be drained, in a [`HealthAnswer`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// When an operator ordered to drain it; none if it is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<Timestamp>,
    /// Whether the machine has carried out the order: an Envoy that runs again stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_done: bool,
}

/// A probe of an application of the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationProbe {
    /// The service.
    pub service: ServiceName,
    /// The port on which the application listens.
    pub target: u16,
    /// How it is probed.
    pub check: HealthCheck,
}

/// The response of `GET /v1/challenge`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Challenge {
    /// The nonce: valid once, for 60 seconds, at the replica that issued it.
    pub nonce: String,
}

/// The body of `POST /v1/renew-expired`, sent without a client certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExpiredRenewalRequest {
    /// The expired certificate and its issuers, in PEM.
    pub certificate: String,
    /// The certificate signing request, in PEM, for the key of the expired certificate.
    pub certificate_request: String,
    /// The nonce of a [`Challenge`].
    pub nonce: String,
    /// The signature by the key of the expired certificate, in hexadecimal: ECDSA P-256 with SHA-256 in ASN.1 DER,
    /// over `ironmesh renew-expired v1` and a zero byte, then the SHA-256 digests of the nonce, of the request in
    /// DER, of the expired certificate in DER and of the control plane's SPIFFE ID.
    pub signature: String,
}

/// The response of an enrollment or a renewal: everything that the machine needs to write its proxy's files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enrolled {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// The address to which callers connect.
    pub address: IpAddr,
    /// The services that it may serve, at least one. The first one is the node cluster.
    pub services: Vec<ServiceName>,
    /// The sidecar driver of the machine.
    #[serde(default)]
    pub driver: DriverName,
    /// The certificate and its issuers, in PEM.
    pub certificate: String,
    /// When the certificate was issued. Its own validity begins earlier.
    pub issued_at: Timestamp,
    /// When the certificate expires.
    pub expires_at: Timestamp,
    /// The root certificates of the mesh, in PEM.
    pub roots: String,
    /// The addresses of the control plane for xDS, as host and port.
    pub control_plane: Vec<(String, u16)>,
    /// The SPIFFE ID of the control plane.
    pub control_plane_id: String,
    /// The domain of the mesh.
    pub domain: Domain,
    /// Notes for the user.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The body of `POST /v1/leave`, sent with the current client certificate.
///
/// The client may repeat it: the mark is set once, and lasts until a minute after the last request while an Envoy of the proxy is
/// connected: repeat it during the drain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveRequest {
    /// Whether the control plane then revokes the proxy. A revocation is final.
    #[serde(default)]
    pub revoke: bool,
}

/// The response of `POST /v1/leave`: how far the callers know that the proxy leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveResult {
    /// Whether every connected caller that the leave touches has ACKed it.
    pub acked: bool,
    /// The callers that have not, at most [`MAX_NAMED_LAGGARDS`]. Empty also while the control plane has not
    /// published the leave yet.
    #[serde(default)]
    pub laggards: Vec<ProxyName>,
    /// The count of further laggards.
    #[serde(default)]
    pub more_laggards: usize,
    /// Since when the proxy leaves.
    pub leaving_since: Timestamp,
    /// Whether the proxy is revoked.
    #[serde(default)]
    pub revoked: bool,
}

/// The response of `GET /v1/proxy` and of `POST /v1/rejoin`: the state of the proxy that presents its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// The services that it may serve. The first one is the node cluster.
    pub services: Vec<ServiceName>,
    /// How far it has ACKed its resources.
    pub sync: ProxySync,
    /// Since when it lags or is disconnected, if it does and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_since: Option<Timestamp>,
    /// The newest revision of policy that it has ACKed, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_revision: Option<String>,
    /// The active revision of policy; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_revision: Option<String>,
    /// When the newest certificate that the control plane has issued to it expires.
    pub certificate_expires_at: Timestamp,
    /// Since when it leaves the mesh; none if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving_since: Option<Timestamp>,
    /// Since when an operator has taken it out of service; none if it is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned_since: Option<Timestamp>,
}

/// How far a proxy has ACKed its resources, as its machine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxySync {
    /// It has ACKed everything.
    Synced,
    /// It has not ACKed everything yet.
    Updating,
    /// It NACKs a resource: a fallback is active.
    Nacked,
    /// A part of its resources waits for other proxies, for at most 15 s.
    Held,
    /// It has no xDS stream.
    Disconnected,
    /// It has its xDS stream with a different control plane of the mesh, which knows how far it is.
    OtherControlPlane,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

/// The body of an error response.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EnrollmentErrorBody {
    /// What failed, and what to do.
    pub(crate) error: String,
    /// The kind of error, for programs.
    pub(crate) code: EnrollmentErrorCode,
}

/// The kind of error in an error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnrollmentErrorCode {
    /// The token is unknown, expired or used. The response does not state which.
    TokenRejected,
    /// The address is not one that the token allows.
    AddressRejected,
    /// The request is malformed or too large, or its certificate signing request is rejected.
    RequestInvalid,
    /// The certificate, or the proof that its key is present, is missing or does not verify, or the certificate has
    /// expired for too long.
    CertificateRejected,
    /// The nonce is unknown, expired or used.
    ChallengeRejected,
    /// The attested document does not verify, or the control plane accepts none.
    AttestationRejected,
    /// Azure attests the machine, and it may not join: the provider does not know it, policy does not let it join, or
    /// it has joined before.
    MachineRejected,
    /// The proxy is revoked.
    Revoked,
    /// The control plane has too many requests.
    Busy,
    /// The control plane cannot answer now.
    Unavailable,
    /// A code of a later version.
    #[serde(other)]
    Unknown,
}

impl EnrollmentErrorCode {
    /// All codes of this version.
    pub const ALL: [Self; 10] = [
        Self::TokenRejected,
        Self::AddressRejected,
        Self::RequestInvalid,
        Self::CertificateRejected,
        Self::ChallengeRejected,
        Self::AttestationRejected,
        Self::MachineRejected,
        Self::Revoked,
        Self::Busy,
        Self::Unavailable,
    ];

    /// The code as in JSON, and the value of the metric's label.
    pub fn word(self) -> &'static str {
        match self {
            Self::TokenRejected => "token_rejected",
            Self::AddressRejected => "address_rejected",
            Self::RequestInvalid => "request_invalid",
            Self::CertificateRejected => "certificate_rejected",
            Self::ChallengeRejected => "challenge_rejected",
            Self::AttestationRejected => "attestation_rejected",
            Self::MachineRejected => "machine_rejected",
            Self::Revoked => "revoked",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Busy | Self::Unavailable | Self::ChallengeRejected)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn codes_in_json_are_those_of_metrics() {
        for code in EnrollmentErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.word());
        }
        let later: EnrollmentErrorCode = serde_json::from_str("\"of_a_later_version\"").unwrap();
        assert_eq!(later, EnrollmentErrorCode::Unknown);
    }

    /// Whether a message parses with only its required fields, as an older version may send it, and with a field that
    /// this version does not know.
    fn parses<T: serde::de::DeserializeOwned>(required: serde_json::Value) -> bool {
        let mut with_more = required.clone();
        with_more["field_of_a_later_version"] = json!({ "any": ["value"] });
        [required, with_more].into_iter().all(|json| serde_json::from_value::<T>(json).is_ok())
    }

    #[test]
    fn messages_of_other_versions_are_accepted() {
        let time = "2026-11-24T00:00:00Z";
        let id = "81ee34f2-d8dd-466c-8b57-3623d3f4aaa8";
        assert!(parses::<EnrollRequest>(json!({ "token": "t", "certificate_request": "c" })));
        assert!(parses::<AzureEnrollRequest>(json!({
            "challenge": "n", "document": "d", "certificate_request": "c",
        })));
        assert!(parses::<RenewRequest>(json!({ "certificate_request": "c" })));
        assert!(parses::<ServiceCertificateRequest>(json!({ "secret": "s", "csr": "c" })));
        assert!(parses::<IssuedServiceCertificate>(json!({ "account": "a/b", "chain": "c" })));
        assert!(parses::<ServingReport>(json!({ "ports": { "a/b": ["80.c.a.mesh"] } })));
        assert!(parses::<ServingAnswer>(json!({ "recorded": true })));
        assert!(parses::<HealthReport>(json!({ "applications": [
            { "service": "a/b", "port": 80, "target": 8080, "state": "state_of_a_later_version" },
        ] })));
        assert!(parses::<HealthAnswer>(json!({ "report_in_seconds": 10, "probes": [
            { "service": "a/b", "target": 8080, "check": {
                "port": 80, "probe": { "kind": "tcp" }, "interval": { "secs": 5, "nanos": 0 },
                "timeout": { "secs": 2, "nanos": 0 }, "unhealthy_threshold": 3,
                "healthy_threshold": 2,
            } },
        ] })));
        assert!(parses::<DrainReport>(json!({ "ordered": time, "state": "of_a_later_version" })));
        assert!(parses::<DrainOrder>(json!({})));
        assert!(parses::<Challenge>(json!({ "nonce": "n" })));
        assert!(parses::<ExpiredRenewalRequest>(json!({
            "certificate": "c", "certificate_request": "r", "nonce": "n", "signature": "s",
        })));
        assert!(parses::<Enrolled>(json!({
            "id": id, "name": "store-1", "address": "10.0.0.5", "services": ["shop/bookstore"],
            "certificate": "c", "issued_at": time, "expires_at": time, "roots": "r",
            "control_plane": [["cp", 15128]], "control_plane_id": "spiffe://mesh.internal/control-plane",
            "domain": "mesh.internal",
        })));
        assert!(parses::<LeaveRequest>(json!({})));
        assert!(parses::<LeaveResult>(json!({ "acked": true, "leaving_since": time })));
        assert!(parses::<ProxyStatus>(json!({
            "id": id, "name": "store-1", "services": ["shop/bookstore"],
            "sync": "state_of_a_later_version", "certificate_expires_at": time,
        })));
        assert!(parses::<EnrollmentErrorBody>(
            json!({ "error": "e", "code": "of_a_later_version" })
        ));
    }

    #[test]
    fn debug_output_of_a_request_omits_the_token() {
        let request = EnrollRequest {
            token: Secret::new("the-token".to_owned()),
            certificate_request: String::new(),
            address: None,
            name: None,
        };
        assert!(!format!("{request:?}").contains("the-token"));
    }
}
