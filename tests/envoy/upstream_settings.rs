//! Upstream traffic settings: limits of concurrent calls, retry budgets, and their nearest-object
//! rule.

mod global_rate_limits;
mod local_rate_limits;
mod locality;
mod outliers;

use std::net::IpAddr;

use ironmesh_tests::{
    App, Envoy, Http1Connection, Response, TcpConnection, eventually, get_once, request_name,
};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::bookstore::ensure_status;
use crate::split_mesh::SplitMesh;

/// A setting of the service `store`.
fn setting(text: &str) -> String {
    format!("[[upstream_traffic_setting]]\nname = \"store\"\nservice = \"store\"\n{text}\n")
}

/// The settings of the namespace and of the mesh, which apply where no nearer object sets a value.
const DEFAULT_SETTINGS: [&str; 2] = [
    "[[upstream_traffic_setting]]\nname = \"namespace\"\nconnection_settings.http.max_requests = 1000\n",
    "[[upstream_traffic_setting]]\nname = \"mesh\"\nscope = \"mesh\"\nconnection_settings.http.max_requests = 1\n",
];

/// Waits until a cluster of the buyer has this limit.
async fn wait_for_limit(buyer: &Envoy, cluster: &str, what: &str, limit: u32) {
    eventually(&format!("{what} = {limit} of {cluster}"), async || {
        let dump = buyer.config_dump().await;
        let lists = |one: &Value| one.get("dynamic_active_clusters")?.as_array().cloned();
        let configs = dump.get("configs").and_then(Value::as_array).into_iter().flatten();
        let clusters = configs.filter_map(lists).flatten();
        let mut clusters = clusters.filter_map(|one| one.get("cluster").cloned());
        let found = clusters.find(|one| one.get("name").is_some_and(|name| name == cluster));
        let found = found.ok_or_else(|| anyhow::anyhow!("not there"))?;
        let limits = found
            .pointer("/circuit_breakers/thresholds/0")
            .and_then(|one| one.pointer(&format!("/{what}")));
        anyhow::ensure!(limits.is_some_and(|number| *number == limit), "{found}");
        Ok(())
    })
    .await;
}

/// Calls the store.
async fn request(buyer: &Envoy) -> anyhow::Result<Response> {
    get_once(buyer.socket(14001), "/", &[]).await
}

