//! Issuing: the kinds of leaf certificates, each with an identity and usages of its own, so that none
//! can replace another.
//!
//! The caller decides who gets a certificate; this module stores nothing.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use ironmesh_catalog::{
    CertificateHistory, IssuedCertificate, KeyHash, OperatorName, ProxyId, Secret, ServiceAccount,
    ServiceCertificate, ServiceName, SpiffeId,
};
use jiff::{SignedDuration, Timestamp};
use rcgen::string::Ia5String;
use rcgen::{PublicKeyData, SanType};

use crate::authority::Authority;
use crate::facts::CertificateFacts;
use crate::inspect::Failure;
use crate::peer::key_hash;
use crate::profile::{self, Purpose};
use crate::renewal::Renewal;
use crate::request::{self, RequestError};
use crate::validity::{self, Validity};

/// The lifetime of the certificate of a proxy whose files an operator made.
pub const PROXY_LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// The lifetime of the certificate of a proxy that its machine enrolled, and renews.
pub const ENROLLED_PROXY_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// How long after its expiry the certificate of a proxy can still be renewed: a machine that was off for a long weekend
/// returns without an operator.
pub const RENEWAL_GRACE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The lifetime of the control plane's own certificate.
pub const CONTROL_PLANE_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// How long the wall clock must run steadily before the control plane's certificate is replaced because
/// it was issued "in the future".
const CONTROL_PLANE_PATIENCE: Duration = Duration::from_secs(8 * 3600);

/// The certificate that a proxy gets for its signing request. The key never leaves the proxy's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyCertificate {
    /// The leaf and the intermediate that signed it, in PEM.
    pub chain: String,
    /// The service that its SPIFFE ID names.
    pub service: ServiceName,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// The leaf's serial number, in lower-case hexadecimal.
    pub serial: String,
    /// The hash of its public key.
    pub key: KeyHash,
}

impl ProxyCertificate {
    /// The certificate as a join record lists it, issued at `now`.
    pub fn issued(&self, now: Timestamp) -> IssuedCertificate {
        IssuedCertificate {
            serial: self.serial.clone(),
            service: Some(self.service.clone()),
            issued_at: now,
            expires_at: self.not_after,
            first_used_at: None,
            chain: Some(self.chain.clone()),
        }
    }
}

/// The service certificate that one proxy gets for its signing request. The key never leaves the proxy's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadCertificate {
    /// The leaf and the intermediate that signed it, in PEM.
    pub chain: String,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// The leaf's serial number, in lower-case hexadecimal.
    pub serial: String,
}

/// The certificate that an operator gets for a signing request. The key never leaves the operator's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCertificate {
    /// The leaf and the intermediate that signed it, in PEM.
    pub chain: String,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// The leaf's serial number, in lower-case hexadecimal.
    pub serial: String,
}

/// The certificate that the control plane presents to its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneCertificate {
    /// The leaf and the intermediate that signed it, in PEM.
    pub chain: String,
    /// The leaf's private key (PKCS#8).
    pub key: Secret,
    /// The time of its replacement.
    pub renewal: Renewal,
    /// What operators see of it.
    pub facts: CertificateFacts,
}

