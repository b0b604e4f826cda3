//! The credentials of the listener: its own certificate, and the roots below which it accepts clients.

use std::sync::Arc;

use ironmesh_catalog::{TrustBundle, TrustDomain};
use ironmesh_cert::tls::{TlsError, enrollment_server_config};
use ironmesh_cert::{ControlPlaneCertificate, ExpiredProxyVerifier};
use ironmesh_listener::TlsCredentials;
use rustls::ServerConfig;

/// The credentials of the enrollment listener. They change together, at each renewal and rotation.
#[derive(Debug, Clone)]
pub struct EnrollmentCredentials {
    tls: Arc<ServerConfig>,
    pub(super) proxies: ExpiredProxyVerifier,
    /// The SPIFFE ID of the control plane, to which proofs of possession are bound.
    pub(super) control_plane: String,
}

impl EnrollmentCredentials {
    /// The credentials with this certificate of the control plane and these roots.
    pub fn new(
        certificate: &ControlPlaneCertificate,
        bundle: &TrustBundle,
        trust_domain: &TrustDomain,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            tls: enrollment_server_config(certificate, bundle)?,
            proxies: ExpiredProxyVerifier::new(trust_domain.clone(), bundle)?,
            control_plane: trust_domain.control_plane().0.to_string(),
        })
    }
}

impl TlsCredentials for EnrollmentCredentials {
    fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls)
    }
}
