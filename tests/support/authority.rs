//! A certification authority that keeps nothing, and what it issues.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ironmesh_catalog::{
    CertificateStore, Domain, ProxyId, ServiceAccount, ServiceCertificate, StoreError, TrustBundle,
    TrustDomain,
};
use ironmesh_cert::{Authority, ServerNames};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use uuid::Uuid;

/// An authority of one test. Two of them have nothing in common.
#[derive(Debug)]
pub struct TestAuthority(Authority);

impl Default for TestAuthority {
    fn default() -> Self {
        Self::new()
    }
}

/// A proxy and its certificate.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Who it is.
    pub proxy: ProxyId,
    /// Its certificate and what is between that and the roots, in PEM.
    pub chain: String,
    /// Its private key, in PEM.
    pub key: String,
}

impl TestAuthority {
    /// A new one.
    pub fn new() -> Self {
        let trust_domain = TrustDomain::new(Domain::default());
        let store = MemoryStore::default();
        Self(Authority::open(&store, &trust_domain, Timestamp::now()).unwrap())
    }

    /// A new proxy.
    pub fn proxy(&self) -> Identity {
        self.issue(ProxyId(Uuid::new_v4()))
    }

    /// A new proxy whose certificate ends soon.
    pub fn proxy_for(&self, lifetime: Duration) -> Identity {
        self.issue_for(ProxyId(Uuid::new_v4()), lifetime)
    }

    /// What `proxy` is identified by.
    pub fn issue(&self, proxy: ProxyId) -> Identity {
        self.issue_for(proxy, Duration::from_secs(3600))
    }

    fn issue_for(&self, proxy: ProxyId, lifetime: Duration) -> Identity {
        let (key, request) = ironmesh_cert::generate_proxy_key_and_csr().unwrap();
        let services = ["default/bookstore".parse().unwrap()];
        let certificate = self
            .0
            .issue_proxy_certificate(&request, proxy, &services, lifetime, Timestamp::now())
            .unwrap();
        Identity { proxy, chain: certificate.chain, key: key.expose().to_owned() }
    }

    /// The TLS configuration of an xDS server that listens on loopback.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let names = ServerNames {
            hosts: ["localhost".to_owned()].into(),
            addresses: [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].into(),
        };
        let certificate = self.0.issue_control_plane_certificate(&names, Timestamp::now()).unwrap();
        ironmesh_cert::tls::server_config(&certificate, &self.0.trust_bundle()).unwrap()
    }

    /// A certificate of a service account.
    pub fn account(&self, account: &ServiceAccount) -> ServiceCertificate {
        let hour = Duration::from_secs(3600);
        self.0.issue_service_certificate(account, hour, Timestamp::now()).unwrap()
    }

    /// What peers are checked against.
    pub fn trust_bundle(&self) -> TrustBundle {
        self.0.trust_bundle()
    }

    /// What those trust who trust this authority.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(self.roots_pem().as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        roots
    }

    /// The same in PEM.
    pub fn roots_pem(&self) -> String {
        self.0.trust_bundle().roots
    }
}

impl Identity {
    /// What the client is known by.
    pub fn name(&self) -> String {
        self.proxy.to_string()
    }

    /// Its chain.
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.chain.as_bytes()).map(Result::unwrap).collect()
    }

    /// Its key.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
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
