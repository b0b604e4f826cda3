//! The bookstore: which requests are allowed by name and by upstream port, and how policy changes
//! take effect.

use std::collections::BTreeSet;

use http::Method;
use ironmesh_tests::{Http1Connection, eventually, get_once};

use crate::bookstore::{Bookstore, HOST, buyers, ensure_status, split};

/// OSM 1.
#[tokio::test(flavor = "multi_thread")]
async fn allowed_request_reaches_the_application() {
    let Some(store) = Bookstore::open().await else { return };
    let before = store.requests_seen();
    let response = store.buy("/books/7?page=2").await.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(response.json()["path"], "/books/7?page=2");
    assert!(response.header("x-app").is_some_and(|app| app.starts_with("bookstore-v")));
    assert_eq!(store.requests_seen(), before + 1);
    store.assert_no_update_errors().await;
}

/// SMI 1.
#[tokio::test(flavor = "multi_thread")]
async fn ungranted_path_or_method_is_denied_by_the_server_sidecar() {
    let Some(store) = Bookstore::open().await else { return };
    let mut connection = Http1Connection::connect(store.local_address()).await.unwrap();
    for (method, path) in [(Method::GET, "/admin"), (Method::POST, "/books/1")] {
        let (seen, denied) = (store.requests_seen(), store.denied_by_store().await);
        let response = connection.request(method, path, &[("host", HOST)]).await.unwrap();
        assert_eq!(response.status, 403, "{path}: {}", response.text());
        assert_eq!(response.header("x-app"), None);
        assert_eq!(store.requests_seen(), seen, "the application saw {path}");
        assert_eq!(store.denied_by_store().await, denied + 1);
    }
    // The same connection serves further allowed requests.
    assert_eq!(connection.get("/books/1", HOST).await.unwrap().status, 200);
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_caller_is_denied_by_the_server_sidecar() {
    let Some(store) = Bookstore::open().await else { return };
    let thief = store.thief().await;
    let (seen, denied) = (store.requests_seen(), store.denied_by_store().await);
    let response = get_once(thief.socket(14001), "/books/1", &[]).await.unwrap();
    assert_eq!(response.status, 403, "{}", response.text());
    assert_eq!(response.header("x-app"), None);
    assert_eq!((store.requests_seen(), store.denied_by_store().await), (seen, denied + 1));
    thief.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_is_routed_by_each_of_its_host_names() {
    let Some(store) = Bookstore::open().await else { return };
    let by_host = store.buyer.socket(15080);
    for name in ["bookstore", "bookstore.default", HOST] {
        for host in [name.to_owned(), format!("{name}:14001")] {
            let response = get_once(by_host, "/books/1", &[("host", &host)]).await.unwrap();
            assert_eq!(response.status, 200, "{host}: {}", response.text());
        }
    }
    let response = get_once(by_host, "/admin", &[("host", HOST)]).await.unwrap();
    assert_eq!(response.status, 403, "{}", response.text());
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_or_ungranted_host_gets_404() {
    let Some(store) = Bookstore::open().await else { return };
    let seen = store.requests_seen();
    let not_granted = "bookwarehouse.default.mesh.internal";
    for host in ["nowhere", "nowhere.default.mesh.internal", "example.com", not_granted] {
        let headers = [("host", host)];
        let response = get_once(store.buyer.socket(15080), "/books/1", &headers).await.unwrap();
        assert_eq!(response.status, 404, "{host}: {}", response.text());
    }
    assert_eq!(store.requests_seen(), seen);
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outbound_listener_acts_as_an_http_proxy() {
    let Some(store) = Bookstore::open().await else { return };
    let mut connection = Http1Connection::connect(store.buyer.socket(15080)).await.unwrap();
    let host = format!("{HOST}:14001");
    let url = format!("http://{host}/books/1");
    let response = connection.request(Method::GET, &url, &[("host", &host)]).await.unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.json()["path"], "/books/1");
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_to_the_mesh_port_is_rejected() {
    let Some(store) = Bookstore::open().await else { return };
    let seen = store.requests_seen();
    let answer = get_once(store.v1.socket(15003), "/books/1", &[("host", HOST)]).await;
    assert!(answer.is_err(), "the mesh port answered: {answer:?}");
    assert_eq!(store.requests_seen(), seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn split_distributes_requests_by_weight() {
    let Some(store) = Bookstore::open().await else { return };
    // Five standard deviations of a binomial distribution: √(n·p·(1−p)) is 9.5 and 15.8 here.
    let second = store.served_by_v2(1000).await;
    assert!((53..=147).contains(&second), "of 1000 with a weight of 10 %: {second}");

    store.mesh.write_policy("split.toml", &split(50, 50));
    // At 10 %, 30 of 100 are seen once in 10⁸ times; at 50 %, fewer are seen once in 60,000.
    eventually("the new weights", async || match store.served_by_v2(100).await {
        second if second >= 30 => Ok(()),
        second => Err(format!("{second} of 100")),
    })
    .await;
    let second = store.served_by_v2(1000).await;
    assert!((421..=579).contains(&second), "of 1000 with a weight of 50 %: {second}");
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_grant_denies_next_request_on_open_connection() {
    let Some(store) = Bookstore::open().await else { return };
    let mut connection = Http1Connection::connect(store.local_address()).await.unwrap();
    assert_eq!(connection.get("/books/1", HOST).await.unwrap().status, 200);
    let listeners = [listener_updates(&store.v1).await, listener_updates(&store.v2).await];

    // A second grant stays, so that the buyer's own sidecar sends the request and the store's
    // sidecar denies it.
    store.mesh.write_policy("buyers.toml", &buyers("/magazines/.*"));
    eventually("the store to deny the buyer", async || {
        ensure_status(&connection.get("/books/1", HOST).await?, 403)
    })
    .await;
    let denied = store.denied_by_store().await;
    // Each request may reach the other version, whose proxy may not have the new policy yet.
    eventually("both versions to have the policy", async || {
        let before = store.requests_seen();
        for _ in 0..100 {
            ensure_status(&connection.get("/books/1", HOST).await?, 403)?;
        }
        anyhow::ensure!(store.requests_seen() == before, "the applications still see requests");
        Ok(())
    })
    .await;
    assert!(store.denied_by_store().await >= denied + 100, "denied elsewhere");
    assert_eq!(connection.get("/magazines/1", HOST).await.unwrap().status, 200);

    assert_eq!(
        [listener_updates(&store.v1).await, listener_updates(&store.v2).await],
        listeners,
        "a listener was sent"
    );
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disguised_path_matches_no_grant() {
    let Some(store) = Bookstore::open().await else { return };
    let seen = store.requests_seen();
    for path in [
        "/books/../admin",
        "/books/%2e%2e/admin",
        "/books/%2E%2E/admin",
        "/books/..%2fadmin",
        "/books/..%5cadmin",
        "/books/./../admin",
        "/admin?/books/1",
    ] {
        // One connection each: after a malformed path Envoy may close it.
        let mut connection = Http1Connection::connect(store.local_address()).await.unwrap();
        match connection.get(path, HOST).await {
            Ok(response) => assert!(
                [400, 403].contains(&response.status.as_u16()),
                "{path}: {} {}",
                response.status,
                response.text()
            ),
            Err(error) => panic!("{path}: {error:#}"),
        }
    }
    assert_eq!(store.requests_seen(), seen, "the application saw one of them");
    // The normalized path counts, not its spelling.
    assert_eq!(store.buy("//books//1").await.unwrap().status, 200);
    assert_eq!(store.buy("/magazines/../books/1").await.unwrap().status, 200);
    // `..` removes the empty segment before it: Envoy authorizes the path that the application
    // receives.
    let response = store.buy("//books//..//admin").await.unwrap();
    assert!(response.text().contains(r#""path":"/books/admin""#), "{}", response.text());
}

/// SMI 1, OSM 1.
#[tokio::test(flavor = "multi_thread")]
async fn removed_policy_file_denies_its_callers() {
    let Some(store) = Bookstore::open().await else { return };
    let mut connection = Http1Connection::connect(store.local_address()).await.unwrap();
    assert_eq!(connection.get("/books/1", HOST).await.unwrap().status, 200);
    store.mesh.remove_policy("buyers.toml");
    eventually("the buyer to be denied", async || {
        ensure_status(&connection.get("/books/1", HOST).await?, 403)
    })
    .await;
    // By `Host`, a denied service looks like an unknown one.
    eventually("404 for the name", async || {
        ensure_status(
            &get_once(store.buyer.socket(15080), "/books/1", &[("host", HOST)]).await?,
            404,
        )
    })
    .await;
    store.mesh.write_policy("buyers.toml", &buyers("/books/.*"));
    eventually("the buyer to be allowed again", async || {
        ensure_status(&connection.get("/books/1", HOST).await?, 200)
    })
    .await;
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_present_their_service_account_identity() {
    let Some(store) = Bookstore::open().await else { return };
    for (envoy, account) in
        [(&store.buyer, "bookbuyer"), (&store.v1, "bookstore"), (&store.v2, "bookstore")]
    {
        let workloads: BTreeSet<String> = envoy
            .uri_sans()
            .await
            .into_iter()
            .filter(|uri| uri.starts_with("spiffe://mesh.internal/ns/"))
            .collect();
        let expected = format!("spiffe://mesh.internal/ns/default/sa/{account}");
        assert_eq!(workloads, BTreeSet::from([expected]));
    }
}

/// The number of listener updates that an Envoy has accepted.
async fn listener_updates(envoy: &ironmesh_tests::Envoy) -> u64 {
    envoy.stat("listener_manager.lds.update_success").await
}
