//! A service certificate with its key, checked, and when it is renewed.

use ironmesh_catalog::{Secret, ServiceAccount, ServiceSecret};
use ironmesh_cert::{UnusableWorkloadCertificate, WorkloadLeaf};
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::machine_folder::ProxyFiles;

/// The part of the lifetime after which a certificate is renewed at the latest.
const LATEST: f64 = 2.0 / 3.0;

/// The length of the interval before that in which renewals are due, as a part of the lifetime.
const SPREAD: f64 = 0.05;

/// The number of hexadecimal digits of the digest that choose the point in the interval.
const DIGITS: usize = 8;

/// A service certificate that peers accept, with its key.
#[derive(Debug, Clone)]
pub(crate) struct WorkloadIdentity {
    /// The secret under which Envoy asks for it.
    pub(crate) secret: ServiceSecret,
    /// The account that it identifies.
    pub(crate) account: ServiceAccount,
    /// The certificate and its issuers, in PEM.
    pub(crate) chain: String,
    /// The private key (PKCS#8 in PEM).
    pub(crate) key: Secret,
    /// When it was requested, by the clock of this machine. Its own validity begins earlier.
    pub(crate) requested_at: Timestamp,
    /// What it says of itself.
    pub(crate) leaf: WorkloadLeaf,
}

impl WorkloadIdentity {
    /// Checks a certificate as the peers of the proxy do, at `now`.
    pub(crate) fn verify(
        secret: ServiceSecret,
        account: ServiceAccount,
        chain: String,
        key: Secret,
        requested_at: Timestamp,
        proxy: &ProxyFiles,
        now: Timestamp,
    ) -> Result<Self, UnusableWorkloadCertificate> {
        let trust_domain = &proxy.proxy.identity.trust_domain;
        let leaf = WorkloadLeaf::verify(&chain, &key, &account, trust_domain, &proxy.roots, now)?;
        Ok(Self { secret, account, chain, key, requested_at, leaf })
    }

    /// Whether its leaf is this one, in DER.
    pub(crate) fn has_leaf(&self, leaf: &[u8]) -> bool {
        CertificateDer::from_pem_slice(self.chain.as_bytes()).is_ok_and(|own| *own == *leaf)
    }

    /// When it is renewed: at two thirds of its lifetime, less up to a twentieth of the lifetime. Its digest chooses the
    /// point, so that a restart changes nothing, and the machines of a fleet renew at different times.
    pub(crate) fn renew_at(&self) -> Timestamp {
        let lifetime = self.leaf.not_after.duration_since(self.requested_at);
        let digits = self.leaf.digest.get(..DIGITS).unwrap_or_default();
        let point = u32::from_str_radix(digits, 16).unwrap_or_default();
        let part = LATEST - SPREAD * f64::from(point) / f64::from(u32::MAX);
        let age = SignedDuration::from_secs_f64(lifetime.as_secs_f64().max(0.0) * part);
        self.requested_at.checked_add(age).unwrap_or(self.requested_at)
    }
}
