//! The verification of proxy certificates that may have expired, for their renewal.
//!
//! TLS refuses an expired certificate. This module verifies its chain as of the last second of its validity,
//! and so proves that this mesh issued it. It proves neither that the sender holds the key nor that the proxy
//! may still renew: both are the caller's checks.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{TrustBundle, TrustDomain};
use jiff::Timestamp;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::UnixTime;

use crate::inspect;
use crate::peer::{PeerError, VerifiedProxy};
use crate::tls::{self, TlsError};

/// The most certificates of a chain: a proxy's has two.
const MAX_CHAIN: usize = 5;

/// Verifies proxy certificates of one mesh, expired or not.
#[derive(Debug, Clone)]
pub struct ExpiredProxyVerifier {
    trust_domain: TrustDomain,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ExpiredProxyVerifier {
    /// A verifier of the proxies of `trust_domain`, below the `bundle`'s roots.
    pub fn new(trust_domain: TrustDomain, bundle: &TrustBundle) -> Result<Self, TlsError> {
        let roots = Arc::new(tls::roots(bundle)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, tls::provider());
        Ok(Self { trust_domain, verifier: verifier.build().map_err(TlsError::Verifier)? })
    }

    /// The proxy whose certificate is the first one in `chain_pem`, if this mesh issued it for a proxy and its
    /// validity has begun.
    pub fn verify(
        &self,
        chain_pem: &str,
        now: Timestamp,
    ) -> Result<VerifiedProxy, UnverifiedProxy> {
        let chain = inspect::certificates(chain_pem).map_err(|_| PeerError::Unreadable)?;
        let (leaf, issuers) = chain.split_first().ok_or(PeerError::Unreadable)?;
        if chain.len() > MAX_CHAIN {
            return Err(UnverifiedProxy::LongChain { length: chain.len() });
        }
        let proxy = VerifiedProxy::read(leaf)?;
        let seconds = now.as_second().min(proxy.not_after.as_second() - 1);
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.verifier.verify_client_cert(leaf, issuers, time).map_err(UnverifiedProxy::Rejected)?;
        self.check_trust_domain(&proxy)?;
        Ok(proxy)
    }

    /// The proxy whose certificate `leaf` a TLS handshake has verified.
    pub fn connected(&self, leaf: &[u8]) -> Result<VerifiedProxy, UnverifiedProxy> {
        let proxy = VerifiedProxy::read(leaf)?;
        self.check_trust_domain(&proxy)?;
        Ok(proxy)
    }

    fn check_trust_domain(&self, proxy: &VerifiedProxy) -> Result<(), UnverifiedProxy> {
        let found = &proxy.identity.trust_domain;
        if *found == self.trust_domain {
            return Ok(());
        }
        Err(UnverifiedProxy::OtherTrustDomain {
            found: found.clone(),
            expected: self.trust_domain.clone(),
        })
    }
}

/// A certificate that identifies no proxy of the mesh.
#[derive(Debug, thiserror::Error)]
pub enum UnverifiedProxy {
    /// It is no proxy certificate.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// It comes with more certificates than any chain of the mesh.
    #[error(
        "certificate chain has {length} certificates: send the leaf and its issuers, at most {MAX_CHAIN}"
    )]
    LongChain {
        /// The number of certificates.
        length: usize,
    },
    /// The mesh did not issue it, or it is not valid yet.
    #[error("certificate is not one that this mesh issued, or its validity has not begun")]
    Rejected(#[source] rustls::Error),
    /// It is of another trust domain.
    #[error("certificate has the trust domain `{found}`, not `{expected}`")]
    OtherTrustDomain {
        /// The trust domain of the certificate.
        found: TrustDomain,
        /// The trust domain of this mesh.
        expected: TrustDomain,
    },
}
