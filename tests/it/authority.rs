//! A certification authority that keeps nothing, and what it issues.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ironmesh_catalog::{
    CertificateStore, Domain, ProxyId, ServiceCertificate, StoreError, TrustDomain,
};
use ironmesh_cert::Authority;
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use uuid::Uuid;

/// An authority of one test. Two of them have nothing in common.
pub(crate) struct TestAuthority(Authority);

/// A proxy and its certificate.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) proxy: ProxyId,
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl TestAuthority {
    pub(crate) fn new() -> Self {
        let trust_domain = TrustDomain::new(Domain::default());
        let store = MemoryStore::default();
        Self(Authority::open(&store, &trust_domain, Timestamp::now()).unwrap())
    }

    /// A new proxy.
    pub(crate) fn proxy(&self) -> Identity {
        let proxy = ProxyId(Uuid::new_v4());
        let (key, request) = ironmesh_cert::generate_proxy_key_and_csr().unwrap();
        let services = ["default/bookstore".parse().unwrap()];
        let hour = Duration::from_secs(3600);
        let certificate = self
            .0
            .issue_proxy_certificate(&request, proxy, &services, hour, Timestamp::now())
            .unwrap();
        Identity { proxy, chain: certificate.chain, key: key.expose().to_owned() }
    }

    /// The TLS configuration of an xDS server.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let certificate = self.0.issue_control_plane_certificate(Timestamp::now()).unwrap();
        ironmesh_cert::tls::server_config(&certificate, &self.0.trust_bundle()).unwrap()
    }

    /// The same with a server certificate that this authority did not issue.
    pub(crate) fn server_config_with(
        &self,
        own: &rcgen::CertifiedKey<rcgen::KeyPair>,
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let peers = WebPkiClientVerifier::builder_with_provider(
            Arc::new(self.roots()),
            Arc::clone(&provider),
        );
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(peers.build().unwrap())
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    /// What is below it is trusted, in PEM.
    pub(crate) fn roots_pem(&self) -> String {
        self.0.trust_bundle().roots
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(self.roots_pem().as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        roots
    }
}

impl Identity {
    /// What the client is known by.
    pub(crate) fn name(&self) -> String {
        self.proxy.to_string()
    }

    pub(crate) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.chain.as_bytes()).map(Result::unwrap).collect()
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

#[derive(Default)]
struct MemoryStore {
    authority: Mutex<Option<Vec<u8>>>,
    certificates: Mutex<Vec<ServiceCertificate>>,
}

impl CertificateStore for MemoryStore {
    fn authority(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.authority.lock().unwrap().clone())
    }

    fn put_authority(&self, material: &[u8]) -> Result<(), StoreError> {
        *self.authority.lock().unwrap() = Some(material.to_vec());
        Ok(())
    }

    fn service_certificates(&self) -> Result<Vec<ServiceCertificate>, StoreError> {
        Ok(self.certificates.lock().unwrap().clone())
    }

    fn put_service_certificate(&self, certificate: &ServiceCertificate) -> Result<(), StoreError> {
        self.certificates.lock().unwrap().push(certificate.clone());
        Ok(())
    }
}