fn assert_overloaded(response: &Response) {
    ensure_status(response, 503).unwrap();
    assert_eq!(response.header("x-envoy-overloaded"), Some("true"), "{response:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_max_requests_are_rejected() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let (cluster, store) = ("default/store|14001", setup.app("store"));
    let overflow = r"^cluster\.default/store\|14001\.upstream_rq_(active|pending)_overflow$";
    let of_the_store = setting("connection_settings.http.max_requests = 1");
    let [of_the_namespace, of_the_mesh] = DEFAULT_SETTINGS;

    // Of the mesh, the namespace and the service: the nearest applies.
    let levels = [
        (of_the_mesh.to_owned(), 1),
        (format!("{of_the_namespace}{of_the_mesh}"), 1000),
        (format!("{of_the_namespace}{of_the_mesh}{of_the_store}"), 1),
    ];
    for (policy, limit) in levels {
        setup.mesh.write_policy("settings.toml", &policy);
        wait_for_limit(&setup.buyer, cluster, "max_requests", limit).await;
        let (before, requested) = (setup.buyer.sum(overflow).await, store.requests());
        let held = store.hold().await;
        let socket = setup.buyer.socket(14001);
        let first = tokio::spawn(async move { get_once(socket, "/", &[]).await });
        eventually("the first request to be in flight", async || {
            if store.requests() > requested { Ok(()) } else { Err(store.requests()) }
        })
        .await;
        if limit == 1 {
            assert_overloaded(&request(&setup.buyer).await.unwrap());
            assert_eq!(setup.buyer.sum(overflow).await, before + 1);
        } else {
            let second = tokio::spawn(async move { get_once(socket, "/", &[]).await });
            eventually("the second request to be in flight", async || {
                if store.requests() > requested + 1 { Ok(()) } else { Err(store.requests()) }
            })
            .await;
            drop(held);
            ensure_status(&second.await.unwrap().unwrap(), 200).unwrap();
            ensure_status(&first.await.unwrap().unwrap(), 200).unwrap();
            continue;
        }
        drop(held);
        ensure_status(&first.await.unwrap().unwrap(), 200).unwrap();
        ensure_status(&request(&setup.buyer).await.unwrap(), 200).unwrap();
    }
    setup.assert_no_update_errors().await;
}

/// An external service over HTTP/1.1: each connection carries one request at a time.
fn outside(address: IpAddr) -> String {
    format!(
        r#"
[[service]]
name = "outside"
external = true
ports = [{{ name = "web", port = 8080, protocol = "http" }}]
endpoints = {{ static = [{{ address = "{address}" }}] }}

[[traffic_target]]
name = "outside"
destination = {{ name = "outside" }}
sources = [{{ name = "buyer" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "all" }}]
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_max_pending_requests_are_rejected() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let address = setup.mesh.loopback().socket(31, 8080);
    let app = App::http1("outside", address).await;
    let cluster = "default/outside|8080";
    let limit = |pending: u32| {
        let settings = setting(&format!(
            "connection_settings.tcp.max_connections = 1\n\
             connection_settings.http.max_pending_requests = {pending}"
        ));
        outside(address.ip()) + &settings.replace("\"store\"", "\"outside\"")
    };
    let stat = async |name| setup.buyer.stat(&format!("cluster.{cluster}.{name}")).await;
    let socket = setup.buyer.socket(15080);
    // Limits of another service cost the store's callers nothing.
    let load = setup.load().await;
    for (pending, overflow) in [(1, 1), (2, 0)] {
        setup.mesh.write_policy("outside.toml", &limit(pending));
        wait_for_limit(&setup.buyer, cluster, "max_pending_requests", pending).await;
        eventually("an answer from outside", async || {
            ensure_status(&get_once(socket, "/", &[("host", "outside")]).await?, 200)
        })
        .await;
        let before = stat("upstream_rq_pending_overflow").await;
        // One request is in flight, which does not count as waiting; another waits.
        let (held, requested) = (app.hold().await, app.requests());
        let mut requests = JoinSet::new();
        let mut request = || {
            requests.spawn(async move { get_once(socket, "/", &[("host", "outside")]).await });
        };
        request();
        eventually("the first request to be in flight", async || {
            if app.requests() > requested { Ok(()) } else { Err("it is not") }
        })
        .await;
        let waiting = async |count| {
            eventually(&format!("{count} to wait"), async || {
                let pending = stat("upstream_rq_pending_active").await;
                if pending == count { Ok(()) } else { Err(pending) }
            })
            .await;
        };
        request();
        waiting(1).await;
        if overflow == 1 {
            assert_overloaded(&get_once(socket, "/", &[("host", "outside")]).await.unwrap());
        } else {
            request();
            waiting(2).await;
        }
        assert_eq!(stat("upstream_rq_pending_overflow").await, before + overflow);
        assert_eq!(app.requests(), requested + 1, "there is one connection");
        drop(held);
        while let Some(answer) = requests.join_next().await {
            ensure_status(&answer.unwrap().unwrap(), 200).unwrap();
        }
    }
    setup.mesh.remove_policy("outside.toml");
    eventually("no server outside the mesh", async || {
        ensure_status(&get_once(socket, "/", &[("host", "outside")]).await?, 404)
    })
    .await;
    setup.assert_no_failures(load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_setting_changes_disturb_no_call() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let load = setup.load().await;
    // Also the services of the stream and the connection.
    let rest =
        "connection_settings.tcp.max_connections = 1000\noutlier_detection.consecutive_5xx = 5";
    for most in [1000, 2000, 3000] {
        let of_all = "[[upstream_traffic_setting]]\nname = \"all\"\n";
        let http = format!("connection_settings.http.max_requests = {most}\n");
        setup.mesh.write_policy("settings.toml", &format!("{of_all}{http}{rest}"));
        wait_for_limit(&setup.buyer, "default/store|14001", "max_requests", most).await;
    }
    setup.mesh.write_policy("settings.toml", "");
    wait_for_limit(&setup.buyer, "default/store|14001", "max_requests", u32::MAX).await;
    setup.assert_no_failures(load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_limits_follow_the_upstream_setting() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let tcp = "connection_settings.tcp.max_connections = 1";
    let http = "connection_settings.http.max_requests_per_connection = 2";
    setup.mesh.write_policy("settings.toml", &setting(&format!("{tcp}\n{http}")));
    wait_for_limit(&setup.buyer, "default/store|3306", "max_connections", 1).await;

    let mut first = TcpConnection::connect(setup.buyer.socket(3306)).await.unwrap();
    first.line().await.unwrap();
    let mut second = TcpConnection::connect(setup.buyer.socket(3306)).await.unwrap();
    second.line().await.unwrap_err();
    assert_eq!(setup.buyer.stat("cluster.default/store|3306.upstream_cx_overflow").await, 1);

    let mut connection = Http1Connection::connect(setup.buyer.socket(14001)).await.unwrap();
    for _ in 0..5 {
        ensure_status(&connection.get("/", "store").await.unwrap(), 200).unwrap();
    }
    let ended = setup.buyer.stat("cluster.default/store|14001.upstream_cx_max_requests").await;
    assert_eq!(ended, 2);
    setup.assert_no_update_errors().await;
}

/// Requests that the store rejects are retried once.
const RETRIED: &str = r#"
[[retry]]
name = "buyer"
source = { name = "buyer" }
destinations = [{ name = "store" }]
retry_policy = { retry_on = "5xx", num_retries = 1, retry_backoff_base_interval = "1ms" }
"#;

/// The number of the store's retries, and of those that exceeded the budget.
async fn retry_counts(buyer: &Envoy) -> [u64; 2] {
    let stat = async |name| buyer.stat(&format!("cluster.default/store|14001.{name}")).await;
    [stat("upstream_rq_retry").await, stat("upstream_rq_retry_overflow").await]
}

/// Sends eight requests at once, which the store rejects once all have arrived; retries wait for
/// eight of their kind. Waits until this many are answered. Returns the number of requests, retries
/// and retries over the budget.
async fn burst_retries(setup: &SplitMesh, answered: u64) -> [u64; 3] {
    let (name, socket, store) = (request_name(), setup.buyer.socket(14001), setup.app("store"));
    let before = retry_counts(&setup.buyer).await;
    let mut requests = JoinSet::new();
    for _ in 0..8 {
        let name = name.clone();
        requests.spawn(async move {
            let headers = [("x-request-name", &*name), ("x-answer", "503"), ("x-batch-size", "8")];
            get_once(socket, "/", &headers).await
        });
    }
    for _ in 0..answered {
        ensure_status(&requests.join_next().await.unwrap().unwrap().unwrap(), 503).unwrap();
    }
    // The retries have arrived.
    eventually("those that are tried again", async || match store.requests_named(&name) {
        count if count > 8 => Ok(()),
        count => Err(count),
    })
    .await;
    let after = retry_counts(&setup.buyer).await;
    [store.requests_named(&name), after[0] - before[0], after[1] - before[1]]
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_stay_within_max_retries_and_retry_budget() {
    let Some(setup) = SplitMesh::open("").await else { return };
    // Without a setting, the budget allows up to 20 concurrent retries.
    setup.mesh.write_policy("retries.toml", RETRIED);
    eventually("retries", async || {
        let dump = setup.buyer.config_dump().await.to_string();
        if dump.contains("\"retry_on\":\"5xx\"") { Ok(()) } else { Err("none") }
    })
    .await;
    assert_eq!(burst_retries(&setup, 8).await, [16, 8, 0]);
    let (cluster, percent) = ("default/store|14001", "retry_budget/budget_percent/value");
    let budget = "retry_budget = { percent = 1, min_concurrency = 1 }";
    for (bound, what, number, answered, expected) in
        [("max_retries = 3", "max_retries", 3, 5, [11, 3, 5]), (budget, percent, 1, 7, [9, 1, 7])]
    {
        let http = format!("connection_settings.http.{bound}");
        setup.mesh.write_policy("settings.toml", &setting(&http));
        wait_for_limit(&setup.buyer, cluster, what, number).await;
        assert_eq!(burst_retries(&setup, answered).await, expected, "{bound}");
    }

    let retries = "connection_settings.http.max_retries = 0";
    setup.mesh.write_policy("settings.toml", &setting(retries));
    wait_for_limit(&setup.buyer, "default/store|14001", "max_retries", 0).await;
    let before = retry_counts(&setup.buyer).await;
    let SplitMesh { buyer, server, .. } = setup;
    server.stop().await;
    ensure_status(&request(&buyer).await.unwrap(), 503).unwrap();
    assert_eq!(retry_counts(&buyer).await, [before[0], before[1] + 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_upstream_setting_changes_nothing_and_is_reported() {
    let Some(setup) = SplitMesh::open(&setting("connection_settings.http.max_requests = 7")).await
    else {
        return;
    };
    wait_for_limit(&setup.buyer, "default/store|14001", "max_requests", 7).await;
    let wrong = setting("connection_settings.http = { max_requests = 0, max_retries = -1 }");
    setup.mesh.write_policy("splits.toml", &wrong);
    eventually("the findings", async || {
        let policy = setup.mesh.readyz().await["policy"].to_string();
        let log = setup.mesh.log();
        let is_told = ["`max_requests` must be", "`max_retries` must be"];
        anyhow::ensure!(is_told.iter().all(|text| log.contains(text)), "{policy}");
        Ok(())
    })
    .await;
    wait_for_limit(&setup.buyer, "default/store|14001", "max_requests", 7).await;
    let explained = setup
        .mesh
        .run(&["policy", "explain", "--from", "buyer", "--to", "store", "--port", "14001"])
        .await;
    let explained = String::from_utf8(explained.stdout).unwrap();
    let reported = "connection_settings.http.max_requests is 7, by upstream traffic setting";
    assert!(explained.contains(reported), "{explained}");
}
