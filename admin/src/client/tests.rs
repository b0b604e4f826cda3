//! Hangs of the control plane, on virtual time.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::time::{Instant, timeout};

use super::*;

/// A socket whose process answers `/healthz` until `hangs_after`, and nothing else.
fn socket(folder: &Path, hangs_after: Duration) -> PathBuf {
    let socket = folder.join("admin.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let hangs_at = Instant::now() + hangs_after;
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if Instant::now() < hangs_at {
                let mut head = [0; 13];
                stream.read_exact(&mut head).await.unwrap();
                if head.starts_with(b"GET /healthz") {
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                        .await
                        .unwrap();
                }
            }
            open.push(stream);
        }
    });
    socket
}

fn question() -> Question {
    let question = r#"{"caller":"a","service":"b","port":null,"request":null}"#;
    serde_json::from_str(question).unwrap()
}

fn plan_request() -> PlanRequest {
    PlanRequest { documents: Vec::new(), resources: false }
}

// Time is virtual in these tests, and advances when all tasks wait.
#[tokio::test(start_paused = true)]
async fn hung_control_plane_fails_every_command_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new(&socket(folder.path(), Duration::ZERO));
    let begun = Instant::now();
    let explained = client.explain(&question()).await.map(|_| ());
    let planned = client.plan(&plan_request()).await.map(|_| ());
    let listed = client.proxies(ProxyQuery::default()).await.map(|_| ());
    for result in [explained, planned, listed] {
        assert!(matches!(result, Err(ClientError::Silent { .. })), "{result:?}");
    }
    assert_eq!(begun.elapsed(), 3 * LIMIT);
}

#[tokio::test(start_paused = true)]
async fn read_that_hangs_fails_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new(&socket(folder.path(), PLAN_LIMIT));
    let begun = Instant::now();
    let results = [
        client.readiness().await.map(|_| ()),
        client.proxies(ProxyQuery::default()).await.map(|_| ()),
        client.endpoints(None).await.map(|_| ()),
    ];
    for result in results {
        assert!(matches!(result, Err(ClientError::Slow { .. })), "{result:?}");
    }
    assert_eq!(begun.elapsed(), 3 * LIMIT);
}

#[tokio::test(start_paused = true)]
async fn change_that_waits_for_the_disk_has_the_long_limit() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new(&socket(folder.path(), PLAN_LIMIT));
    let begun = Instant::now();
    let results = [
        client.revoke(&RevokeRequest::default()).await.map(|_| ()),
        client.accept_removal(&AcceptRemovalRequest::default()).await.map(|_| ()),
        client.accept_endpoints(&"shop/store".parse().unwrap()).await.map(|_| ()),
    ];
    for result in results {
        assert!(matches!(result, Err(ClientError::Slow { .. })), "{result:?}");
    }
    assert_eq!(begun.elapsed(), 3 * LONG_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn long_request_detects_a_hung_control_plane_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let alive = Duration::from_secs(10);
    let client = Client::new(&socket(folder.path(), alive));
    let begun = Instant::now();
    let planned = client.plan(&plan_request()).await.map(|_| ());
    assert!(matches!(planned, Err(ClientError::Silent { .. })), "{planned:?}");
    assert!(begun.elapsed() <= alive + LIMIT, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn plan_request_has_a_longer_limit_than_other_requests() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new(&socket(folder.path(), PLAN_LIMIT * 2));
    let given_up = timeout(LONG_LIMIT * 2, client.explain(&question())).await;
    assert!(matches!(given_up, Ok(Err(ClientError::Slow { .. }))), "{given_up:?}");
    let planning = timeout(LONG_LIMIT * 10, client.plan(&plan_request())).await;
    assert!(planning.is_err(), "it has given up: {planning:?}");
}

#[tokio::test(start_paused = true)]
async fn export_that_does_not_begin_fails_within_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new(&socket(folder.path(), PLAN_LIMIT));
    let begun = Instant::now();
    let exported = timeout(PLAN_LIMIT, client.export(&mut Vec::new())).await;
    let Ok(Err(error @ ClientError::Slow { .. })) = exported else { panic!("{exported:?}") };
    assert!(error.to_string().contains("POST /v1/store/export within 120 s"), "{error}");
    assert_eq!(begun.elapsed(), EXPORT_LIMIT);
}
