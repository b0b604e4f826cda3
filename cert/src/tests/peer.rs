use rcgen::{CertificateParams, KeyPair, SanType};

use super::*;
use crate::generate_proxy_key_and_csr;
use crate::peer::{PeerError, proxy_identity};

fn certificate_with(uris: &[&str]) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec!["proxy.example".to_owned()]).unwrap();
    params
        .subject_alt_names
        .extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
}

#[test]
fn a_proxy_is_known_by_its_certificate() {
    let authority = authority();
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let identity = proxy_identity(&leaf(&proxy_certificate(&authority, &csr).chain)).unwrap();
    assert_eq!(identity.trust_domain, trust_domain());
    assert_eq!((identity.proxy, identity.service), (proxy(), services()[0].clone()));
}

#[test]
fn certificates_of_services_and_of_the_control_plane_are_no_proxys() {
    let authority = authority();
    let account = "shop/bookstore".parse().unwrap();
    let service = authority.issue_service_certificate(&account, DAY, now()).unwrap();
    let error = proxy_identity(&leaf(&service.chain)).unwrap_err();
    let uri = "spiffe://mesh.internal/ns/shop/sa/bookstore".to_owned();
    assert_eq!(error, PeerError::NotAProxy { uri });
    let own = authority.issue_control_plane_certificate(&ServerNames::default(), now()).unwrap();
    assert!(matches!(proxy_identity(&leaf(&own.chain)), Err(PeerError::NotAProxy { .. })));
}

#[test]
fn anything_but_one_uri_of_a_proxy_is_refused() {
    let uri = format!("spiffe://mesh.internal/proxy/{UUID}/ns/shop/svc/bookstore");
    assert!(proxy_identity(&certificate_with(&[&uri])).is_ok());
    let refused = |uris: &[&str]| proxy_identity(&certificate_with(uris)).unwrap_err();
    assert_eq!(refused(&[]), PeerError::NoUri);
    assert_eq!(refused(&[&uri, &uri]), PeerError::SeveralUris { count: 2 });
    assert_eq!(
        refused(&[&uri, "https://example.org"]),
        PeerError::SeveralUris { count: 2 },
        "a second URI of any kind"
    );
    assert!(matches!(refused(&["https://example.org/x"]), PeerError::NotSpiffe { .. }));
    assert!(matches!(refused(&[&uri.to_uppercase()]), PeerError::NotSpiffe { .. }));
    assert!(matches!(refused(&[&format!("{uri}/x")]), PeerError::NotAProxy { .. }));
    for odd in ["bookstore/", "book%2fstore", "..", "", "Bookstore", &"x".repeat(2048)] {
        let error = refused(&[&uri.replace("bookstore", odd)]);
        assert!(matches!(error, PeerError::NotAProxy { .. }), "{odd}: {error}");
    }
    assert_eq!(proxy_identity(b"no certificate").unwrap_err(), PeerError::Unreadable);
    let mut der = certificate_with(&[&uri]).to_vec();
    der.push(0);
    assert_eq!(proxy_identity(&der).unwrap_err(), PeerError::Unreadable);
}
