//! TLS of the control plane's own listeners, and of operators as their clients.
//!
//! It builds complete configurations: certificate, roots and verifier change together, and a listener uses
//! the newest for each connection. It opens no socket.

use std::sync::Arc;

use ironmesh_catalog::{Secret, SpiffeId, TrustBundle};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientCertVerifierBuilder, NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::inspect::{self, Failure};
use crate::issue::ControlPlaneCertificate;
use crate::spiffe_verifier::SpiffeServerVerifier;

/// The configuration of the xDS listener: TLS 1.3, HTTP/2, and a required client certificate below the
/// `bundle`'s roots.
pub fn server_config(
    certificate: &ControlPlaneCertificate,
    bundle: &TrustBundle,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = client_verifier(bundle)?.build().map_err(TlsError::Verifier)?;
    let chain = inspect::certificates(&certificate.chain).map_err(TlsError::Certificate)?;
    configuration(certificate, chain, verifier, b"h2")
}

/// The configuration of the enrollment listener: TLS 1.3, HTTP/1.1, and an optional client certificate below
/// the `bundle`'s roots.
///
/// The chain ends with the roots, so that a client that knows only the hash of a root can find it there.
pub fn enrollment_server_config(
    certificate: &ControlPlaneCertificate,
    bundle: &TrustBundle,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = client_verifier(bundle)?.allow_unauthenticated();
    let verifier = verifier.build().map_err(TlsError::Verifier)?;
    let mut chain = inspect::certificates(&certificate.chain).map_err(TlsError::Certificate)?;
    chain.extend(inspect::certificates(&bundle.roots).map_err(TlsError::Roots)?);
    configuration(certificate, chain, verifier, b"http/1.1")
}

/// The configuration of a client of the operators' API: TLS 1.3, HTTP/1.1, and the control plane verified by its SPIFFE ID
/// below `roots` (PEM). `identity` is the operator's certificate with its issuers (PEM) and its key (PKCS#8 in PEM).
pub fn operator_client_config(
    roots_pem: &str,
    control_plane: SpiffeId,
    identity: Option<(&str, &Secret)>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = roots(&TrustBundle { roots: roots_pem.to_owned() })?;
    let verifier = Arc::new(SpiffeServerVerifier::pinned(roots, control_plane));
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Configuration)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = inspect::certificates(chain).map_err(TlsError::Identity)?;
            let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
                .map_err(|error| TlsError::Identity(error.into()))?;
            // It compares the key with the certificate.
            config.with_client_auth_cert(chain, key).map_err(|e| TlsError::Identity(e.into()))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn client_verifier(bundle: &TrustBundle) -> Result<ClientCertVerifierBuilder, TlsError> {
    let roots = Arc::new(roots(bundle)?);
    Ok(WebPkiClientVerifier::builder_with_provider(roots, provider()))
}

fn configuration(
    certificate: &ControlPlaneCertificate,
    chain: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
    application_protocol: &[u8],
) -> Result<Arc<ServerConfig>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(certificate.key.expose().as_bytes())
        .map_err(|e| TlsError::Certificate(e.into()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Configuration)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(TlsError::Configuration)?;
    config.alpn_protocols = vec![application_protocol.to_vec()];
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
    /// The certificate of an operator or its key does not parse, or they do not belong together.
    #[error("certificate and key of the operator cannot be used together")]
    Identity(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The parts do not fit together.
    #[error("TLS of the control plane cannot be configured")]
    Configuration(#[source] rustls::Error),
}

/// The one cryptography provider, named at each use: no process-wide default decides.
pub fn provider() -> Arc<CryptoProvider> {
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
