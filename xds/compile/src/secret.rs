//! Secrets: service certificates and the trust bundle, delivered by SDS under fixed names
//! (docs/reference/names.md).

use ironmesh_catalog::{
    Callers, ServiceAccount, ServiceCertificate, ServicePort, TrustBundle, TrustDomain,
};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, SubjectAltNameMatcher, TlsCertificate, secret,
};

use crate::shape::{exact, workload_prefix};

/// The name of the trust bundle.
pub(crate) const ROOTS: &str = "roots";

/// The name of an account's certificate.
pub(crate) fn service_certificate_name(account: &ServiceAccount) -> String {
    format!("service-cert:{account}")
}

pub(crate) fn service_certificate(certificate: &ServiceCertificate) -> Secret {
    let tls = TlsCertificate {
        certificate_chain: Some(inline(&certificate.chain)),
        private_key: Some(inline(certificate.key.expose())),
        ..TlsCertificate::default()
    };
    Secret {
        name: service_certificate_name(&certificate.account),
        r#type: Some(secret::Type::TlsCertificate(tls)),
    }
}

/// The name of who may connect to a TCP service port.
pub(crate) fn authorization_name(port: &ServicePort) -> String {
    format!("authz:{port}")
}

/// Who may connect to a TCP service port, and what their certificates are checked against. None of
/// nobody: an empty list of names would let in anyone with a certificate (invariant 3).
///
/// It is a secret of its own because a change of a secret touches no established connection, while a
/// change of the chain that refers to it ends them all.
pub(crate) fn tcp_authorization(
    trust_domain: &TrustDomain,
    bundle: &TrustBundle,
    port: &ServicePort,
    callers: &Callers,
) -> Option<Secret> {
    let names = match callers {
        Callers::Anyone => vec![workload_prefix(trust_domain)],
        Callers::These(accounts) if accounts.is_empty() => return None,
        Callers::These(accounts) => {
            accounts.iter().map(|account| exact(trust_domain.workload(account).as_str())).collect()
        }
    };
    let names = names.into_iter().map(|name| SubjectAltNameMatcher {
        san_type: SanType::Uri.into(),
        matcher: Some(name),
        ..SubjectAltNameMatcher::default()
    });
    let context = CertificateValidationContext {
        trusted_ca: Some(inline(&bundle.roots)),
        match_typed_subject_alt_names: names.collect(),
        ..CertificateValidationContext::default()
    };
    Some(Secret {
        name: authorization_name(port),
        r#type: Some(secret::Type::ValidationContext(context)),
    })
}

pub(crate) fn trust_bundle(bundle: &TrustBundle) -> Secret {
    let context = CertificateValidationContext {
        trusted_ca: Some(inline(&bundle.roots)),
        ..Default::default()
    };
    Secret { name: ROOTS.to_owned(), r#type: Some(secret::Type::ValidationContext(context)) }
}

fn inline(text: &str) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineString(text.to_owned())),
        ..DataSource::default()
    }
}
