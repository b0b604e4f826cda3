//! Renewal: with the current certificate, and by proof of possession.

use http::Method;
use ironmesh_catalog::ServiceAccount;
use ironmesh_cert::generate_proxy_key_and_csr;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::support::*;
use crate::client::{Exchange, proof};
use crate::{ControlPlaneAddress, EnrollmentClientError, MachineIdentity, RenewRequest};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const TWO_DAYS: SignedDuration = SignedDuration::from_hours(48);

fn control_plane() -> String {
    trust_domain().control_plane().0.to_string()
}

/// An expired identity, and a request for its key.
fn expired(server: &Server) -> (MachineIdentity, String) {
    let (key, csr) = generate_proxy_key_and_csr().unwrap();
    (server.identity_for(key, &csr, TWO_DAYS), csr)
}

fn renewal() -> RenewRequest {
    RenewRequest { certificate_request: generate_proxy_key_and_csr().unwrap().1 }
}

#[tokio::test]
async fn valid_certificate_is_renewed_with_mutual_tls() {
    let server = Server::start().await;
    let identity = server.identity(HOUR);
    server.client().renew(&identity, &renewal()).await.unwrap();
    assert_eq!(server.calls(), [format!("renew {}", proxy())]);
    assert_eq!(server.requests("renewed"), 1);
}

#[tokio::test]
async fn expired_certificate_is_refused_by_tls_and_renewed_by_proof() {
    let server = Server::start().await;
    let (identity, csr) = expired(&server);
    let error = server.client().renew(&identity, &renewal()).await.unwrap_err();
    assert!(matches!(error, EnrollmentClientError::CertificateRefused { .. }), "{error:?}");
    assert!(error.to_string().contains("proof of possession"), "{error}");
    assert!(server.calls().is_empty());
    server.client().renew_expired(&identity, &csr).await.unwrap();
    assert_eq!(server.calls(), [format!("renew expired {}", proxy())]);
}

#[tokio::test]
async fn renewal_needs_a_proxy_certificate() {
    let server = Server::start().await;
    let body = serde_json::to_value(renewal()).unwrap();
    let (status, answer) = server.post("/v1/renew", &body).await;
    assert_eq!((status, code(&answer)), (403, "certificate_rejected"));
    // The authority of the mesh has issued this one, too, but for a service account.
    let account: ServiceAccount = "shop/bookstore".parse().unwrap();
    let day = std::time::Duration::from_secs(86_400);
    let service = server.authority.issue_service_certificate(&account, day, Timestamp::now());
    let service = service.unwrap();
    let identity = MachineIdentity { certificate: service.chain, key: service.key };
    let (status, answer) = server.post_as("/v1/renew", &body, Some(&identity)).await;
    assert_eq!((status, code(&answer)), (403, "certificate_rejected"));
    assert!(server.calls().is_empty());
}

async fn answer(server: &Server, body: &Value) -> (u16, String) {
    let (status, answer) = server.post("/v1/renew-expired", body).await;
    (status, answer["code"].as_str().unwrap_or("renewed").to_owned())
}

#[tokio::test]
async fn proof_of_possession_serves_one_request_once() {
    let server = Server::start().await;
    let (identity, csr) = expired(&server);
    let make = |nonce: String, csr: &str, control_plane: &str| {
        serde_json::to_value(proof(&identity, csr, nonce, control_plane).unwrap()).unwrap()
    };
    let rejected = (403, "certificate_rejected".to_owned());
    let stale = (409, "challenge_rejected".to_owned());

    let good = make(server.challenge().await, &csr, &control_plane());
    assert_eq!(answer(&server, &good).await, (200, "renewed".to_owned()));
    assert_eq!(answer(&server, &good).await, stale, "a replayed nonce");
    let forged = make("00".repeat(56), &csr, &control_plane());
    assert_eq!(answer(&server, &forged).await, stale);

    let other_key = generate_proxy_key_and_csr().unwrap();
    let request = make(server.challenge().await, &other_key.1, &control_plane());
    assert_eq!(answer(&server, &request).await, rejected, "a request for another key");

    let thief = MachineIdentity { certificate: identity.certificate.clone(), key: other_key.0 };
    let request = proof(&thief, &csr, server.challenge().await, &control_plane()).unwrap();
    let request = serde_json::to_value(request).unwrap();
    assert_eq!(answer(&server, &request).await, rejected, "a signature by another key");

    let mut request = make(server.challenge().await, &csr, &control_plane());
    request["nonce"] = json!(server.challenge().await);
    assert_eq!(answer(&server, &request).await, rejected, "a signature over another nonce");

    let request = make(server.challenge().await, &csr, "spiffe://other.example/control-plane");
    assert_eq!(answer(&server, &request).await, rejected, "a signature for another server");

    // Another valid request for the same key.
    let key = rcgen::KeyPair::from_pem(identity.key.expose()).unwrap();
    let mut content = rcgen::CertificateParams::default();
    content.distinguished_name = rcgen::DistinguishedName::new();
    let other_request = content.serialize_request(&key).unwrap().pem().unwrap();
    assert_ne!(other_request, csr);
    let mut request = make(server.challenge().await, &csr, &control_plane());
    request["certificate_request"] = json!(other_request);
    assert_eq!(answer(&server, &request).await, rejected, "an exchanged request");

    assert_eq!(server.calls().len(), 1);
}

/// A name may lead to several control planes, and each accepts its own challenges alone.
#[tokio::test]
async fn exchange_goes_to_the_server_of_the_challenge_not_to_the_name() {
    let server = Server::start().await;
    let (identity, csr) = expired(&server);
    let tls = server.trust().client_config(None).unwrap();
    let name = ControlPlaneAddress { host: "control-plane.invalid".to_owned(), port: 1 };
    let exchange = Exchange::open(&tls, &name, Some(server.address)).await.unwrap();
    assert_eq!(exchange.peer(), Some(server.address));
    let request =
        proof(&identity, &csr, server.challenge().await, exchange.control_plane()).unwrap();
    let sent = exchange.send::<_, Value>(Method::POST, "/v1/renew-expired", Some(&request));
    sent.await.unwrap();
    assert!(Exchange::open(&tls, &name, None).await.is_err(), "the name leads nowhere");
}

#[tokio::test]
async fn proof_with_a_certificate_of_another_mesh_is_rejected() {
    let (server, other) = (Server::start().await, Server::start().await);
    let (foreign, csr) = expired(&other);
    let request = proof(&foreign, &csr, server.challenge().await, &control_plane()).unwrap();
    let request = serde_json::to_value(request).unwrap();
    assert_eq!(answer(&server, &request).await.1, "certificate_rejected");
    assert!(server.calls().is_empty());
}
