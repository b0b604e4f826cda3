//! Certificates: constant placeholders where files are compared, and real ones where Envoy reads
//! them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use ironmesh_catalog::{
    CertificateHistory, Domain, Proxy, Secret, ServiceAccount, ServiceCertificate, TrustBundle,
    TrustDomain,
};
use ironmesh_cert::{Authority, PROXY_LIFETIME, generate_proxy_key_and_csr};
use jiff::Timestamp;

/// Placeholder certificates and keys for `accounts`.
pub(crate) fn placeholders(
    accounts: &BTreeSet<ServiceAccount>,
) -> OrdMap<ServiceAccount, Arc<ServiceCertificate>> {
    let certificate = |account: &ServiceAccount| ServiceCertificate {
        account: account.clone(),
        chain: format!("the certificate of {account}"),
        key: Secret::new(format!("the key of {account}")),
        serial: "00".to_owned(),
        not_before: Timestamp::UNIX_EPOCH,
        not_after: Timestamp::MAX,
        renew_at: Timestamp::MAX,
        history: CertificateHistory::default(),
    };
    accounts.iter().map(|account| (account.clone(), Arc::new(certificate(account)))).collect()
}

/// A placeholder trust bundle.
pub(crate) fn placeholder_roots() -> TrustBundle {
    TrustBundle { roots: "the roots of the mesh".to_owned() }
}

/// The certificate authority of one test.
pub(crate) struct RealCertificates {
    authority: Authority,
    now: Timestamp,
}

impl RealCertificates {
    pub(crate) fn new() -> Self {
        let now = Timestamp::now();
        let trust_domain = TrustDomain::new(Domain::default());
        let authority = Authority::ephemeral(&trust_domain, now).unwrap();
        Self { authority, now }
    }

    /// The roots in PEM.
    pub(crate) fn roots(&self) -> String {
        self.authority.trust_bundle().roots
    }

    /// Issues a certificate of `account`, with its key.
    pub(crate) fn of_account(&self, account: &ServiceAccount) -> ServiceCertificate {
        let day = Duration::from_secs(86_400);
        self.authority.issue_service_certificate(account, day, self.now).unwrap()
    }

    /// Issues a proxy certificate: the chain and the key in PEM.
    pub(crate) fn of_proxy(&self, proxy: &Proxy) -> (String, Secret) {
        let (key, request) = generate_proxy_key_and_csr().unwrap();
        let record = &proxy.record;
        let certificate = self
            .authority
            .issue_proxy_certificate(
                &request,
                record.id,
                &record.services,
                PROXY_LIFETIME,
                self.now,
            )
            .unwrap();
        (certificate.chain, key)
    }
}
