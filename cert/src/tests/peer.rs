use rcgen::{CertificateParams, KeyPair, SanType};

use super::*;
use crate::generate_proxy_key_and_csr;
use crate::peer::{PeerError, VerifiedOperator, proxy_identity};

fn certificate_with(uris: &[&str]) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec!["proxy.example".to_owned()]).unwrap();
    params
        .subject_alt_names
        .extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
}

#[test]
fn proxy_identity_is_read_from_its_certificate() {
    let authority = authority();
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let identity = proxy_identity(&leaf(&proxy_certificate(&authority, &csr).chain)).unwrap();
    assert_eq!(identity.trust_domain, trust_domain());
    assert_eq!((identity.proxy, identity.service), (proxy(), services()[0].clone()));
}

/// A6.
#[test]
fn service_and_control_plane_certificates_identify_no_proxy() {
    let authority = authority();
    let account = "shop/bookstore".parse().unwrap();
    let service = authority.issue_service_certificate(&account, DAY, now()).unwrap();
    let error = proxy_identity(&leaf(&service.chain)).unwrap_err();
    let uri = "spiffe://mesh.internal/ns/shop/sa/bookstore".to_owned();
    assert_eq!(error, PeerError::NotAProxy { uri });
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap();
    assert!(matches!(proxy_identity(&leaf(&own.chain)), Err(PeerError::NotAProxy { .. })));
}

/// A6, A7.
#[test]
fn certificate_without_exactly_one_proxy_uri_is_rejected() {
    let uri = format!("spiffe://mesh.internal/proxy/{UUID}/ns/shop/svc/bookstore");
    assert!(proxy_identity(&certificate_with(&[&uri])).is_ok());
    let rejection = |uris: &[&str]| proxy_identity(&certificate_with(uris)).unwrap_err();
    assert_eq!(rejection(&[]), PeerError::NoUri);
    assert_eq!(rejection(&[&uri, &uri]), PeerError::SeveralUris { count: 2 });
    assert_eq!(
        rejection(&[&uri, "https://example.org"]),
        PeerError::SeveralUris { count: 2 },
        "a second URI of any kind"
    );
    assert!(matches!(rejection(&["https://example.org/x"]), PeerError::NotSpiffe { .. }));
    assert!(matches!(rejection(&[&uri.to_uppercase()]), PeerError::NotSpiffe { .. }));
    assert!(matches!(rejection(&[&format!("{uri}/x")]), PeerError::NotAProxy { .. }));
    for odd in ["bookstore/", "book%2fstore", "..", "", "Bookstore", &"x".repeat(2048)] {
        let error = rejection(&[&uri.replace("bookstore", odd)]);
        assert!(matches!(error, PeerError::NotAProxy { .. }), "{odd}: {error}");
    }
    assert_eq!(proxy_identity(b"no certificate").unwrap_err(), PeerError::Unreadable);
    let mut der = certificate_with(&[&uri]).to_vec();
    der.push(0);
    assert_eq!(proxy_identity(&der).unwrap_err(), PeerError::Unreadable);
}

fn operator_certificate(authority: &Authority) -> crate::OperatorCertificate {
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let name = "ann.b".parse().unwrap();
    authority.issue_operator_certificate(&csr, &name, DAY, now()).unwrap()
}

#[test]
fn operator_is_read_from_its_certificate_and_is_no_proxy() {
    let certificate = operator_certificate(&authority());
    let leaf = leaf(&certificate.chain);
    let operator = VerifiedOperator::read(&leaf, &trust_domain()).unwrap();
    assert_eq!((operator.name.as_str(), operator.serial), ("ann.b", certificate.serial));
    assert_eq!(common_name(&leaf), "ann.b");
    assert!(matches!(proxy_identity(&leaf), Err(PeerError::NotAProxy { .. })));
    let other = TrustDomain::new(Domain::new("other.internal").unwrap());
    assert!(
        VerifiedOperator::read(&leaf, &other).is_err(),
        "the trust domain is part of the identity"
    );
}

#[test]
fn other_certificates_identify_no_operator() {
    let authority = authority();
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let account = "shop/bookstore".parse().unwrap();
    let service = authority.issue_service_certificate(&account, DAY, now()).unwrap();
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap();
    let proxy = proxy_certificate(&authority, &csr);
    for other in [proxy.chain, service.chain, own.chain] {
        let error = VerifiedOperator::read(&leaf(&other), &trust_domain()).unwrap_err();
        assert!(matches!(error, PeerError::NotAnOperator { .. }), "{error}");
    }
    // The identity alone is not enough: the usage must be there, too.
    let without_usage = certificate_with(&["spiffe://mesh.internal/operator/ann"]);
    assert!(VerifiedOperator::read(&without_usage, &trust_domain()).is_err());
}

/// A verifier of client certificates accepts the usages of an operator, and one of servers does not.
#[test]
fn operator_certificate_is_for_clients_only() {
    let authority = authority();
    let bundle = authority.trust_bundle();
    let chain = chain(&operator_certificate(&authority).chain);
    let (leaf, intermediates) = chain.split_first().unwrap();
    let time = rustls_pki_types::UnixTime::now();
    let roots = roots(&bundle);
    let provider = crate::tls::provider();
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::clone(&roots),
        Arc::clone(&provider),
    );
    clients.build().unwrap().verify_client_cert(leaf, intermediates, time).unwrap();
    let parsed = rustls::server::ParsedCertificate::try_from(leaf).unwrap();
    let algorithms = provider.signature_verification_algorithms.all;
    let server = rustls::client::verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &roots,
        intermediates,
        time,
        algorithms,
    );
    assert!(server.is_err(), "an operator must not be able to act as a server");
}
