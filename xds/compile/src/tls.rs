//! The TLS between proxies: mutual, TLS 1.3, certificates by SDS.
//!
//! A caller offers the ALPN `ironmesh` alone, and a server's filter chain matches on that offer; the
//! server's context does *not* list it. If it did, TLS would settle on `ironmesh`, Envoy would take
//! that for "not h2", and HTTP/2 between proxies would end in protocol errors (seen on 1.40).

use ironmesh_catalog::{CertificateSource, ServiceAccount, SpiffeId};
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::core::v3::TransportSocket;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::downstream_tls_context::SessionTicketKeysType;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
    SubjectAltNameMatcher, TlsParameters, UpstreamTlsContext,
};

use crate::secret::{OWN_CERTIFICATE, ROOTS, certificate_source, service_certificate_name};
use crate::shape::{ads, exact, no, number, transport_socket, yes};

/// The ALPN that distinguishes mesh connections from all others.
pub(crate) const MESH_ALPN: &str = "ironmesh";

/// The TLS context of a caller with certificates from `source`, that requires the server to be
/// `server`.
pub(crate) fn upstream(
    server: &SpiffeId,
    server_name: String,
    source: CertificateSource,
) -> Option<TransportSocket> {
    let san = SubjectAltNameMatcher {
        san_type: SanType::Uri.into(),
        matcher: Some(exact(server.as_str())),
        ..SubjectAltNameMatcher::default()
    };
    let who = CertificateValidationContext {
        match_typed_subject_alt_names: vec![san],
        ..CertificateValidationContext::default()
    };
    let combined = CombinedCertificateValidationContext {
        default_validation_context: Some(who),
        validation_context_sds_secret_config: Some(sds(ROOTS)),
        ..CombinedCertificateValidationContext::default()
    };
    let context = UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            alpn_protocols: vec![MESH_ALPN.to_owned()],
            ..common(
                certificate(OWN_CERTIFICATE, source),
                ValidationContextType::CombinedValidationContext(combined),
            )
        }),
        sni: server_name,
        // A resumed session would skip the verification of the server's certificate.
        max_session_keys: number(0),
        ..UpstreamTlsContext::default()
    };
    transport_socket(any(&context))
}

/// The TLS context of a server of `account` with certificates from `source`. It requires a
/// certificate that the secret `peers` accepts. With [`ROOTS`] that is any of the mesh, and HTTP
/// authorization decides what each caller may do.
pub(crate) fn downstream(
    account: &ServiceAccount,
    source: CertificateSource,
    peers: &str,
) -> Option<TransportSocket> {
    let peers = ValidationContextType::ValidationContextSdsSecretConfig(sds(peers));
    let context = DownstreamTlsContext {
        common_tls_context: Some(common(served(account, source), peers)),
        require_client_certificate: yes(),
        disable_stateful_session_resumption: true,
        session_ticket_keys_type: Some(SessionTicketKeysType::DisableStatelessSessionResumption(
            true,
        )),
        ..DownstreamTlsContext::default()
    };
    transport_socket(any(&context))
}

/// The TLS context of a server of `account` for ingress. It requires a certificate of the mesh's
/// roots, or none. HTTP authorization decides what each caller may do.
pub(crate) fn ingress(
    account: &ServiceAccount,
    source: CertificateSource,
    asks: bool,
) -> Option<TransportSocket> {
    let validation =
        asks.then(|| ValidationContextType::ValidationContextSdsSecretConfig(sds(ROOTS)));
    let context = DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            alpn_protocols: vec!["h2".to_owned(), "http/1.1".to_owned()],
            ..common(served(account, source), validation)
        }),
        require_client_certificate: if asks { yes() } else { no() },
        disable_stateful_session_resumption: true,
        session_ticket_keys_type: Some(SessionTicketKeysType::DisableStatelessSessionResumption(
            true,
        )),
        ..DownstreamTlsContext::default()
    };
    transport_socket(any(&context))
}

/// The certificate for the chains of an account.
fn served(account: &ServiceAccount, source: CertificateSource) -> SdsSecretConfig {
    certificate(&service_certificate_name(account), source)
}

fn certificate(name: &str, source: CertificateSource) -> SdsSecretConfig {
    SdsSecretConfig { name: name.to_owned(), sds_config: certificate_source(source) }
}

fn common(
    certificate: SdsSecretConfig,
    validation: impl Into<Option<ValidationContextType>>,
) -> CommonTlsContext {
    // Envoy's default for clients is TLS 1.2 at most.
    let parameters = TlsParameters {
        tls_minimum_protocol_version: TlsProtocol::TlSv13.into(),
        tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
        ..TlsParameters::default()
    };
    CommonTlsContext {
        tls_params: Some(parameters),
        tls_certificate_sds_secret_configs: vec![certificate],
        validation_context_type: validation.into(),
        ..CommonTlsContext::default()
    }
}

fn sds(name: &str) -> SdsSecretConfig {
    SdsSecretConfig { name: name.to_owned(), sds_config: ads() }
}
