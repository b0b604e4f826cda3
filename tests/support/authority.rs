//! A certificate authority in memory, and the certificates that it issues.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    Domain, ProxyId, ServiceAccount, ServiceCertificate, TrustBundle, TrustDomain,
};
use ironmesh_cert::{Authority, ServerNames};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use uuid::Uuid;

/// A certificate authority of one test. Two of them share nothing.
#[derive(Debug)]
pub struct TestAuthority(Authority);

impl Default for TestAuthority {
    fn default() -> Self {
        Self::new()
    }
}

/// A proxy id with its certificate and key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The id of the proxy.
    pub proxy: ProxyId,
    /// The certificate chain without the root, in PEM.
    pub chain: String,
    /// The private key, in PEM.
    pub key: String,
}

impl TestAuthority {
    /// Creates an authority.
    pub fn new() -> Self {
        let trust_domain = TrustDomain::new(Domain::default());
        Self(Authority::ephemeral(&trust_domain, Timestamp::now()).unwrap())
    }

    /// Issues a certificate for a new proxy.
    pub fn proxy(&self) -> Identity {
        self.issue(ProxyId(Uuid::new_v4()))
    }

    /// Issues a short-lived certificate for a new proxy.
    pub fn proxy_for(&self, lifetime: Duration) -> Identity {
        self.issue_for(ProxyId(Uuid::new_v4()), lifetime)
    }

    /// Issues a certificate for the proxy `proxy`.
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

    /// The TLS configuration of an xDS server on loopback.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let names = ServerNames {
            hosts: ["localhost".to_owned()].into(),
            addresses: [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].into(),
        };
        let certificate = self.0.issue_control_plane_certificate(&names, Timestamp::now()).unwrap();
        ironmesh_cert::tls::server_config(&certificate, &self.0.trust_bundle()).unwrap()
    }

    /// Issues a service certificate for an account.
    pub fn account(&self, account: &ServiceAccount) -> ServiceCertificate {
        let hour = Duration::from_secs(3600);
        self.0.issue_service_certificate(account, hour, Timestamp::now()).unwrap()
    }

    /// The trust bundle against which peers verify each other.
    pub fn trust_bundle(&self) -> TrustBundle {
        self.0.trust_bundle()
    }

    /// The roots of this authority.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(self.roots_pem().as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        roots
    }

    /// The roots in PEM.
    pub fn roots_pem(&self) -> String {
        self.0.trust_bundle().roots
    }
}

impl Identity {
    /// The name by which the xDS server knows this client.
    pub fn name(&self) -> String {
        self.proxy.to_string()
    }

    /// The certificate chain.
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.chain.as_bytes()).map(Result::unwrap).collect()
    }

    /// The private key.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}
