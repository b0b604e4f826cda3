//! Who is on the other side of a connection, by the certificate that it has shown.
//!
//! The certificate has been verified by the TLS handshake; this only reads it. Whether the trust
//! domain is ours and the proxy may still come is the caller's to decide.

use ironmesh_catalog::ProxySpiffeId;

use crate::inspect;

/// The proxy that the certificate `leaf` (in DER) identifies.
///
/// It must have exactly one URI among its names, and that must be a proxy's: the certificate of a
/// service is signed by the same authority, and opens nothing here.
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

/// A certificate that identifies no proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It does not parse.
    #[error("client certificate cannot be read")]
    Unreadable,
    /// It has no URI among its names.
    #[error("client certificate has no URI name, and a proxy's has one")]
    NoUri,
    /// It has more than one.
    #[error("client certificate has {count} URI names, and a proxy's has one")]
    SeveralUris {
        /// How many.
        count: usize,
    },
    /// Its URI is not a SPIFFE ID.
    #[error("client certificate does not name a SPIFFE ID: {uri:?}")]
    NotSpiffe {
        /// What it names.
        uri: String,
    },
    /// Its SPIFFE ID is that of something else, such as a workload.
    #[error("client certificate is not a proxy's: {uri:?}")]
    NotAProxy {
        /// What it names.
        uri: String,
    },
}
