//! What the client knows about the control plane, as a TLS configuration.

use std::sync::Arc;

use ironmesh_catalog::{SpiffeId, TrustBundle};
use ironmesh_cert::{SpiffeServerVerifier, tls};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::MachineIdentity;
use super::ca_hash_verifier::CaHashVerifier;
use super::error::EnrollmentClientError;
use crate::ca_hash::CaHash;

/// What a machine knows about the control plane.
#[derive(Debug, Clone)]
pub enum ServerTrust {
    /// The hashes of the mesh's roots, one of which the server's chain must contain. The root names the trust domain.
    Hashes(Vec<CaHash>),
    /// The mesh's roots, and the SPIFFE ID of its control plane.
    Roots {
        /// The roots.
        bundle: TrustBundle,
        /// The SPIFFE ID.
        control_plane: SpiffeId,
    },
}

impl ServerTrust {
    /// The TLS configuration of a client with or without an identity.
    pub(crate) fn client_config(
        &self,
        identity: Option<&MachineIdentity>,
    ) -> Result<Arc<ClientConfig>, EnrollmentClientError> {
        let wrong = |problem: &dyn std::fmt::Display| EnrollmentClientError::Trust {
            problem: problem.to_string(),
        };
        let verifier: Arc<dyn ServerCertVerifier> = match self {
            Self::Hashes(hashes) if hashes.is_empty() => {
                return Err(wrong(&"no CA hash is given: `ironmesh proxy token` prints it"));
            }
            Self::Hashes(hashes) => Arc::new(CaHashVerifier::new(hashes.clone())),
            Self::Roots { bundle, control_plane } => {
                let roots = tls::roots(bundle).map_err(|error| wrong(&error))?;
                Arc::new(SpiffeServerVerifier::pinned(roots, control_plane.clone()))
            }
        };
        let builder = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(MachineIdentity { certificate, key }) => {
                let unusable = |_| EnrollmentClientError::UnusableCertificate;
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
                let chain = chain.collect::<Result<_, _>>().map_err(unusable)?;
                let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes());
                builder
                    .with_client_auth_cert(chain, key.map_err(unusable)?)
                    .map_err(|error| wrong(&error))?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}
