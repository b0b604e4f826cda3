//! Enrollment: what machines send and get.

use ironmesh_listener::TlsCredentials as _;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_cert::MachineRequest;
use ironmesh_cert::peer::VerifiedProxy;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::support::*;
use crate::server::EnrollmentCredentials;
use crate::{EnrollmentClientError, EnrollmentErrorCode, EnrollmentLimits};

#[tokio::test]
async fn enrolled_machine_gets_a_certificate_for_its_key() {
    let server = Server::start().await;
    let (_, request) = request();
    let enrolled = server.client().enroll(&request).await.unwrap();
    let leaf = CertificateDer::from_pem_slice(enrolled.certificate.as_bytes()).unwrap();
    let issued = VerifiedProxy::read(&leaf).unwrap();
    let key = MachineRequest::parse(&request.certificate_request).unwrap();
    assert_eq!(issued.public_key, key.public_key());
    assert_eq!(issued.identity.proxy, proxy());
    assert_eq!(enrolled.roots, server.authority.trust_bundle().roots);
    assert_eq!(server.requests("enrolled"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_simultaneous_enrollments_leave_the_server_responsive() {
    // All enrollments are at work at once, for as long as the test wants.
    let patience = Duration::from_secs(300);
    let limits = EnrollmentLimits {
        workers: 100,
        handshake_time: patience,
        request_time: patience,
        connection_time: patience,
        ..EnrollmentLimits::default()
    };
    let server = Arc::new(Server::with(limits).await);
    let closed = server.enroller.gate.lock().await;
    let mut enrollments = JoinSet::new();
    for _ in 0..100 {
        let server = Arc::clone(&server);
        let body = enroll_body(&request().1.certificate_request);
        enrollments.spawn(async move { server.post("/v1/enroll", &body).await });
    }
    server.enroller.begun.acquire_many(100).await.unwrap().forget();
    for _ in 0..10 {
        server.challenge().await;
    }
    assert!(enrollments.try_join_next().is_none(), "the gate is closed");
    drop(closed);
    while let Some(enrolled) = enrollments.join_next().await {
        assert_eq!(enrolled.unwrap().0, 200);
    }
    assert_eq!(server.calls().len(), 100);
}

#[tokio::test]
async fn rejected_token_is_final_and_gives_no_reason() {
    let server = Server::start().await;
    let (_, mut request) = request();
    request.token = ironmesh_catalog::Secret::new("another".to_owned());
    let error = server.client().enroll(&request).await.unwrap_err();
    assert!(
        matches!(&error, EnrollmentClientError::Rejected { code, .. } if *code == EnrollmentErrorCode::TokenRejected)
    );
    assert!(error.to_string().contains("unknown, expired or already used"), "{error}");
    assert_eq!(server.requests("token_rejected"), 1);
}

#[tokio::test]
async fn invalid_certificate_requests_never_reach_the_enroller() {
    let server = Server::start().await;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let with = |change: &dyn Fn(&mut CertificateParams), key: &KeyPair| {
        let mut content = CertificateParams::default();
        content.distinguished_name = DistinguishedName::new();
        change(&mut content);
        content.serialize_request(key).unwrap().pem().unwrap()
    };
    let uri: rcgen::string::Ia5String = "spiffe://mesh.internal/control-plane".try_into().unwrap();
    let san = with(&|content| content.subject_alt_names = vec![SanType::URI(uri.clone())], &key);
    let subject = with(&|content| content.distinguished_name.push(DnType::CommonName, "x"), &key);
    let other_curve = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let other_curve = with(&|_| (), &other_curve);
    let good = with(&|_| (), &key);
    // The last bytes are those of the signature.
    let mut lines: Vec<_> = good.lines().map(str::to_owned).collect();
    let signature = lines.iter().rposition(|line| !line.starts_with('-')).unwrap();
    lines[signature] = lines[signature].replacen(char::is_alphanumeric, "+", 3);
    let tampered = lines.join("\n");
    let huge = format!("{good}{}", "x".repeat(20_000));
    for bad in [&san, &subject, &other_curve, &tampered, &huge, "", "no PEM"] {
        let (status, body) = server.post("/v1/enroll", &enroll_body(bad)).await;
        assert_eq!((status, code(&body)), (400, "request_invalid"), "{bad}");
    }
    assert!(server.calls().is_empty());
    assert_eq!(server.post("/v1/enroll", &enroll_body(&good)).await.0, 200);
}

#[tokio::test]
async fn unknown_paths_and_malformed_requests_are_rejected() {
    let server = Server::start().await;
    let (status, answer) = server.post("/v1/other", &json!({})).await;
    assert_eq!((status, code(&answer)), (404, "request_invalid"));
    let (status, answer) = server.post("/v1/enroll", &json!({ "token": 1 })).await;
    assert_eq!((status, code(&answer)), (400, "request_invalid"));
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn temporary_error_and_unreachable_replica_are_retried() {
    let server = Server::start().await;
    server.enroller.failures.store(1, std::sync::atomic::Ordering::SeqCst);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = client(&[closed, server.address], server.trust());
    client.enroll(&request().1).await.unwrap();
    assert_eq!(server.calls().len(), 2);
}

#[tokio::test]
async fn lost_response_is_requested_again() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let certificate = control_plane_certificate(&server.authority);
    let bundle = server.authority.trust_bundle();
    let tls = EnrollmentCredentials::new(&certificate, &bundle, &trust_domain()).unwrap().tls();
    let losing = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(tls).accept(tcp).await.unwrap();
        let mut byte = [0];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut byte).await.unwrap();
    });
    let client = client(&[address, server.address], server.trust());
    client.enroll(&request().1).await.unwrap();
    losing.await.unwrap();
    assert_eq!(server.calls(), ["enroll"]);
}
