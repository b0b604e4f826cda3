//! Secrets: service certificates and the trust bundle, delivered by SDS under fixed names
//! (docs/reference/names.md).

use ironmesh_catalog::{
    Callers, CertificateSource, ServiceAccount, ServiceCertificate, ServicePort,
    ServiceSecret, TrustBundle, TrustDomain,
};
use ironmesh_sidecar::envoy::CERTIFICATES_CLUSTER;
use ironmesh_xds_wire::pb::envoy::config::core::v3::api_config_source::ApiType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use ironmesh_xds_wire::pb::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{
    ApiConfigSource, ApiVersion, BackoffStrategy, ConfigSource, DataSource, GrpcService,
    RetryPolicy, data_source::Specifier,
};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, SubjectAltNameMatcher, TlsCertificate, secret,
};
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::StringMatcher;
use ironmesh_xds_wire::pb::google::protobuf::Duration;

use crate::names;
use crate::shape::{NO_TIMEOUT, ads, exact, namespace_prefix, workload_prefix};

/// The name of the trust bundle.
pub(crate) const ROOTS: &str = "roots";

/// The name of the certificate as which a proxy calls.
pub(crate) const OWN_CERTIFICATE: &str = ServiceSecret::OWN_NAME;

/// The name of an account's certificate, for the chains of its services.
pub(crate) fn service_certificate_name(account: &ServiceAccount) -> String {
    ServiceSecret::OfAccount(account.clone()).to_string()
}

/// Where Envoy gets its certificates from.
pub(crate) fn certificate_source(source: CertificateSource) -> Option<ConfigSource> {
    match source {
        CertificateSource::Ads => ads(),
        CertificateSource::Agent => Some(agent()),
    }
}

/// The agent's socket. Envoy opens one stream for each name.
///
/// Without the time limit of zero, Envoy would open its ports after 15 s without a certificate. Without the short
/// backoff, it would return to a restarted agent after up to 30 s.
fn agent() -> ConfigSource {
    let backoff = BackoffStrategy {
        base_interval: Some(Duration { seconds: 0, nanos: 200_000_000 }),
        max_interval: Some(Duration { seconds: 1, nanos: 0 }),
    };
    let agent = EnvoyGrpc {
        cluster_name: CERTIFICATES_CLUSTER.to_owned(),
        retry_policy: Some(RetryPolicy { retry_back_off: Some(backoff), ..RetryPolicy::default() }),
        ..EnvoyGrpc::default()
    };
    let service = GrpcService {
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(agent)),
        ..GrpcService::default()
    };
    let api = ApiConfigSource {
        api_type: ApiType::DeltaGrpc.into(),
        transport_api_version: ApiVersion::V3.into(),
        set_node_on_first_message_only: true,
        grpc_services: vec![service],
        ..ApiConfigSource::default()
    };
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        initial_fetch_timeout: Some(NO_TIMEOUT),
        config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(api)),
        ..ConfigSource::default()
    }
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
///
/// Revoked callers are refused by serial number, since the list of names has accounts. Without one there is no
/// revocation list: Envoy would refuse all certificates of an issuer without one.
pub(crate) fn tcp_authorization(
    trust_domain: &TrustDomain,
    bundle: &TrustBundle,
    revocation_lists: Option<&str>,
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
        crl: revocation_lists.map(inline),
        // The root signs no list: it revokes no intermediate.
        only_verify_leaf_cert_crl: revocation_lists.is_some(),
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
