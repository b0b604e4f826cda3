//! The verification of a server by its SPIFFE ID, for clients other than Envoy.
//!
//! Servers of the mesh have SPIFFE IDs, while TLS libraries compare host names. So this verifier ignores the
//! name to which a client connects, as Envoy does.

use std::sync::Arc;

use ironmesh_catalog::SpiffeId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::{inspect, tls};

/// Verifies a server by its chain and its SPIFFE ID, the only URI among its certificate's names.
#[derive(Debug)]
pub struct SpiffeServerVerifier {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
    /// The expected server; without one, any below `roots`.
    expected: Option<SpiffeId>,
}

/// A server with a valid certificate of another identity than the expected one.
#[derive(Debug, thiserror::Error)]
#[error("server certificate has the URI names {found:?}, and `{}` is expected", .expected.as_ref().map_or("one SPIFFE ID", SpiffeId::as_str))]
pub struct UnexpectedServer {
    /// The expected server; without one, any with a SPIFFE ID.
    pub expected: Option<SpiffeId>,
    /// The URI names of its certificate.
    pub found: Vec<String>,
}

impl SpiffeServerVerifier {
    /// A verifier of the one server that has the SPIFFE ID `expected`.
    pub fn pinned(roots: RootCertStore, expected: SpiffeId) -> Self {
        Self { roots, provider: tls::provider(), expected: Some(expected) }
    }

    /// A verifier that accepts every SPIFFE ID below `roots`, for tests and measurements.
    pub fn any(roots: RootCertStore) -> Self {
        Self { roots, provider: tls::provider(), expected: None }
    }

    fn check_identity(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let names = inspect::parse(leaf).and_then(|leaf| inspect::uri_names(&leaf));
        let found = names.map_err(|_| CertificateError::BadEncoding)?;
        let is_expected = match (&self.expected, found.as_slice()) {
            (Some(expected), [only]) => only == expected.as_str(),
            (None, [only]) => only.starts_with("spiffe://"),
            _ => false,
        };
        if is_expected {
            return Ok(());
        }
        let unexpected = UnexpectedServer { expected: self.expected.clone(), found };
        Err(CertificateError::Other(OtherError(Arc::new(unexpected))).into())
    }
}

impl ServerCertVerifier for SpiffeServerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(leaf)?,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        self.check_identity(leaf)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
