//! Reports of the ports that accept callers: authentication and the protocol.

use jiff::SignedDuration;
use serde_json::json;

use super::support::*;
use crate::{MAX_BODY, ServingReport};

#[tokio::test]
async fn proxy_reports_the_ports_that_it_serves() {
    let server = Server::start().await;
    let identity = server.identity(SignedDuration::from_hours(1));
    let names = ["80.bookstore.shop.mesh.internal", "81.bookstore.shop.mesh.internal"];
    let names = names.map(str::to_owned).into();
    let report = ServingReport { ports: [("shop/bookstore".parse().unwrap(), names)].into() };
    let answer = server.client().report_serving(&identity, &report).await.unwrap();
    assert!(answer.recorded);
    assert_eq!(answer.account.unwrap().to_string(), "shop/bookstore");
    assert_eq!(server.calls(), [format!("serving 2 {}", proxy())]);
    assert_eq!(server.requests("serving"), 1);
}

#[tokio::test]
async fn malformed_or_anonymous_serving_report_is_rejected() {
    let server = Server::start().await;
    let identity = server.identity(SignedDuration::from_hours(1));
    let good = json!({ "ports": {} });
    let (status, answer) = server.post("/v1/serving", &good).await;
    assert_eq!((status, code(&answer)), (403, "certificate_rejected"));
    for bad in [json!({}), json!({ "ports": { "Not an account": [] } }), json!({ "ports": 1 })] {
        let (status, answer) = server.post_as("/v1/serving", &bad, Some(&identity)).await;
        assert_eq!((status, code(&answer)), (400, "request_invalid"), "{bad}");
    }
    let large = json!({ "ports": { "a/b": ["x".repeat(MAX_BODY)] } });
    let (status, _) = server.post_as("/v1/serving", &large, Some(&identity)).await;
    assert_eq!(status, 413);
    assert!(server.calls().is_empty());
}
