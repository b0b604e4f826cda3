//! The identity of a connected peer, read from its certificate.
//!
//! The TLS handshake has verified the certificate; this module only reads it. The caller checks the trust
//! domain of a proxy, and whether the proxy or the operator is revoked.

use aws_lc_rs::digest;
use ironmesh_catalog::{KeyHash, OperatorName, PresentedCertificate, ProxySpiffeId, TrustDomain};
use jiff::Timestamp;

use crate::inspect;
use crate::profile::{self, hex};

/// A proxy whose certificate is verified: by a TLS handshake, or by [`crate::ExpiredProxyVerifier`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedProxy {
    /// Its identity; its trust domain is that of the mesh.
    pub identity: ProxySpiffeId,
    /// Its certificate in DER.
    pub certificate: Vec<u8>,
    /// The certificate's public key, as a SubjectPublicKeyInfo in DER.
    pub public_key: Vec<u8>,
    /// Its serial number, in lower-case hexadecimal.
    pub serial: String,
    /// When the certificate expires or expired.
    pub not_after: Timestamp,
}

impl VerifiedProxy {
    /// Reads the proxy that the verified certificate `leaf` (in DER) identifies, as [`proxy_identity`] does. The
    /// caller checks the trust domain.
    pub fn read(leaf: &[u8]) -> Result<Self, PeerError> {
        let identity = proxy_identity(leaf)?;
        let certificate = inspect::parse(leaf).map_err(|_| PeerError::Unreadable)?;
        let not_after = certificate.validity().not_after.timestamp();
        Ok(Self {
            identity,
            certificate: leaf.to_vec(),
            public_key: certificate.public_key().raw.to_vec(),
            serial: hex(certificate.raw_serial()),
            not_after: Timestamp::from_second(not_after).map_err(|_| PeerError::Unreadable)?,
        })
    }

    /// What the join record's credentials are compared with.
    pub fn presented(&self) -> PresentedCertificate {
        PresentedCertificate {
            key: key_hash(&self.public_key),
            serial: self.serial.clone(),
            expires_at: self.not_after,
        }
    }
}

/// The hash of a public key, a SubjectPublicKeyInfo in DER.
pub fn key_hash(public_key: &[u8]) -> KeyHash {
    KeyHash(hex(digest::digest(&digest::SHA256, public_key).as_ref()))
}

/// Reads the proxy that the certificate `leaf` (in DER) identifies.
///
/// It must have exactly one URI name, which must be a proxy's: the same authority signs certificates of
/// services, which must not give access here.
pub fn proxy_identity(leaf: &[u8]) -> Result<ProxySpiffeId, PeerError> {
    let names = inspect::parse(leaf)
        .and_then(|certificate| inspect::uri_names(&certificate))
        .map_err(|_| PeerError::Unreadable)?;
    match names.as_slice() {
        [] => Err(PeerError::NoUri),
        [uri] => ProxySpiffeId::parse(uri).ok_or_else(|| {
            let uri = uri.clone();
            if uri.starts_with("spiffe://") {
                PeerError::NotAProxy { uri }
            } else {
                PeerError::NotSpiffe { uri }
            }
        }),
        several => Err(PeerError::SeveralUris { count: several.len() }),
    }
}

/// An operator whose certificate is verified by a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedOperator {
    /// The operator's name.
    pub name: OperatorName,
    /// The serial number of the certificate, in lower-case hexadecimal.
    pub serial: String,
}

impl VerifiedOperator {
    /// Reads the operator of `trust_domain` that the verified certificate `leaf` (in DER) identifies: it has exactly one
    /// URI name, and the usage of operators, which no other certificate of the mesh has.
    pub fn read(leaf: &[u8], trust_domain: &TrustDomain) -> Result<Self, PeerError> {
        let certificate = inspect::parse(leaf).map_err(|_| PeerError::Unreadable)?;
        let names = inspect::uri_names(&certificate).map_err(|_| PeerError::Unreadable)?;
        let [uri] = names.as_slice() else {
            return Err(PeerError::NotAnOperator { uris: names });
        };
        let usages = certificate.extended_key_usage().map_err(|_| PeerError::Unreadable)?;
        let is_for_operators = usages.is_some_and(|usages| {
            usages.value.other.iter().any(|usage| usage.as_bytes() == profile::OPERATOR_USAGE)
        });
        let name = trust_domain.operator_name(uri).filter(|_| is_for_operators);
        let serial = hex(certificate.raw_serial());
        let name = name.ok_or(PeerError::NotAnOperator { uris: names })?;
        Ok(Self { name, serial })
    }
}

/// A certificate that identifies no proxy, or no operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It does not parse.
    #[error("client certificate cannot be read")]
    Unreadable,
    /// It has no URI among its names.
    #[error("client certificate has no URI SAN, but a proxy certificate has exactly one")]
    NoUri,
    /// It has more than one URI among its names.
    #[error("client certificate has {count} URI SANs, but a proxy certificate has exactly one")]
    SeveralUris {
        /// The number of URIs.
        count: usize,
    },
    /// Its URI is not a SPIFFE ID.
    #[error("client certificate does not name a SPIFFE ID: {uri:?}")]
    NotSpiffe {
        /// The URI.
        uri: String,
    },
    /// Its SPIFFE ID is not that of a proxy, but for example of a service account.
    #[error("client certificate is not a proxy's: {uri:?}")]
    NotAProxy {
        /// The SPIFFE ID.
        uri: String,
    },
    /// It is not that of an operator of the mesh.
    #[error("client certificate is not an operator's: {uris:?}")]
    NotAnOperator {
        /// Its URI names.
        uris: Vec<String>,
    },
}
