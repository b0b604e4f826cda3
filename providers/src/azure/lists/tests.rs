//! Tests of the number of calls per list, and of fallbacks between sources.

use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::super::options::{AzureCloud, AzureOptions};
use super::*;

/// Answers each request by its content, with a status and a body, and serves tokens.
async fn azure(answer: fn(&str) -> (u16, &'static str)) -> (Arm, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let serve = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !is_whole(&request) {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0);
            }
            let request = String::from_utf8(request).unwrap();
            let (status, body) = if request.contains("/oauth2/token") {
                (200, r#"{"access_token": "ey.ey.ey", "expires_in": "3600"}"#)
            } else {
                answer(&request)
            };
            let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
            let head = format!("{head}content-length: {}\r\n\r\n", body.len());
            stream.write_all((head + body).as_bytes()).await.unwrap();
        }
    });
    let cloud = AzureCloud::Custom { resource_manager: at.clone(), login: at.clone() };
    let retry = std::time::Duration::from_millis(1);
    let options = AzureOptions { cloud, metadata: Some(at), retry, ..AzureOptions::default() };
    (Arm::new(&options, Timestamp::now, false).unwrap(), serve)
}

/// Whether the request is complete.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() >= length.trim().parse().unwrap())
}

const EMPTY_LIST: &str = r#"{"value": []}"#;
const NO: &str = r#"{"error": {"code": "So", "message": "it is"}}"#;

fn set() -> List {
    let id =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a";
    List::UniformMachines(ResourceId::parse(id).unwrap())
}

#[tokio::test]
async fn every_call_of_a_query_counts_even_if_it_fails() {
    let (arm, _serve) = azure(|request| match request {
        _ if request.contains("useResourceGraph=true") => (422, NO),
        _ if request.starts_with("POST") => (403, NO),
        _ if request.contains("networkInterfaces") => (503, NO),
        _ if request.contains("statusOnly") => (403, NO),
        _ => (200, EMPTY_LIST),
    })
    .await;
    let outcome = set().ask(&arm, false).await;
    assert!(outcome.answer.is_ok());
    assert_eq!(outcome.calls, 1);
    let outcome = set().ask(&arm, true).await;
    assert!(!outcome.answer.unwrap().is_of_graph);
    assert_eq!(outcome.calls, 2, "Resource Graph was queried first");
    let states = List::States("s".into());
    for with_graph in [false, true] {
        let outcome = states.ask(&arm, with_graph).await;
        assert!(outcome.answer.is_err());
        assert_eq!(outcome.calls, 2, "both sources rejected the call");
    }
    let interfaces = List::Interfaces(Scope { subscription: "s".into(), group: None });
    let outcome = interfaces.ask(&arm, false).await;
    assert!(outcome.answer.is_err());
    assert_eq!(outcome.calls, 3, "the call is retried");
    assert_eq!(arm.made(), 10);
}

#[tokio::test]
async fn truncated_resource_graph_answer_falls_back_to_provider() {
    let (arm, _serve) = azure(|request| match request {
        _ if request.starts_with("POST") => (200, r#"{"data": [], "resultTruncated": "true"}"#),
        _ => (200, EMPTY_LIST),
    })
    .await;
    let outcome = List::States("s".into()).ask(&arm, true).await;
    assert!(!outcome.answer.unwrap().is_of_graph);
    assert_eq!(outcome.calls, 2);
}
