//! Global rate limits: one rate limit service counts for all sidecars.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::Method;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Load, Mesh, Programs, ProxyOptions, RateLimits, TcpConnection,
    eventually, get_once,
};

use super::setting;
use crate::bookstore::ensure_status;
use crate::split_mesh::{SplitMesh, services};

/// A store with a rate limit service that allows each descriptor twice.
struct RateLimitMesh {
    mesh: Mesh,
    buyer: Envoy,
    server: Envoy,
    limits: Option<RateLimits>,
    _app: App,
}

/// The descriptors: one for all, one for a header, and another for some paths.
fn rate_limit_descriptors(host: &str, more: &str) -> String {
    let service = format!("rate_limit_service = {{ host = \"{host}\", port = 8081 }}");
    setting(&format!(
        r#"
[upstream_traffic_setting.rate_limit.global.http]
{service}
domain = "shop"
timeout = "10s"
{more}
descriptors = [
  {{ entries = [{{ generic_key = {{ value = "store", key = "to" }} }}, {{ request_header = {{ name = "x-user", key = "user" }} }}] }},
  {{ entries = [{{ header_value_match = {{ value = "robot", headers = [{{ name = "x-agent", contains = "bot" }}] }} }}] }},
]
[[upstream_traffic_setting.http_routes]]
path_regex = "/search"
rate_limit.global.descriptors = [{{ entries = [{{ generic_key = {{ value = "search" }} }}] }}]
"#
    ))
}

impl RateLimitMesh {
    async fn open(more: &str, has_service: bool) -> Option<Self> {
        let programs = Programs::find()?;
        let services = services(&["store"]);
        let mesh = Mesh::start(&programs, &[("services.toml", &services)]).await;
        let socket = |port| mesh.loopback().socket(21, port);
        let limits = socket(8081);
        let text = rate_limit_descriptors(&limits.ip().to_string(), more);
        mesh.write_policy("settings.toml", &text);
        let limits = if has_service { Some(RateLimits::start(limits, 2).await) } else { None };
        let app = App::http1("store", socket(8080)).await;
        let server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
        let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store:14001=14001");
        let buyer = mesh.envoy(&buyer).await;
        let store = Self { mesh, buyer, server, limits, _app: app };
        store.wait_for_rate_limiting(true).await;
        let draining = "listener_manager.total_filter_chains_draining";
        eventually("the previous chains to be removed", async || {
            match store.server.stat(draining).await {
                0 => Ok(()),
                draining => Err(draining),
            }
        })
        .await;
        Some(store)
    }

    /// Waits until the store's sidecar queries the rate limit service, or does not.
    async fn wait_for_rate_limiting(&self, asks: bool) {
        eventually(&format!("rate limit queries of the store: {asks}"), async || {
            let dump = self.server.config_dump().await.to_string();
            let is_there = dump.contains("\"domain\":\"shop\"");
            if is_there == asks { Ok(()) } else { Err(dump) }
        })
        .await;
    }

