//! TLS of the control plane's own listeners.
//!
//! It builds complete configurations: certificate, roots and verifier change together, and a listener uses
//! the newest for each connection. It opens no socket.

use std::sync::Arc;

use ironmesh_catalog::TrustBundle;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

use crate::inspect::{self, Failure};
use crate::issue::ControlPlaneCertificate;

/// The configuration of the xDS listener: TLS 1.3, HTTP/2, and a required client certificate below the
/// `bundle`'s roots.
pub fn server_config(
    certificate: &ControlPlaneCertificate,
    bundle: &TrustBundle,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots(bundle)?),
        Arc::clone(&provider),
    )
    .build()
    .map_err(TlsError::Verifier)?;
    let chain = inspect::certificates(&certificate.chain).map_err(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(certificate.key.expose().as_bytes())
        .map_err(|e| TlsError::Certificate(e.into()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Configuration)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(TlsError::Configuration)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would skip the verification of the client's chain, even after its root was removed.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// No TLS configuration could be created.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The roots do not parse.
    #[error("root certificates of the mesh cannot be read")]
    Roots(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The roots do not make a verifier.
    #[error("root certificates of the mesh cannot be used")]
    Verifier(#[source] VerifierBuilderError),
    /// The control plane's own certificate or its key does not parse.
    #[error("certificate of the control plane cannot be read")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The parts do not fit together.
    #[error("TLS of the control plane cannot be configured")]
    Configuration(#[source] rustls::Error),
}

/// The one cryptography provider, named at each use: no process-wide default decides.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The roots of a bundle, at least one.
pub fn roots(bundle: &TrustBundle) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in inspect::certificates(&bundle.roots).map_err(TlsError::Roots)? {
        roots.add(root).map_err(|e| TlsError::Roots(Failure::from(e)))?;
    }
    Ok(roots)
}
