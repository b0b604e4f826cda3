//! Service certificates for keys of the machine.

use ironmesh_cert::{WorkloadLeaf, generate_proxy_key_and_csr, proxy_csr};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::support::*;
use crate::{EnrollmentClientError, MAX_BODY, MachineIdentity, ServiceCertificateRequest};

const PATH: &str = "/v1/service-certificates";
const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn body(secret: &str, csr: &str) -> Value {
    json!({ "secret": secret, "csr": csr })
}

#[tokio::test]
async fn proxy_gets_a_service_certificate_for_its_key() {
    let server = Server::start().await;
    let identity = server.identity(HOUR);
    for secret in ["service-cert", "service-cert:shop/bookstore"] {
        let (_, csr) = generate_proxy_key_and_csr().unwrap();
        let request = ServiceCertificateRequest { secret: secret.to_owned(), csr };
        let issued = server.client().issue_service_certificate(&identity, &request).await.unwrap();
        assert_eq!(issued.account.to_string(), "shop/bookstore");
        assert!(WorkloadLeaf::read(&issued.chain).is_some());
    }
    let called = |secret| format!("{secret} {}", proxy());
    assert_eq!(server.calls(), [called("service-cert"), called("service-cert:shop/bookstore")]);
    assert_eq!(server.requests("service_certificate"), 2);
}

#[tokio::test]
async fn service_certificate_needs_a_valid_proxy_certificate() {
    let server = Server::start().await;
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let (status, answer) = server.post(PATH, &body("service-cert", &csr)).await;
    assert_eq!((status, code(&answer)), (403, "certificate_rejected"));
    // A service certificate yields no further one.
    let identity = server.identity(HOUR);
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    let request = ServiceCertificateRequest { secret: "service-cert".to_owned(), csr };
    let issued = server.client().issue_service_certificate(&identity, &request).await.unwrap();
    let workload = MachineIdentity { certificate: issued.chain, key };
    let (status, answer) =
        server.post_as(PATH, &body("service-cert", &request.csr), Some(&workload)).await;
    assert_eq!((status, code(&answer)), (403, "certificate_rejected"));
    let expired = server.identity(HOUR * 48);
    let error = server.client().issue_service_certificate(&expired, &request).await.unwrap_err();
    assert!(matches!(error, EnrollmentClientError::CertificateRefused { .. }), "{error:?}");
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn bad_secret_names_and_csrs_are_rejected() {
    let server = Server::start().await;
    let identity = server.identity(HOUR);
    let (_, good) = generate_proxy_key_and_csr().unwrap();
    let named = rcgen::CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let named = named.serialize_request(&key).unwrap().pem().unwrap();
    let other_key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let mut empty = rcgen::CertificateParams::default();
    empty.distinguished_name = rcgen::DistinguishedName::new();
    let other_key = empty.serialize_request(&other_key).unwrap().pem().unwrap();
    // The last line of base64 holds nothing but signature.
    let last = good.trim_end().rfind('\n').and_then(|end| good[..end].rfind('\n')).unwrap() + 1;
    let mut forged = good.clone();
    forged.replace_range(last..=last, if forged[last..].starts_with('A') { "B" } else { "A" });
    let of_proxy = proxy_csr(&identity.key).unwrap();
    let huge = "x".repeat(MAX_BODY / 2);
    let cases = [
        ("", &good, "not the name of a service certificate"),
        ("roots", &good, "not the name of a service certificate"),
        ("service-cert:bookstore", &good, "not the name of a service certificate"),
        ("service-cert", &named, "subject or attributes"),
        ("service-cert", &other_key, "only ECDSA P-256"),
        ("service-cert", &forged, "not signed by the key"),
        ("service-cert", &huge, "longer than"),
        ("service-cert", &of_proxy, "the key of the proxy"),
    ];
    for (secret, csr, reason) in cases {
        let (status, answer) = server.post_as(PATH, &body(secret, csr), Some(&identity)).await;
        assert_eq!((status, code(&answer)), (400, "request_invalid"), "{secret} {reason}");
        assert!(answer["error"].as_str().unwrap().contains(reason), "{answer}");
    }
    let too_large = body("service-cert", &"x".repeat(MAX_BODY));
    let (status, _) = server.post_as(PATH, &too_large, Some(&identity)).await;
    assert_eq!(status, 413);
    assert!(server.calls().is_empty());
}
