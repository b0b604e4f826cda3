//! TLS of the providers' clients, from PEM files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, Error, RootCertStore};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// The reason why a PEM file is unusable.
#[derive(Debug)]
pub(crate) enum PemFileError {
    /// The file cannot be read; the error has its path.
    Unreadable(io::Error),
    /// The content is not the expected PEM.
    Malformed(pem::Error),
}

/// A certificate chain and its key.
pub(crate) type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns a TLS configuration that trusts `roots`, or the system's certificates by default, and
/// shows `identity`.
///
/// It offers HTTP/2 first, because requests share a connection there. It fails if it needs the
/// system's certificates and the machine has none.
pub(crate) fn client_config(
    roots: Option<RootCertStore>,
    identity: Option<ClientIdentity>,
) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?;
    let verifying = match roots {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.with_platform_verifier()?,
    };
    let mut config = match identity {
        Some((chain, key)) => verifying.with_client_auth_cert(chain, key)?,
        None => verifying.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Reads the certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemFileError> {
    let pem = fs_err::read(path).map_err(PemFileError::Unreadable)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(PemFileError::Malformed)?;
    if found.is_empty() {
        return Err(PemFileError::Malformed(pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// Reads the private key of a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemFileError> {
    let pem = fs_err::read(path).map_err(PemFileError::Unreadable)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(PemFileError::Malformed)
}

/// Returns a store of these roots.
pub(crate) fn root_store(roots: Vec<CertificateDer<'static>>) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    roots.into_iter().try_for_each(|root| store.add(root))?;
    Ok(store)
}
