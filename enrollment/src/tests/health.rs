//! Reports of the health of applications: authentication, limits and the protocol.

use ironmesh_catalog::ApplicationState;
use jiff::SignedDuration;
use serde_json::json;

use super::support::*;
use crate::{
    HealthReport, MAX_BODY, MAX_REASON, MAX_REPORTED_APPLICATIONS, MAX_REPORTED_COUNT,
    MAX_REPORTED_FLOWS, ReportedApplication,
};

#[tokio::test]
async fn proxy_reports_the_health_of_its_applications() {
    let server = Server::start().await;
    let identity = server.identity(SignedDuration::from_hours(1));
    let application = ReportedApplication {
        service: "shop/bookstore".parse().unwrap(),
        port: 80,
        target: 8080,
        state: ApplicationState::Healthy,
        reason: None,
    };
    let report = HealthReport { applications: vec![application], ..HealthReport::default() };
    let answer = server.client().report_health(&identity, &report).await.unwrap();
    assert_eq!(answer.report_in_seconds, 10);
    assert_eq!(server.calls(), [format!("health 1 {}", proxy())]);
    assert_eq!(server.requests("health"), 1);
}

#[tokio::test]
async fn malformed_or_oversized_health_report_is_rejected() {
    let server = Server::start().await;
    let identity = server.identity(SignedDuration::from_hours(1));
    let (status, answer) = server.post("/v1/health", &json!({ "applications": [] })).await;
    assert_eq!((status, code(&answer)), (403, "certificate_rejected"));
    let one = json!({ "service": "a/b", "port": 80, "target": 80, "state": "healthy" });
    let with = |key: &str, value: serde_json::Value| {
        let mut one = one.clone();
        one[key] = value;
        json!({ "applications": [one] })
    };
    for bad in [
        json!({}),
        json!({ "applications": 1 }),
        with("service", json!("Not a service")),
        with("port", json!(65_536)),
        with("port", json!(-1)),
        with("state", json!(7)),
        with("reason", json!("x".repeat(MAX_REASON + 1))),
        json!({ "applications": vec![one.clone(); MAX_REPORTED_APPLICATIONS + 1] }),
    ] {
        let (status, answer) = server.post_as("/v1/health", &bad, Some(&identity)).await;
        assert_eq!((status, code(&answer)), (400, "request_invalid"), "{bad}");
    }
    let large = with("reason", json!("x".repeat(MAX_BODY)));
    let (status, _) = server.post_as("/v1/health", &large, Some(&identity)).await;
    assert_eq!(status, 413);
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn malformed_or_oversized_traffic_is_rejected() {
    let server = Server::start().await;
    let identity = server.identity(SignedDuration::from_hours(1));
    let one = json!({ "service": "a/b", "port": 80, "requests": 1, "latency": [[5, 1]] });
    let with = |key: &str, value: serde_json::Value| {
        let mut one = one.clone();
        one[key] = value;
        json!({ "batch": 1, "seconds": 10, "outbound": [one] })
    };
    let buckets: Vec<_> = (0..60).map(|bucket| (10 * bucket, 1)).collect();
    let flow = json!({ "service": "a/b", "port": 80, "latency": buckets });
    for bad in [
        json!(1),
        json!({ "batch": 1 }),
        json!({ "batch": -1, "seconds": 10 }),
        json!({ "batch": 1, "seconds": 10, "outbound": 1 }),
        with("service", json!("Not a service")),
        with("port", json!(65_536)),
        with("requests", json!(-1)),
        with("requests", json!(1.5)),
        with("requests", json!(MAX_REPORTED_COUNT + 1)),
        with("in_flight", json!(MAX_REPORTED_COUNT + 1)),
        with("latency", json!([[5, -1]])),
        with("latency", json!([[5, MAX_REPORTED_COUNT + 1]])),
        json!({ "batch": 1, "seconds": 10, "inbound": vec![one.clone(); MAX_REPORTED_FLOWS + 1] }),
        json!({ "batch": 1, "seconds": 10, "inbound": vec![flow; MAX_REPORTED_FLOWS] }),
    ] {
        let body = json!({ "applications": [], "traffic": bad });
        let (status, answer) = server.post_as("/v1/health", &body, Some(&identity)).await;
        assert_eq!((status, code(&answer)), (400, "request_invalid"), "{bad}");
    }
    assert!(server.calls().is_empty());
    let good = with("in_flight", json!(3));
    let body = json!({ "applications": [], "traffic": good });
    let (status, answer) = server.post_as("/v1/health", &body, Some(&identity)).await;
    assert_eq!(status, 200, "{answer}");
}
