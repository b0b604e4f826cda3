//! Certificates as values, and the trait of the store that keeps them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
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
}

impl ServiceCertificate {
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
}

/// A store of certificates. The embedded store implements it, and etcd later.
pub trait CertificateStore: Send + Sync {
    /// The kept material of the certificate authority.
    fn authority(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keeps the material of the certificate authority, encrypted.
    fn put_authority(&self, material: &[u8]) -> Result<(), StoreError>;

    /// All kept service certificates.
    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError>;

    /// Replaces the kept service certificate of the account, with its key encrypted.
    fn put_service_certificate(&self, certificate: &ServiceCertificate) -> Result<(), StoreError>;
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
