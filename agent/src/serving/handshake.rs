//! A handshake with a port of this machine, up to the certificate that it presents.
//!
//! The handshake is ended there: a complete one would need a caller's certificate, and would reach the application of a
//! TCP port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_cert::tls::provider;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The protocol that a caller's proxy offers: without it, no chain matches.
const MESH_ALPN: &[u8] = b"ironmesh";

/// The time limit of a handshake with a process of this machine.
const LIMIT: Duration = Duration::from_secs(3);

/// Why a port presents no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("`{address}` cannot be reached")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("`{address}` has not answered within {} s", LIMIT.as_secs())]
    Slow { address: SocketAddr },
    #[error("`{address}` ended the handshake")]
    Refused { address: SocketAddr, source: io::Error },
    #[error("`{name}` is no server name")]
    Name { name: String, source: InvalidDnsNameError },
    #[error("TLS cannot be configured")]
    Configuration(#[source] rustls::Error),
}

impl HandshakeError {
    /// Whether all names of the address fail alike.
    pub(super) fn is_of_all_names(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Slow { .. } | Self::Configuration(_))
    }
}

/// The leaf, in DER, that `address` presents to callers of `name`.
pub(super) async fn presented_leaf(
    address: SocketAddr,
    name: &str,
) -> Result<Vec<u8>, HandshakeError> {
    let server_name = ServerName::try_from(name.to_owned())
        .map_err(|source| HandshakeError::Name { name: name.to_owned(), source })?;
    let recorder = Arc::new(LeafRecorder::default());
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(HandshakeError::Configuration)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::<LeafRecorder>::clone(&recorder))
        .with_no_client_auth();
    config.alpn_protocols = vec![MESH_ALPN.to_vec()];
    let handshake = async {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|source| HandshakeError::Connect { address, source })?;
        let ended = TlsConnector::from(Arc::new(config)).connect(server_name, stream).await;
        let leaf = recorder.leaf.lock().take();
        let source = || ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
        leaf.ok_or_else(|| HandshakeError::Refused { address, source: source() })
    };
    timeout(LIMIT, handshake).await.map_err(|_| HandshakeError::Slow { address })?
}

/// Records the leaf, and rejects every certificate, which ends the handshake.
#[derive(Debug, Default)]
struct LeafRecorder {
    leaf: Mutex<Option<Vec<u8>>>,
}

impl LeafRecorder {
    const ENDED: rustls::Error =
        rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
}

impl ServerCertVerifier for LeafRecorder {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.leaf.lock() = Some(leaf.to_vec());
        Err(Self::ENDED)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(Self::ENDED)
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(Self::ENDED)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
