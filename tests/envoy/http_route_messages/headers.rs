//! Header changes of requests and responses.

use http::StatusCode;
use ironmesh_tests::eventually;

use super::{MessageMesh, route};
use crate::bookstore::ensure_status;

#[tokio::test(flavor = "multi_thread")]
async fn header_rules_set_add_and_remove_as_configured() {
    let routes = route(
        "request_headers = { set = { x-tier = \"gold\", x-literal = '%REQ(:path)% 100%% %' }, \
         add = { x-also = \"mesh\" }, remove = [\"x-secret\", \"user-agent\"] }\n\
         response_headers = { set = { x-served = '%HOSTNAME%' }, add = { x-app = \"mesh\" }, \
         remove = [\"content-type\"] }",
    );
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/1").await;
    setup.write(&routes);
    let sent = [
        ("x-tier", "iron"),
        ("x-also", "caller"),
        ("x-secret", "me"),
        ("user-agent", "test"),
        ("x-kept", "%REQ(:path)%"),
    ];
    // The server allows it because of the header that arrives.
    let answer = eventually("the headers to be changed", async || {
        let answer = setup.get("/old", &sent).await;
        ensure_status(&answer, 200)?;
        anyhow::Ok(answer)
    })
    .await;
    let arrived = answer.json()["headers"].clone();
    assert_eq!(arrived["x-tier"], "gold");
    assert_eq!(arrived["x-literal"], "%REQ(:path)% 100%% %");
    assert_eq!(arrived["x-kept"], "%REQ(:path)%");
    assert!(arrived["x-also"].as_str().unwrap().contains("mesh"), "{arrived}");
    assert!(arrived["x-secret"].is_null() && arrived["user-agent"].is_null(), "{arrived}");
    assert_eq!(answer.header("x-served"), Some("%HOSTNAME%"));
    assert_eq!(answer.header("content-type"), None);
    let apps: Vec<_> = answer.headers.get_all("x-app").iter().collect();
    assert_eq!(apps, ["store", "mesh"]);
    assert!(setup.explain("/old").await.starts_with("allowed: "));
    // Answers of the sidecars themselves get the response headers as well.
    let by_host = setup.get_by_host("/old").await;
    assert_eq!((by_host.status.as_u16(), by_host.header("x-served")), (200, Some("%HOSTNAME%")));
    setup.write("");
    eventually("the server to deny unchanged requests", async || {
        ensure_status(&setup.get("/old", &sent).await, 403)
    })
    .await;
    assert!(setup.explain("/old").await.starts_with("denied: "));
    setup.assert_no_failures(load, &[StatusCode::OK]).await;
}
