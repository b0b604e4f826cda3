//! What a proxy asks about itself: authentication, limits and the protocol.

use std::time::Duration;

use ironmesh_catalog::ServiceAccount;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::support::*;
use crate::{EnrollmentClientError, EnrollmentLimits, LeaveRequest, MachineIdentity, ProxySync};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

#[tokio::test]
async fn proxy_leaves_rejoins_and_reads_its_state_with_mutual_tls() {
    let server = Server::start().await;
    let (client, identity) = (server.client(), server.identity(HOUR));
    let request = LeaveRequest { revoke: false };
    let (left, ()) =
        tokio::join!(client.leave(&identity, request), async { server.enroller.ack().await });
    let left = left.unwrap();
    assert!(left.acked && !left.revoked);
    let status = client.proxy_status(&identity).await.unwrap();
    assert_eq!((status.id, status.sync), (proxy(), ProxySync::Synced));
    client.rejoin(&identity).await.unwrap();
    let request = LeaveRequest { revoke: true };
    let (left, ()) =
        tokio::join!(client.leave(&identity, request), async { server.enroller.ack().await });
    assert!(left.unwrap().revoked);
    let calls = ["leave", "proxy status", "rejoin", "leave", "revoke left"];
    assert_eq!(server.calls(), calls.map(|call| format!("{call} {}", proxy())));
    for (word, count) in [("leaving", 2), ("proxy_status", 1), ("rejoined", 1)] {
        assert_eq!(server.requests(word), count, "{word}");
    }
}

#[tokio::test]
async fn requests_about_a_proxy_need_its_certificate() {
    let server = Server::start().await;
    // The authority of the mesh has issued this one, too, but for a service account.
    let account: ServiceAccount = "shop/bookstore".parse().unwrap();
    let day = Duration::from_secs(86_400);
    let service = server.authority.issue_service_certificate(&account, day, Timestamp::now());
    let service = service.unwrap();
    let service = MachineIdentity { certificate: service.chain, key: service.key };
    for identity in [None, Some(&service)] {
        for path in ["/v1/leave", "/v1/rejoin"] {
            let (status, answer) = server.post_as(path, &json!({}), identity).await;
            assert_eq!((status, code(&answer)), (403, "certificate_rejected"), "{path}");
        }
        let request = "GET /v1/proxy HTTP/1.1\r\nhost: a\r\n\r\n";
        let (status, answer) = server.send(request, identity).await;
        assert_eq!((status, code(&answer)), (403, "certificate_rejected"));
    }
    let other = Server::start().await.identity(HOUR);
    let error = server.client().leave(&other, LeaveRequest::default()).await.unwrap_err();
    assert!(matches!(error, EnrollmentClientError::CertificateRefused { .. }), "{error:?}");
    let expired = server.identity(SignedDuration::from_hours(48));
    let error = server.client().rejoin(&expired).await.unwrap_err();
    assert!(error.is_expired_certificate(), "{error:?}");
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn waiting_leaves_are_bounded_and_do_not_block_other_requests() {
    let limits =
        EnrollmentLimits { waiting_leaves: 2, workers: 1, queue: 4, ..EnrollmentLimits::default() };
    let server = Server::with(limits).await;
    let (client, identity) = (server.client(), server.identity(HOUR));
    let leave = |revoke| client.leave(&identity, LeaveRequest { revoke });
    let waiting = async { tokio::join!(leave(false), leave(false)) };
    let others = async {
        drop(server.enroller.begun.acquire_many(2).await.unwrap());
        // Both have their permits soon after they have begun.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!leave(false).await.unwrap().acked, "it is answered without a wait");
        client.proxy_status(&identity).await.unwrap();
        let body = json!({ "revoke": true, "of_a_later_version": 1 });
        let (status, answer) = server.post_as("/v1/leave", &body, Some(&identity)).await;
        assert_eq!((status, code(&answer)), (503, "busy"), "it is not revoked without a wait");
        server.enroller.ack().await;
    };
    let ((one, other), ()) = tokio::join!(waiting, others);
    assert!(one.unwrap().acked && other.unwrap().acked);
}
