//! Traffic splits: conditions, several splits, nested splits, and backends that come and go.

use anyhow::Context as _;
use http::Method;
use ironmesh_tests::{Http1Connection, Http2Connection, Response, eventually};

use crate::bookstore::ensure_status;
use crate::split_mesh::{SERVICES, SplitMesh, services, split};

const MATCHES: &str = r#"
[[http_route_group]]
name = "store"
matches = [
  { name = "staff", headers = { x-staff = ".+" } },
  { name = "search", path_regex = "/search(/|$)" },
  { name = "write", methods = ["POST", "PUT"] },
  { name = "beta", headers = { host = "beta\\..*" } },
  { name = "orders", path_regex = "/orders/" },
  { name = "year", path_regex = "/[^/]+/.*[0-9]{4}$" },
  { name = "get", methods = ["GET"] },
]
"#;

/// Sends requests by either protocol, on kept connections.
struct Buyer {
    http1: Http1Connection,
    http2: Http2Connection,
}

impl Buyer {
    async fn of(setup: &SplitMesh) -> Self {
        let local = setup.buyer.socket(14001);
        Self {
            http1: Http1Connection::connect(local).await.unwrap(),
            http2: Http2Connection::connect(local).await.unwrap(),
        }
    }

    /// The application that answers by both protocols.
    async fn request(
        &mut self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<String> {
        let mut headers = headers.to_vec();
        if !headers.iter().any(|(name, _)| *name == "host") {
            headers.push(("host", "store"));
        }
        let by1 = self.http1.request(method.clone(), path, &headers).await?;
        let by2 = self.http2.request(method.clone(), path, &headers).await?;
        ensure_status(&by1, 200)?;
        let name = |response: &Response| response.header("x-app").map(str::to_owned);
        anyhow::ensure!(name(&by1) == name(&by2), "{by1:?} {by2:?}");
        name(&by1).context("no name")
    }

    /// Waits until this application answers.
    async fn wait_for(&mut self, wanted: &str, method: &Method, headers: &[(&str, &str)]) {
        eventually(&format!("{wanted} to answer"), async || {
            let answered = self.request(method, "/", headers).await?;
            anyhow::ensure!(answered == wanted, "{answered}");
            Ok(())
        })
        .await;
    }
}

/// SMI 11.
#[tokio::test(flavor = "multi_thread")]
async fn request_uses_the_first_split_with_matching_conditions() {
    let splits = MATCHES.to_owned()
        + &split("20-second", "store", &["search", "write", "beta"], &[("v2", 1)])
        + &split("10-staff", "store", &["staff"], &[("next", 1)])
        + &split("store", "store", &[], &[("v1", 1)]);
    let Some(setup) = SplitMesh::open(&splits).await else { return };
    let mut buyer = Buyer::of(&setup).await;
    let staff = ("x-staff", "yes");
    // Repeated, so that each request follows each other one on the same connection.
    for _ in 0..10 {
        for (method, path, headers, expected) in [
            (Method::GET, "/", &[][..], "v1"),
            (Method::GET, "/", &[staff], "next"),
            (Method::GET, "/", &[("x-staff", "")], "v1"),
            (Method::GET, "/search", &[], "v2"),
            (Method::GET, "/search?q=a/b", &[], "v2"),
            (Method::GET, "/search/books", &[], "v2"),
            (Method::GET, "/searching", &[], "v1"),
            (Method::GET, "/?q=/search", &[], "v1"),
            // No expression covers a path that a server may read as another.
            (Method::GET, "/search/..;/", &[], "v1"),
            (Method::GET, "/search/?q=/..", &[], "v2"),
            (Method::POST, "/", &[], "v2"),
            (Method::PUT, "/", &[], "v2"),
            (Method::DELETE, "/", &[], "v1"),
            (Method::GET, "/", &[("host", "Beta.example:14001")], "v2"),
            (Method::GET, "/", &[("host", "alpha.example")], "v1"),
            // Both match: the names of the splits decide the order.
            (Method::POST, "/search", &[staff], "next"),
        ] {
            let answered = buyer.request(&method, path, headers).await.unwrap();
            assert_eq!(answered, expected, "{method} {path} {headers:?}");
        }
    }
    // By `Host` too.
    let mut by_host = Http1Connection::connect(setup.buyer.socket(15080)).await.unwrap();
    for (headers, expected) in [
        (&[("host", "store:14001")][..], "v1"),
        (&[("host", "store.default.mesh.internal:14001"), staff], "next"),
    ] {
        let response = by_host.request(Method::GET, "/", headers).await.unwrap();
        ensure_status(&response, 200).unwrap();
        assert_eq!(response.header("x-app"), Some(expected));
    }
    // Other names reverse the order, on the same connections.
    setup.mesh.write_policy("splits.toml", &splits.replace("10-staff", "30-staff"));
    buyer.wait_for("v2", &Method::POST, &[staff]).await;
    assert_eq!(buyer.request(&Method::GET, "/", &[staff]).await.unwrap(), "next");
    // Without a split of all calls, the service's own endpoints answer the rest.
    let conditional = split("10-staff", "store", &["staff"], &[("next", 1)]);
    setup.mesh.write_policy("splits.toml", &(MATCHES.to_owned() + &conditional));
    buyer.wait_for("store", &Method::GET, &[]).await;
    assert_eq!(buyer.request(&Method::GET, "/", &[staff]).await.unwrap(), "next");
    setup.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_splits_require_all_conditions_and_ignore_the_query() {
    let splits = MATCHES.to_owned()
        + &split("outer", "store", &["orders"], &[("v1", 1)])
        + &split("inner", "v1", &["year"], &[("v2", 1)])
        + &split("innermost", "v2", &["get"], &[("v3", 1)]);
    let Some(setup) = SplitMesh::open(&splits).await else { return };
    let mut buyer = Buyer::of(&setup).await;
    for (method, path, expected) in [
        (Method::GET, "/", "store"),
        (Method::GET, "/books/2024", "store"),
        (Method::GET, "/orders/a", "v1"),
        (Method::GET, "/orders/a?year=/2024", "v1"),
        (Method::GET, "/orders/?a/2024", "v1"),
        (Method::GET, "/orders/2024", "v3"),
        (Method::GET, "/orders/2024?", "v3"),
        (Method::GET, "/orders/2024?a=b?c=/d", "v3"),
        (Method::POST, "/orders/2024?a=b", "v2"),
        (Method::POST, "/orders/20245", "v2"),
        (Method::POST, "/orders/2024/", "v1"),
        (Method::GET, "/books?x=/orders/2024", "store"),
    ] {
        let answered = buyer.request(&method, path, &[]).await.unwrap();
        assert_eq!(answered, expected, "{method} {path}");
    }
    setup.assert_no_update_errors().await;
}

/// SMI 10, OSM 7, OSM 9.
#[tokio::test(flavor = "multi_thread")]
async fn weights_multiply_through_nested_splits() {
    // Two levels: store → v1 → v2, and the service itself among the backends.
    let splits = MATCHES.to_owned()
        + &split("store", "store", &[], &[("v1", 1500), ("store", 500)])
        + &split("v1", "v1", &[], &[("v1", 2), ("v2", 1)])
        + &split("v2", "v2", &[], &[("v3", 3), ("next", 1)])
        + &split("v2-staff", "v2", &["staff"], &[("v2", 1)]);
    let Some(setup) = SplitMesh::open(&splits).await else { return };
    let shares = [("next", 1.0 / 16.0), ("store", 0.25), ("v1", 0.5), ("v3", 3.0 / 16.0)];
    setup.answers(4000, &[]).await.assert_about(&shares);
    let of_staff = [("store", 0.25), ("v1", 0.5), ("v2", 0.25)];
    setup.answers(4000, &[("x-staff", "yes")]).await.assert_about(&of_staff);
    // A TCP connection has no attributes besides its destination, so conditions are ignored.
    eventually("all to greet", async || match setup.greetings(100).await.0.len() {
        4 => Ok(()),
        count => Err(count),
    })
    .await;
    setup.greetings(1000).await.assert_about(&shares);
    setup.assert_no_update_errors().await;
}

/// SMI 12.
#[tokio::test(flavor = "multi_thread")]
async fn late_backend_gets_its_share_and_no_request_fails() {
    let splits = split("store", "store", &[], &[("v1", 1000), ("next", 500)]);
    let Some(setup) = SplitMesh::open(&splits).await else { return };
    let without: Vec<_> = SERVICES.into_iter().filter(|name| *name != "next").collect();
    setup.mesh.write_policy("services.toml", &services(&without));
    setup.wait_for(&["v1"]).await;
    let load = setup.load().await;
    for _ in 0..3 {
        // Only the service itself is added and removed again.
        setup.mesh.write_policy("services.toml", &services(&SERVICES));
        setup.wait_for(&["next", "v1"]).await;
        setup.mesh.write_policy("services.toml", &services(&without));
        setup.wait_for(&["v1"]).await;
    }
    setup.mesh.write_policy("services.toml", &services(&SERVICES));
    setup.wait_for(&["next", "v1"]).await;
    setup.answers(2000, &[]).await.assert_about(&[("next", 1.0 / 3.0), ("v1", 2.0 / 3.0)]);
    setup.assert_no_failures(load).await;
    // Without any weight, a finding says so.
    setup
        .mesh
        .write_policy("splits.toml", &split("store", "store", &[], &[("gone", 1), ("v1", 0)]));
    eventually("503", async || {
        let response = setup.connection().await.get("/", "store").await?;
        ensure_status(&response, 503)?;
        anyhow::ensure!(response.text().contains("no backend of default/store has a weight"));
        Ok(())
    })
    .await;
}
