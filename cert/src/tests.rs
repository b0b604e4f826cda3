//! Tests of the crate as its users see it, with what they share.

mod authority;
mod issue;
mod peer;
mod revocation_lists;
mod service_certificates;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{Domain, ProxyId, ServiceName, TrustBundle, TrustDomain};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;

use crate::memory_store::MemoryStore;
use crate::{Authority, ProxyCertificate, ServerNames, inspect};

const DAY: Duration = Duration::from_secs(86_400);
const UUID: &str = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f";

/// The time of tests that need none in particular: the wall clock's, since a TLS handshake asks it.
fn now() -> Timestamp {
    Timestamp::now()
}

fn trust_domain() -> TrustDomain {
    TrustDomain::new(Domain::default())
}

fn authority() -> Authority {
    Authority::ephemeral(&trust_domain(), now()).unwrap()
}

fn proxy() -> ProxyId {
    UUID.parse().unwrap()
}

fn services() -> Vec<ServiceName> {
    vec!["shop/bookstore".parse().unwrap(), "shop/other".parse().unwrap()]
}

fn proxy_certificate(authority: &Authority, csr: &str) -> ProxyCertificate {
    authority.issue_proxy_certificate(csr, proxy(), &services(), DAY, now()).unwrap()
}

fn chain(pem: &str) -> Vec<CertificateDer<'static>> {
    inspect::certificates(pem).unwrap()
}

fn leaf(pem: &str) -> CertificateDer<'static> {
    chain(pem).remove(0)
}

fn roots(bundle: &TrustBundle) -> Arc<rustls::RootCertStore> {
    Arc::new(crate::tls::roots(bundle).unwrap())
}

fn common_name(der: &[u8]) -> String {
    let certificate = inspect::parse(der).unwrap();
    let name = certificate.subject().iter_common_name().next().unwrap();
    name.as_str().unwrap().to_owned()
}
