//! Secrets: service certificates and the trust bundle, delivered by SDS under fixed names
//! (docs/reference/names.md).

use ironmesh_catalog::{ServiceAccount, ServiceCertificate, TrustBundle};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret,
};

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
