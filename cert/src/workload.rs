//! A workload's certificate as its machine sees it: read from the answer of a control plane, and checked before Envoy
//! gets it.
//!
//! It issues nothing, and reads no clock.

use aws_lc_rs::digest;
use ironmesh_catalog::{Secret, ServiceAccount, SpiffeId, TrustBundle, TrustDomain};
use jiff::Timestamp;

use crate::inspect::{self, Inspector, UnfitCertificate};
use crate::profile::hex;
use crate::tls::TlsError;

/// The leaf of a service certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadLeaf {
    /// Its serial number, in lower-case hexadecimal.
    pub serial: String,
    /// When it expires.
    pub not_after: Timestamp,
    /// Its public key, as a SubjectPublicKeyInfo in DER.
    pub public_key: Vec<u8>,
    /// The SHA-256 digest of the certificate in DER, in lower-case hexadecimal.
    pub digest: String,
}

impl WorkloadLeaf {
    /// Reads the first certificate of a chain in PEM; none if that is not possible. It verifies nothing.
    pub fn read(chain: &str) -> Option<Self> {
        let leaf = inspect::certificates(chain).ok()?.into_iter().next()?;
        let certificate = inspect::parse(&leaf).ok()?;
        let not_after = certificate.validity().not_after.timestamp();
        Some(Self {
            serial: hex(certificate.raw_serial()),
            not_after: Timestamp::from_second(not_after).ok()?,
            public_key: certificate.public_key().raw.to_vec(),
            digest: hex(digest::digest(&digest::SHA256, &leaf).as_ref()),
        })
    }

    /// Checks a chain (in PEM) with the private key of its leaf as a peer does that trusts `bundle`: it is that of `account`
    /// in `trust_domain`, and valid at `now` or later.
    ///
    /// # Errors
    ///
    /// Fails if the certificate must not be used, or if `bundle` has no roots.
    pub fn verify(
        chain: &str,
        key: &Secret,
        account: &ServiceAccount,
        trust_domain: &TrustDomain,
        bundle: &TrustBundle,
        now: Timestamp,
    ) -> Result<Self, UnusableWorkloadCertificate> {
        let identity: SpiffeId = trust_domain.workload(account);
        Inspector::new(bundle)?.check_pair(chain, key, &identity, now)?;
        let unreadable = || UnfitCertificate::Unreadable("no certificate".into());
        Ok(Self::read(chain).ok_or_else(unreadable)?)
    }
}

/// A certificate that Envoy must not get.
#[derive(Debug, thiserror::Error)]
pub enum UnusableWorkloadCertificate {
    /// Peers would reject it.
    #[error(transparent)]
    Unfit(#[from] UnfitCertificate),
    /// The roots cannot be read.
    #[error(transparent)]
    Roots(#[from] TlsError),
}
