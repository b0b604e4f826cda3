//! Enrollment by attested documents: the nonce, the look-up, and the metadata service.

use std::collections::VecDeque;
use std::sync::Arc;

use ironmesh_cert::{MachineRequest, generate_proxy_key_and_csr};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::support::*;
use crate::client::MetadataService;
use crate::{
    AzureJoin, EnrollmentClientError, EnrollmentErrorCode, EnrollmentLimits, attestation_nonce,
};

/// A metadata service whose documents are the nonces that are requested.
struct TestImds {
    service: MetadataService,
    /// The heads of all requests.
    requests: Arc<Mutex<Vec<String>>>,
}

/// Starts a metadata service that first gives these answers, each a status and a body.
async fn imds(answers: &[(u16, &str)]) -> TestImds {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let heads = Arc::clone(&requests);
    let answers = answers.iter().map(|(status, body)| (*status, (*body).to_owned()));
    let mut answers: VecDeque<_> = answers.collect();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 2048];
            let length = stream.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let nonce = head.split_once("nonce=").unwrap().1.split(' ').next().unwrap();
            let document = json!({ "encoding": "pkcs7", "signature": nonce }).to_string();
            let (status, body) = answers.pop_front().unwrap_or((200, document));
            heads.lock().push(head);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    TestImds { service, requests }
}

fn join(imds: &TestImds, name: Option<&str>) -> AzureJoin {
    AzureJoin {
        metadata: imds.service,
        certificate_request: generate_proxy_key_and_csr().unwrap().1,
        address: None,
        name: name.map(|name| name.parse().unwrap()),
    }
}

/// The body of a request whose document is for `challenge`.
fn body(challenge: &str, certificate_request: &str) -> Value {
    let request = MachineRequest::parse(certificate_request).unwrap();
    let document = attestation_nonce(challenge, request.public_key());
    json!({
        "challenge": challenge, "document": document, "certificate_request": certificate_request,
    })
}

#[tokio::test]
async fn machine_is_enrolled_by_a_document_for_its_key_and_challenge() {
    let (server, imds) = (Server::start().await, imds(&[]).await);
    server.client().enroll_azure(&join(&imds, None)).await.unwrap();
    assert_eq!(server.calls(), ["enroll azure"]);
    assert_eq!(server.requests("enrolled_azure"), 1);
    let requests = imds.requests.lock().clone();
    let head = requests[0].to_ascii_lowercase();
    assert!(head.starts_with("get /metadata/attested/document?api-version=2021-02-01&nonce="));
    assert!(head.contains("metadata: true\r\n") && !head.contains("forwarded"), "{head}");
}

#[tokio::test]
async fn document_of_another_key_or_challenge_is_rejected() {
    let server = Server::start().await;
    let [own, other] = [(); 2].map(|()| generate_proxy_key_and_csr().unwrap().1);
    let challenge = server.challenge().await;
    let mut relayed = body(&challenge, &own);
    relayed["certificate_request"] = json!(other);
    let mut replayed = body(&challenge, &own);
    replayed["challenge"] = json!(server.challenge().await);
    for bad in [relayed, replayed] {
        let (status, answer) = server.post("/v1/enroll-azure", &bad).await;
        assert_eq!((status, code(&answer)), (403, "attestation_rejected"));
    }
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn challenge_serves_one_enrollment_also_a_failed_one() {
    let server = Server::start().await;
    let csr = generate_proxy_key_and_csr().unwrap().1;
    let good = body(&server.challenge().await, &csr);
    assert_eq!(server.post("/v1/enroll-azure", &good).await.0, 200);
    let (status, answer) = server.post("/v1/enroll-azure", &good).await;
    assert_eq!((status, code(&answer)), (409, "challenge_rejected"));
    let challenge = server.challenge().await;
    let mut bad = body(&challenge, &csr);
    bad["certificate_request"] = json!("none");
    let (status, answer) = server.post("/v1/enroll-azure", &bad).await;
    assert_eq!((status, code(&answer)), (400, "request_invalid"));
    let (status, _) = server.post("/v1/enroll-azure", &body(&challenge, &csr)).await;
    assert_eq!(status, 409);
}

#[tokio::test]
async fn waiting_look_ups_are_bounded_and_hold_no_worker() {
    let limits = EnrollmentLimits {
        waiting_look_ups: 1,
        workers: 1,
        queue: 4,
        ..EnrollmentLimits::default()
    };
    let (server, imds) = (Server::with(limits).await, imds(&[]).await);
    let (client, first) = (server.client(), join(&imds, Some("first")));
    let waiting = tokio::spawn(async move { client.enroll_azure(&first).await });
    server.enroller.begun.acquire().await.unwrap().forget();
    let error = server.client().without_retries().enroll_azure(&join(&imds, Some("second"))).await;
    match error.unwrap_err() {
        EnrollmentClientError::Rejected { code, .. } => assert_eq!(code, EnrollmentErrorCode::Busy),
        error => panic!("{error}"),
    }
    // One that needs no look-up passes.
    server.client().enroll_azure(&join(&imds, None)).await.unwrap();
    server.enroller.ack().await;
    waiting.await.unwrap().unwrap();
    let calls = server.calls();
    assert_eq!(calls, ["look up", "look up", "enroll azure", "enroll azure"]);
}

#[tokio::test]
async fn transient_metadata_failures_are_retried() {
    let answers = [(500, ""), (410, ""), (429, ""), (410, "")];
    let (server, imds) = (Server::start().await, imds(&answers).await);
    server.client().enroll_azure(&join(&imds, None)).await.unwrap();
    assert_eq!(imds.requests.lock().len(), 5);
}

#[tokio::test]
async fn lasting_failures_of_the_metadata_service_name_it() {
    let server = Server::start().await;
    let failure = async |answers: &[(u16, &str)]| {
        let imds = imds(answers).await;
        let error = server.client().enroll_azure(&join(&imds, None)).await.unwrap_err();
        assert!(matches!(error, EnrollmentClientError::Attestation(_)), "{error:?}");
        assert!(error.to_string().contains(&imds.service.to_string()), "{error}");
        (error.to_string(), imds.requests.lock().len())
    };
    let (text, count) = failure(&[(400, "bad \u{1b} request")]).await;
    assert_eq!(count, 1, "a bad request does not become a good one");
    assert!(text.contains("400") && text.contains("bad \\u{1b} request"), "{text}");
    let (_, count) = failure(&[(500, ""); 9]).await;
    assert_eq!(count, 4);
    let (text, _) = failure(&[(200, "<html>")]).await;
    assert!(text.contains("nothing else answers at this address"), "{text}");
    assert!(server.calls().is_empty());
}

#[test]
fn metadata_service_is_always_on_this_machine() {
    assert_eq!(MetadataService::default().to_string(), "http://169.254.169.254:80");
    for good in ["http://127.0.0.1:8080", "http://169.254.169.254:80", "http://[::1]:1"] {
        assert_eq!(good.parse::<MetadataService>().unwrap().to_string(), good);
    }
    for bad in
        ["", "127.0.0.1:1", "http://10.0.0.1:80", "http://localhost:1", "https://127.0.0.1:1"]
    {
        bad.parse::<MetadataService>().unwrap_err();
    }
}