/// The names by which clients reach the control plane. Envoys of the mesh verify its SPIFFE ID instead; other
/// clients, such as gRPC's own, verify the name to which they connect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerNames {
    /// Host names.
    pub hosts: BTreeSet<String>,
    /// IP addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl Authority {
    /// Issues a certificate by which peers identify `account`. Its lifetime is `lifetime` plus or minus up to
    /// a tenth.
    ///
    /// Its only DNS name is [`TrustDomain::shared_dns_name`], so that peers can reject it and not its successor.
    ///
    /// [`TrustDomain::shared_dns_name`]: ironmesh_catalog::TrustDomain::shared_dns_name
    pub fn issue_service_certificate(
        &self,
        account: &ServiceAccount,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<ServiceCertificate, IssueError> {
        let issue = || -> Result<_, Failure> {
            let validity = self.validity(now, validity::jittered(lifetime)?)?;
            let key = profile::new_key()?;
            let leaf = Leaf {
                purpose: Purpose::Service,
                common_name: account.name.as_str(),
                identity: self.trust_domain().workload(account),
                names: &ServerNames::default(),
                is_shared: true,
                validity,
            };
            let (chain, serial) = self.sign(&leaf, &key)?;
            let dns_name = Some(self.trust_domain().shared_dns_name(&serial));
            Ok(ServiceCertificate {
                account: account.clone(),
                chain,
                key: Secret::new(key.serialize_pem()),
                serial,
                not_before: validity.not_before,
                not_after: validity.not_after,
                renew_at: validity.renew_at(),
                history: CertificateHistory { dns_name, ..CertificateHistory::default() },
            })
        };
        issue().map_err(IssueError::Sign)
    }

    /// Issues a certificate by which peers identify `account`, as [`Self::issue_service_certificate`] does, for a key that
    /// `proxy` keeps to itself.
    ///
    /// Its only DNS name is [`TrustDomain::proxy_dns_name`], so that peers can reject this proxy and no other of the account.
    /// From the request it reads only the public key, which must be ECDSA P-256.
    ///
    /// [`TrustDomain::proxy_dns_name`]: ironmesh_catalog::TrustDomain::proxy_dns_name
    pub fn issue_workload_certificate(
        &self,
        csr_pem: &str,
        proxy: ProxyId,
        account: &ServiceAccount,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<WorkloadCertificate, IssueError> {
        let key = request::public_key(csr_pem)?;
        let issue = || -> Result<_, Failure> {
            let validity = self.validity(now, validity::jittered(lifetime)?)?;
            let names = ServerNames {
                hosts: [self.trust_domain().proxy_dns_name(proxy)].into(),
                ..ServerNames::default()
            };
            let leaf = Leaf {
                purpose: Purpose::Service,
                // A name has at most 63 characters, and X.509 allows 64.
                common_name: account.name.as_str(),
                identity: self.trust_domain().workload(account),
                names: &names,
                is_shared: false,
                validity,
            };
            let (chain, serial) = self.sign(&leaf, &key)?;
            Ok(WorkloadCertificate { chain, not_after: validity.not_after, serial })
        };
        issue().map_err(IssueError::Sign)
    }

    /// Issues a certificate that identifies `proxy` to the control plane, and to nothing else.
    ///
    /// From the request it reads only the public key, which must be ECDSA P-256.
    pub fn issue_proxy_certificate(
        &self,
        csr_pem: &str,
        proxy: ProxyId,
        services: &[ServiceName],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<ProxyCertificate, IssueError> {
        let service = services.first().ok_or(IssueError::NoService)?;
        let key = request::public_key(csr_pem)?;
        let issue = || -> Result<_, Failure> {
            let validity = self.validity(now, lifetime)?;
            let leaf = Leaf {
                purpose: Purpose::Proxy,
                common_name: &proxy_common_name(proxy, service),
                identity: self.trust_domain().proxy(proxy, service),
                names: &ServerNames::default(),
                is_shared: false,
                validity,
            };
            let (chain, serial) = self.sign(&leaf, &key)?;
            let key = key_hash(&key.subject_public_key_info());
            let (service, not_after) = (service.clone(), validity.not_after);
            Ok(ProxyCertificate { chain, service, not_after, serial, key })
        };
        issue().map_err(IssueError::Sign)
    }

    /// Issues a certificate that identifies an operator to the admin API, and to nothing else.
    ///
    /// From the request it reads only the public key, which must be ECDSA P-256.
    pub fn issue_operator_certificate(
        &self,
        csr_pem: &str,
        operator: &OperatorName,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<OperatorCertificate, IssueError> {
        let key = request::public_key(csr_pem)?;
        let issue = || -> Result<_, Failure> {
            let validity = self.validity(now, lifetime)?;
            let leaf = Leaf {
                purpose: Purpose::Operator,
                common_name: operator.as_str(),
                identity: self.trust_domain().operator(operator),
                names: &ServerNames::default(),
                is_shared: false,
                validity,
            };
            let (chain, serial) = self.sign(&leaf, &key)?;
            Ok(OperatorCertificate { chain, not_after: validity.not_after, serial })
        };
        issue().map_err(IssueError::Sign)
    }

    /// Issues a certificate for the control plane itself, which clients reach by `names`.
    pub fn issue_control_plane_certificate(
        &self,
        names: &ServerNames,
        now: Timestamp,
    ) -> Result<ControlPlaneCertificate, IssueError> {
        let issue = || -> Result<_, Failure> {
            let validity = self.validity(now, CONTROL_PLANE_LIFETIME)?;
            let key = profile::new_key()?;
            let leaf = Leaf {
                purpose: Purpose::ControlPlane,
                common_name: "ironmesh control plane",
                identity: self.trust_domain().control_plane().0,
                names,
                is_shared: false,
                validity,
            };
            let (chain, serial) = self.sign(&leaf, &key)?;
            let facts = CertificateFacts {
                name: leaf.common_name.to_owned(),
                subject: leaf.identity.to_string(),
                serial,
                issued_at: Some(validity.issued_at),
                not_after: validity.not_after,
                renew_at: Some(validity.renew_at()),
            };
            Ok(ControlPlaneCertificate {
                chain,
                key: Secret::new(key.serialize_pem()),
                renewal: Renewal {
                    issued_at: validity.issued_at,
                    not_before: validity.not_before,
                    renew_at: validity.renew_at(),
                    patience: CONTROL_PLANE_PATIENCE,
                },
                facts,
            })
        };
        issue().map_err(IssueError::Sign)
    }

    fn validity(&self, now: Timestamp, lifetime: Duration) -> Result<Validity, Failure> {
        Ok(Validity::new(now, lifetime, self.span())?)
    }

    /// Signs a leaf for `key`: the chain, and the leaf's serial number.
    fn sign(&self, leaf: &Leaf<'_>, key: &impl PublicKeyData) -> Result<(String, String), Failure> {
        let (mut content, serial) = profile::content(
            leaf.purpose,
            leaf.common_name,
            leaf.identity.as_str(),
            leaf.names,
            &leaf.validity,
        )?;
        if leaf.is_shared {
            let name = self.trust_domain().shared_dns_name(&serial.to_hex());
            let name = Ia5String::try_from(name)?;
            content.subject_alt_names.push(SanType::DnsName(name));
        }
        let signed = content.signed_by(key, self.signer())?;
        Ok((format!("{}{}", signed.pem(), self.intermediate()), serial.to_hex()))
    }
}

/// No certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The request is rejected.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A proxy must have at least one service.
    #[error("proxy has no service: a proxy certificate names the first one")]
    NoService,
    /// Its content could not be encoded or signed.
    #[error("certificate cannot be issued")]
    Sign(#[source] Box<dyn Error + Send + Sync>),
}

struct Leaf<'a> {
    purpose: Purpose,
    common_name: &'a str,
    identity: SpiffeId,
    names: &'a ServerNames,
    /// Whether it also has a DNS name that contains its serial number.
    is_shared: bool,
    validity: Validity,
}

/// `<proxy-UUID>.<service>.<namespace>`, or the UUID alone if that is too long for X.509. The URI has the
/// whole name in any case, and readers use only the URI.
fn proxy_common_name(proxy: ProxyId, service: &ServiceName) -> String {
    let full = format!("{proxy}.{}.{}", service.name, service.namespace);
    if full.len() <= MAX_COMMON_NAME { full } else { proxy.to_string() }
}

/// The upper bound of a common name (RFC 5280, appendix A.1, `ub-common-name`).
const MAX_COMMON_NAME: usize = 64;
