//! Why the client does not trust a server.

use std::error::Error;
use std::io;

use rustls::{CertificateError, OtherError};

use crate::ca_hash::CaHash;

/// A server that is not the expected control plane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedServer {
    /// No root in its chain has an expected hash.
    #[error(
        "expected the CA hash {}, found {}; compare it with the one that `ironmesh proxy token` prints on the control plane, and check the address: another server may answer there",
        list(expected),
        found_roots(found)
    )]
    OtherCa {
        /// The expected hashes.
        expected: Vec<CaHash>,
        /// The hashes of the roots in the server's chain.
        found: Vec<CaHash>,
    },
    /// Its chain or its identity is rejected.
    #[error("{problem}; check the address, the port (15129), and this machine's clock")]
    Rejected {
        /// What was expected and found.
        problem: String,
    },
    /// Its certificate has no SPIFFE ID.
    #[error("its certificate has no SPIFFE ID; check the address and the port (15129)")]
    NoIdentity,
}

impl UntrustedServer {
    /// The reason why the client rejected the server, if `error` is such a rejection.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        let problem = match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
                let other: &(dyn Error + 'static) = &**other;
                if let Some(reason) = other.downcast_ref::<Self>() {
                    return Some(reason.clone());
                }
                other.to_string()
            }
            rustls::Error::InvalidCertificate(_) => error.to_string(),
            _ => return None,
        };
        Some(Self::Rejected { problem })
    }
}

fn list(hashes: &[CaHash]) -> String {
    hashes.iter().map(CaHash::to_string).collect::<Vec<_>>().join(" or ")
}

fn found_roots(hashes: &[CaHash]) -> String {
    if hashes.is_empty() { "no root in the server's chain".to_owned() } else { list(hashes) }
}
