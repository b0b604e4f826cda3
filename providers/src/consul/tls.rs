//! How agents are known, and how they know us.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::error::ConsulError;
use super::options::ConsulOptions;

/// The TLS of all connections to agents. HTTP/2 is offered first: there, queries share a connection.
pub(super) fn client_config(options: &ConsulOptions) -> Result<ClientConfig, ConsulError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(ConsulError::Tls)?;
    let verifying = match &options.ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("ca", path)? {
                roots.add(certificate).map_err(ConsulError::Tls)?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.with_platform_verifier().map_err(ConsulError::Tls)?,
    };
    let mut config = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates("certificate", certificate)?;
            let pem = read("key", key)?;
            let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|source| ConsulError::Pem {
                key: "key",
                path: key.clone(),
                source,
            })?;
            verifying.with_client_auth_cert(chain, key).map_err(ConsulError::Tls)?
        }
        (None, None) => verifying.with_no_client_auth(),
        (Some(_), None) => return Err(ConsulError::Half { given: "certificate", missing: "key" }),
        (None, Some(_)) => return Err(ConsulError::Half { given: "key", missing: "certificate" }),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConsulError> {
    let failed = |source| ConsulError::Pem { key, path: path.to_owned(), source };
    let pem = read(key, path)?;
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(failed)?;
    if found.is_empty() {
        return Err(failed(rustls_pki_types::pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, ConsulError> {
    fs_err::read(path).map_err(|source| ConsulError::File { key, source })
}
