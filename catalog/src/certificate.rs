//! Certificates as values, and the trait of the store that keeps them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::name::ServiceAccount;

/// A private key in PEM: never shown, wiped when dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(Arc<Zeroizing<String>>);

impl Secret {
    /// The secret with this PEM text.
    pub fn new(pem: String) -> Self {
        Self(Arc::new(Zeroizing::new(pem)))
    }

    /// The PEM text, for the one place that writes or uses it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The certificate that identifies a service account to its peers. There is one per account for the whole mesh,
/// so that restarts and replicas send the same bytes (invariant 4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCertificate {
    /// The account that it identifies.
    pub account: ServiceAccount,
    /// The leaf and the intermediate that signed it, in PEM.
    pub chain: String,
    /// The leaf's private key (PKCS#8).
    pub key: Secret,
    /// The leaf's serial number, in lower-case hexadecimal.
    pub serial: String,
    /// When its validity begins.
    pub not_before: Timestamp,
    /// When it expires.
    pub not_after: Timestamp,
    /// When it is renewed: at two thirds of its lifetime.
    pub renew_at: Timestamp,
    /// What a revocation needs to know of it.
    #[serde(flatten)]
    pub history: CertificateHistory,
}

/// What the revocation of a proxy that shares a service certificate needs to know of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateHistory {
    /// Its only DNS name ([`TrustDomain::shared_dns_name`]); none in a certificate of an earlier version.
    ///
    /// [`TrustDomain::shared_dns_name`]: crate::TrustDomain::shared_dns_name
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_name: Option<String>,
    /// The certificates of the account before it that peers may still accept, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<SharedCertificate>,
    /// How many times a certificate of the account was replaced because a proxy that has it was revoked. Clusters contain
    /// the number, so that Envoys open new connections.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reissues: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A service certificate that the proxies of an account share, or shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCertificate {
    /// The account that it identifies.
    pub account: ServiceAccount,
    /// Its serial number, in lower-case hexadecimal.
    pub serial: String,
    /// Its only DNS name; none in a certificate of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_name: Option<String>,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl SharedCertificate {
    /// Whether a peer may still accept it.
    pub fn is_accepted(&self, now: Timestamp) -> bool {
        may_be_accepted(self.expires_at, now)
    }
}

/// Whether a peer may accept a certificate that expires then.
pub(crate) fn may_be_accepted(expires_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(expires_at) < CLOCK_TOLERANCE
}

/// How far the clock of a peer may be behind, or that of the control plane ahead, before a certificate is forgotten that a
/// peer would accept.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_hours(72);

impl ServiceCertificate {
    /// It and the ones before it.
    pub fn with_earlier(&self) -> impl Iterator<Item = SharedCertificate> {
        let CertificateHistory { dns_name, earlier, .. } = &self.history;
        let newest = SharedCertificate {
            account: self.account.clone(),
            serial: self.serial.clone(),
            dns_name: dns_name.clone(),
            expires_at: self.not_after,
        };
        [newest].into_iter().chain(earlier.iter().cloned())
    }

    /// When it was issued, to within three seconds. It follows from the other times: `renew_at` lies
    /// two thirds of the way from there to `not_after`.
    pub fn issued_at(&self) -> Timestamp {
        let seconds = 3 * self.renew_at.as_second() - 2 * self.not_after.as_second();
        Timestamp::from_second(seconds).unwrap_or(self.not_before)
    }
}

/// The root certificates that verify peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    /// The root certificates, in PEM.
    pub roots: String,
}

/// The certificate revocation lists of the mesh: exactly one for each issuer of service certificates, because peers refuse
/// all certificates of an issuer without a list. They are stored, so that restarts send the same bytes (invariant 4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationLists {
    /// How many times lists were signed. The dates in them follow from it and from no clock.
    pub number: u64,
    /// The serial numbers in each of them, in lower-case hexadecimal.
    pub serials: BTreeSet<String>,
    /// The SHA-256 digests of the issuers' certificates, in the order of the lists.
    pub issuers: Vec<String>,
    /// The lists, in PEM.
    pub pem: Arc<str>,
    /// By account, the number of the first lists with the newest revoked caller of that account. Servers end the TCP
    /// connections of an account when it changes. It stays when the caller leaves the lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last_listed: BTreeMap<ServiceAccount, u64>,
}

/// A store of certificates. The embedded store implements it, and etcd later.
pub trait CertificateStore: Send + Sync {
    /// The kept material of the certificate authority.
    fn authority(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keeps new material of the certificate authority, encrypted, in place of `old`. Returns whether it does: not if
    /// another control plane has stored different material first.
    fn replace_authority(&self, old: Option<&[u8]>, new: &[u8]) -> Result<bool, StoreError>;

    /// All kept service certificates.
    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError>;

    /// The kept service certificate of an account.
    fn service_certificate(
        &self,
        account: &ServiceAccount,
    ) -> Result<Option<ServiceCertificate>, StoreError>;

    /// Keeps a new service certificate of an account, with its key encrypted, in place of `old`. Returns whether it does:
    /// not if another control plane has stored a different one first.
    fn replace_service_certificate(
        &self,
        old: Option<&ServiceCertificate>,
        new: &ServiceCertificate,
    ) -> Result<bool, StoreError>;

    /// The same for many accounts, each with its own result, in the order of `renewed`. A store may write them together.
    fn replace_service_certificates(
        &self,
        renewed: &[RenewedCertificate],
    ) -> Vec<Result<bool, StoreError>> {
        let replace = |one: &RenewedCertificate| {
            self.replace_service_certificate(one.old.as_deref(), &one.new)
        };
        renewed.iter().map(replace).collect()
    }
}

/// A new service certificate of an account.
#[derive(Debug, Clone)]
pub struct RenewedCertificate {
    /// The one that it replaces; none if it is the first.
    pub old: Option<Arc<ServiceCertificate>>,
    /// The new one.
    pub new: Arc<ServiceCertificate>,
}

/// A failed operation of the store.
#[derive(Debug, thiserror::Error)]
#[error("state store: cannot {operation}")]
pub struct StoreError {
    /// The operation, as a verb and its object.
    pub operation: String,
    /// The cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl StoreError {
    /// `operation` failed because of `source`.
    pub fn new(
        operation: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { operation: operation.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_debug_output_hides_the_key() {
        let secret = Secret::new("-----BEGIN PRIVATE KEY-----".to_owned());
        assert!(!format!("{secret:?}").contains("BEGIN"));
    }
}
