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

use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::StringMatcher;

use crate::names;
use crate::shape::{exact, namespace_prefix, workload_prefix};

/// The name of the trust bundle.
pub(crate) const ROOTS: &str = "roots";

/// The name of the certificate as which a proxy calls. It is the same for all proxies, so that
/// callers of all accounts share the clusters, which name it.
pub(crate) const OWN_CERTIFICATE: &str = "service-cert";

/// The name of an account's certificate, for the chains of its services.
pub(crate) fn service_certificate_name(account: &ServiceAccount) -> String {
    format!("{OWN_CERTIFICATE}:{account}")
}

/// The certificate of an account as the secret `name`.
pub(crate) fn service_certificate(name: String, certificate: &ServiceCertificate) -> Secret {
    let tls = TlsCertificate {
        certificate_chain: Some(inline(&certificate.chain)),
        private_key: Some(inline(certificate.key.expose())),
        ..TlsCertificate::default()
    };
    Secret { name, r#type: Some(secret::Type::TlsCertificate(tls)) }
}

/// The name of the list of callers of a TCP service port.
pub(crate) fn authorization_name(port: &ServicePort) -> String {
    format!("{}{port}", names::CALLERS)
}

/// A name that no certificate of the mesh has: an empty list of names would admit any certificate
/// (invariant 3).
pub(crate) fn no_caller() -> SubjectAltNameMatcher {
    uri(exact("spiffe://nobody.invalid"))
}

fn uri(name: StringMatcher) -> SubjectAltNameMatcher {
    SubjectAltNameMatcher {
        san_type: SanType::Uri.into(),
        matcher: Some(name),
        ..SubjectAltNameMatcher::default()
    }
}

/// The callers of a TCP service port, with the roots that verify their certificates.
///
/// It exists even without callers: a proxy may still have a chain that refers to it, for example
/// because it NACKed the listener without that chain, and would keep the earlier list. It is a
/// secret of its own because a change of a secret touches no established connection, while a change
/// of the chain that refers to it ends them all.
pub(crate) fn tcp_authorization(
    trust_domain: &TrustDomain,
    bundle: &TrustBundle,
    port: &ServicePort,
    callers: &Callers,
) -> Secret {
    let names = match callers {
        Callers::Anyone => vec![uri(workload_prefix(trust_domain))],
        Callers::AnyoneIn(namespace) => vec![uri(namespace_prefix(trust_domain, namespace))],
        Callers::These(accounts) if accounts.is_empty() => vec![no_caller()],
        Callers::These(accounts) => accounts
            .iter()
            .map(|account| uri(exact(trust_domain.workload(account).as_str())))
            .collect(),
    };
    let context = CertificateValidationContext {
        trusted_ca: Some(inline(&bundle.roots)),
        match_typed_subject_alt_names: names,
        ..CertificateValidationContext::default()
    };
    Secret {
        name: authorization_name(port),
        r#type: Some(secret::Type::ValidationContext(context)),
    }
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