    async fn statuses(&self, path: &str, headers: &[(&str, &str)], count: usize) -> Vec<u16> {
        let mut connection = Http1Connection::connect(self.buyer.socket(14001)).await.unwrap();
        let mut statuses = Vec::new();
        for _ in 0..count {
            let headers = [&[("host", "store")], headers].concat();
            let response = connection.request(Method::GET, path, &headers).await.unwrap();
            statuses.push(response.status.as_u16());
        }
        statuses
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_service_counts_the_descriptors_of_policy() {
    let more = "fail_open = false";
    let Some(store) = RateLimitMesh::open(more, true).await else { return };
    // A request without a descriptor is not counted.
    eventually("the store to answer", async || {
        ensure_status(&get_once(store.buyer.socket(14001), "/", &[]).await?, 200)
    })
    .await;
    let limits = store.limits.as_ref().unwrap();
    assert_eq!(limits.counts(), BTreeMap::new());

    let anna: &[_] = &[("x-user", "anna")];
    assert_eq!(store.statuses("/", anna, 4).await, [200, 200, 429, 429]);
    assert_eq!(store.statuses("/", &[("x-user", "ben")], 1).await, [200]);
    let robot: &[_] = &[("x-agent", "a robot")];
    assert_eq!(store.statuses("/", robot, 3).await, [200, 200, 429]);
    assert_eq!(store.statuses("/", &[("x-agent", "a person")], 3).await, [200; 3]);
    // A route has its own descriptors instead of the general ones.
    assert_eq!(store.statuses("/search", anna, 3).await, [200, 200, 429]);
    let counts = limits.counts();
    let expected = [
        ("shop: generic_key=search", 3),
        ("shop: header_match=robot", 3),
        ("shop: to=store user=anna", 4),
        ("shop: to=store user=ben", 1),
    ];
    for (descriptor, count) in expected {
        assert_eq!(counts.get(descriptor), Some(&count), "{descriptor}: {counts:?}");
    }
    assert_eq!(counts.len(), 4, "{counts:?}");
    store.server.assert_no_update_errors().await;
    store.buyer.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_rate_limit_service_fails_open_or_closed() {
    let Some(mut store) = RateLimitMesh::open("", true).await else { return };
    let anna: &[_] = &[("x-user", "anna")];
    eventually("the store to answer", async || {
        ensure_status(&get_once(store.buyer.socket(14001), "/", &[]).await?, 200)
    })
    .await;
    // Load without descriptors, which must be unaffected.
    let load = Load::start(store.buyer.socket(14001), "store", "/");
    let host = store.mesh.loopback().host(21).to_string();
    for asks_again in [false, true] {
        let text = if asks_again { rate_limit_descriptors(&host, "") } else { String::new() };
        store.mesh.write_policy("settings.toml", &text);
        store.wait_for_rate_limiting(asks_again).await;
    }
    eventually("calls to be counted", async || {
        let statuses = store.statuses("/", anna, 1).await;
        if statuses == [429] { Ok(()) } else { Err(format!("{statuses:?}")) }
    })
    .await;
    drop(store.limits.take());
    eventually("calls to pass without the rate limit service", async || {
        let statuses = store.statuses("/", anna, 3).await;
        if statuses == [200; 3] { Ok(()) } else { Err(format!("{statuses:?}")) }
    })
    .await;
    store.mesh.write_policy("settings.toml", &rate_limit_descriptors(&host, "fail_open = false"));
    eventually("calls to fail", async || {
        let statuses = store.statuses("/", anna, 1).await;
        if statuses == [500] { Ok(()) } else { Err(format!("{statuses:?}")) }
    })
    .await;
    // Status names the service; requests without a descriptor pass.
    assert_eq!(store.statuses("/", &[], 1).await, [200]);
    store.mesh.write_policy("settings.toml", "");
    store.wait_for_rate_limiting(false).await;
    eventually("no more rate limit queries", async || {
        let statuses = store.statuses("/", anna, 3).await;
        if statuses == [200; 3] { Ok(()) } else { Err(format!("{statuses:?}")) }
    })
    .await;
    load.finish().await.assert_undisturbed();
    assert_eq!(store.buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await, 0);
    store.server.assert_no_update_errors().await;
}

/// A rate limit service that counts connections to the store.
fn connection_counting(service: SocketAddr, more: &str) -> String {
    let (host, port) = (service.ip(), service.port());
    setting(&format!(
        "[upstream_traffic_setting.rate_limit.global.tcp]\n\
         rate_limit_service = {{ host = \"{host}\", port = {port} }}\ndomain = \"shop\"\n\
         timeout = \"10s\"\n{more}\n\
         descriptors = [{{ entries = [{{ key = \"to\", value = \"store\" }}] }}]\n"
    ))
}

/// Waits until the server's port counts connections, or does not.
async fn wait_for_counting(server: &Envoy, is_there: bool) {
    eventually(&format!("connections to be counted: {is_there}"), async || {
        let listeners = server.admin_get("/listeners").await.text();
        let found = listeners.contains("counted|default/store|3306");
        if found == is_there { Ok(()) } else { Err(listeners) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_service_counts_connections_after_the_handshake() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let address = setup.mesh.loopback().socket(99, 8081);
    let limits = RateLimits::start(address, 2).await;
    let counted = |what: &str| format!(r"^ratelimit\.counted_inbound_default_store_3306\.{what}$");
    let connect = async || {
        let mut connection = TcpConnection::connect(setup.buyer.socket(3306)).await.unwrap();
        connection.line().await.map(|_| connection)
    };
    let mut before = connect().await.unwrap();
    // Requests, and a connection to another service.
    let load = setup.load().await;
    setup.mesh.write_policy("settings.toml", &connection_counting(address, "fail_open = false"));
    wait_for_counting(&setup.server, true).await;
    // The server speaks first.
    let mut kept = Vec::new();
    for _ in 0..2 {
        kept.push(connect().await.unwrap());
    }
    connect().await.unwrap_err();
    // The buyer's sidecar has reached the store's, and does not retry.
    assert_eq!(limits.counts(), BTreeMap::from([("shop: to=store".to_owned(), 3)]));
    for connection in &mut kept {
        connection.exchange("still there?").await.unwrap();
    }
    // An earlier connection belongs to a removed chain.
    eventually("the old connection to end", async || {
        before.exchange("still there?").await.err().ok_or("it is there")
    })
    .await;
    assert_eq!(setup.server.sum(&counted("total")).await, 3);

    // Without the service calls fail or pass, as policy says.
    let nobody = setup.mesh.loopback().socket(99, 8082);
    setup.mesh.write_policy("settings.toml", &connection_counting(nobody, "fail_open = false"));
    eventually("connections to fail for want of an answer", async || {
        let passed = connect().await.is_ok();
        let errors = setup.server.sum(&counted("error")).await;
        if !passed && errors > 0 { Ok(()) } else { Err(format!("passed: {passed}, {errors}")) }
    })
    .await;
    setup.mesh.write_policy("settings.toml", &connection_counting(nobody, ""));
    eventually("connections to pass", async || connect().await.map(|_| ())).await;
    assert!(setup.server.sum(&counted("failure_mode_allowed")).await > 0);
    setup.mesh.write_policy("settings.toml", "");
    wait_for_counting(&setup.server, false).await;
    connect().await.unwrap();
    setup.assert_no_failures(load).await;
}
