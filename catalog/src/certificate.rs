//! Certificates as values, and the trait of what keeps them.

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
    /// Takes `pem` as a secret.
    pub fn new(pem: String) -> Self {
        Self(Arc::new(Zeroizing::new(pem)))
    }

    /// The text itself: for the one place that must write or use it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The certificate by which the processes of one service account know each other. One per account
/// for the whole mesh, so that restarts and replicas send the same bytes (invariant 4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCertificate {
    /// Whom it identifies.
    pub account: ServiceAccount,
    /// The leaf and the intermediate that signed it, in PEM.
    pub chain: String,
    /// The leaf's private key (PKCS#8).
    pub key: Secret,
    /// The leaf's serial number, in lower-case hexadecimal.
    pub serial: String,
    /// When it begins.
    pub not_before: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
    /// When it is to be replaced: at two thirds of its life.
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

/// The roots that peers are checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    /// The root certificates, in PEM.
    pub roots: String,
}

/// What keeps certificates over restarts. The embedded store fulfils it, and etcd later.
pub trait CertificateStore: Send + Sync {
    /// The certification authority's material as it was last kept.
    fn authority(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keeps the certification authority's material, encrypted.
    fn put_authority(&self, material: &[u8]) -> Result<(), StoreError>;

    /// All service certificates that are kept.
    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError>;

    /// Keeps a service certificate in place of the account's last one, its key encrypted.
    fn put_service_certificate(&self, certificate: &ServiceCertificate) -> Result<(), StoreError>;
}

/// The store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[error("state store: cannot {operation}")]
pub struct StoreError {
    /// What was attempted, as a verb and its object.
    pub operation: String,
    /// Why not.
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
