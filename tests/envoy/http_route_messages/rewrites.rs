//! Rewrites of path and host, and their authorization.

use http::StatusCode;
use ironmesh_tests::eventually;

use super::{MessageMesh, route};
use crate::bookstore::ensure_status;

#[tokio::test(flavor = "multi_thread")]
async fn server_authorizes_the_rewritten_path_and_host() {
    let prefix = route("rewrite = { path_prefix = { from = \"/old/\", to = \"/new\" } }");
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/1").await;
    setup.write(&prefix);
    eventually("the new path to arrive", async || {
        ensure_status(&setup.get("/old", &[]).await, 200)
    })
    .await;
    for (path, arrives) in [
        ("/old", Some("/new")),
        ("/old/", Some("/new/")),
        ("/old/1/old?x=/old&y=%2f", Some("/new/1/old?x=/old&y=%2f")),
        ("//old/./a/../1", Some("/new/1")),
        ("/new/1", Some("/new/1")),
        ("/older", None),
        ("/x/old", None),
    ] {
        for answer in [setup.get(path, &[]).await, setup.get_by_host(path).await] {
            let status = if arrives.is_some() { 200 } else { 403 };
            ensure_status(&answer, status).unwrap();
            if let Some(arrives) = arrives {
                assert_eq!(answer.json()["path"], arrives, "{path}");
            }
        }
        let verdict = setup.explain(path).await;
        let expected = if arrives.is_some() { "allowed: " } else { "denied: " };
        assert!(verdict.starts_with(expected), "{path}: {verdict}");
    }
    // An allowed request is denied if its rewritten path is not.
    setup.write(&route("rewrite = { path_prefix = { from = \"/new\", to = \"/\" } }"));
    eventually("another path to arrive", async || {
        ensure_status(&setup.get("/new/1", &[]).await, 403)
    })
    .await;
    load.wait_for_status(StatusCode::FORBIDDEN).await;
    let gold = [("x-tier", "gold")];
    for (path, arrives) in [("/new", "/"), ("/new/", "/"), ("/new/1?x", "/1?x")] {
        assert_eq!(setup.get(path, &gold).await.json()["path"], arrives, "{path}");
    }
    assert!(setup.explain("/new/1").await.starts_with("denied: "));
    // A regular expression, applied once at the start of the path.
    setup.write(&route(
        "rewrite = { path_regex = \"/(a|b)/v([0-9]+)\", substitution = '/new/\\2/\\1\\\\' }",
    ));
    eventually("the expression", async || {
        ensure_status(&setup.get("/a/v12/a/v12", &[]).await, 200)
    })
    .await;
    // A backslash becomes a slash by normalization.
    for (path, arrives) in [("/a/v12/a/v12?q", "/new/12/a/a/v12?q"), ("/b/v1", "/new/1/b/")] {
        assert_eq!(setup.get(path, &[]).await.json()["path"], arrives, "{path}");
        assert!(setup.explain(path).await.starts_with("allowed: "), "{path}");
    }
    ensure_status(&setup.get("/x/a/v1", &[]).await, 403).unwrap();
    load.wait_for_status(StatusCode::OK).await;
    // A rewritten host.
    setup.write(&route("rewrite = { host = \"books.example:80\" }"));
    eventually("another host to arrive", async || {
        ensure_status(&setup.get("/old", &[]).await, 200)
    })
    .await;
    for answer in [setup.get("/old", &[]).await, setup.get_by_host("/old").await] {
        assert_eq!(answer.json()["headers"]["host"], "books.example:80");
    }
    assert!(setup.explain("/old").await.starts_with("allowed: "));
    setup.write("");
    eventually("the old path to arrive", async || {
        ensure_status(&setup.get("/old", &[]).await, 403)
    })
    .await;
    setup.assert_no_failures(load, &[StatusCode::OK, StatusCode::FORBIDDEN]).await;
}
