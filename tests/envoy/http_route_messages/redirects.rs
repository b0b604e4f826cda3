//! Redirects: the caller's sidecar answers, and the application gets nothing.

use http::StatusCode;
use ironmesh_tests::eventually;

use super::MessageMesh;
use crate::bookstore::ensure_status;

#[tokio::test(flavor = "multi_thread")]
async fn redirected_request_reaches_no_application() {
    let of_search = "[[http_route]]\nname = \"search\"\nservice = \"store\"\n\
        matches = [{ kind = \"HTTPRouteGroup\", name = \"store\", matches = [\"search\"] }]\n";
    let redirect = |redirect: &str| {
        format!(
            "{of_search}response_headers = {{ set = {{ x-moved = \"yes\" }} }}\nredirect = {redirect}\n"
        )
    };
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/search/a").await;
    load.wait_for_status(StatusCode::OK).await;
    let first = redirect("{ status = 301, host = \"books.example\", path = \"/moved\" }");
    setup.write(&first);
    load.wait_for_status(StatusCode::MOVED_PERMANENTLY).await;
    let before_load = setup.store.requests();
    for (to, status, location) in [
        (
            "{ status = 301, host = \"books.example\", path = \"/moved\" }",
            301,
            "http://books.example/moved?q=1",
        ),
        ("{ status = 302, scheme = \"https\" }", 302, "https://store:14001/new/search/a?q=1"),
        (
            "{ status = 303, port = 8443, scheme = \"https\" }",
            303,
            "https://store:8443/new/search/a?q=1",
        ),
        (
            "{ status = 307, path_prefix = { from = \"/new\", to = \"/\" } }",
            307,
            "http://store:14001/search/a?q=1",
        ),
        (
            "{ status = 308, host = \"b.example\", port = 81, path_prefix = { from = \"/new/search\", to = \"/s%20\" } }",
            308,
            "http://b.example:81/s%20/a?q=1",
        ),
    ] {
        setup.write(&redirect(to));
        eventually(to, async || {
            let answer = setup.get("/new/search/a?q=1", &[("host", "store:14001")]).await;
            let reported = (answer.status.as_u16(), answer.header("location").map(str::to_owned));
            if reported == (status, Some(location.to_owned())) {
                Ok(())
            } else {
                Err(format!("{reported:?}"))
            }
        })
        .await;
        let answer = setup.get_by_host("/new/search/a").await;
        assert_eq!((answer.status.as_u16(), answer.header("x-moved")), (status, Some("yes")));
        let verdict = setup.explain("/new/search/a").await;
        assert!(verdict.starts_with("redirected: "), "{verdict}");
        load.wait_for_status(StatusCode::from_u16(status).unwrap()).await;
    }
    assert_eq!(setup.store.requests(), before_load);
    ensure_status(&setup.get("/new/1", &[]).await, 200).unwrap();
    setup.write("");
    load.wait_for_status(StatusCode::OK).await;
    let statuses = [200, 301, 302, 303, 307, 308].map(|one| StatusCode::from_u16(one).unwrap());
    setup.assert_no_failures(load, &statuses).await;
}
