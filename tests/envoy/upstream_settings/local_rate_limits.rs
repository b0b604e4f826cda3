//! Local rate limits: a sidecar of the service rejects excess requests.

use std::fmt::Write as _;

use http::Method;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, TcpConnection, eventually, get_once,
};

use super::setting;
use crate::bookstore::ensure_status;
use crate::split_mesh::SplitMesh;

/// A store that the buyer may call except for `/secret`.
const STORE: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "open"
matches = [{ name = "open", path_regex = "/(?:[^s]|se?a|$)" }]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "open" }]
"#;

/// Five requests, and fewer for some paths.
const LIMIT: &str = r#"
[upstream_traffic_setting.rate_limit.local.http]
requests = 3
unit = "hour"
burst = 2
response_headers_to_add = [{ name = "X-Limited", value = "to 100%" }]
[[upstream_traffic_setting.http_routes]]
path_regex = "/(?:search|secret)"
rate_limit.local.http = { requests = 2, unit = "hour", response_status_code = 503 }
"#;

/// The statuses of repeated requests for `path`.
async fn statuses(connection: &mut Http1Connection, path: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(connection.get(path, "store").await.unwrap().status.as_u16());
    }
    statuses
}

/// Waits until the store's sidecar has a limit, or has none.
async fn wait_for_limit(server: &Envoy, is_there: bool) {
    eventually("the limit to be added or removed", async || {
        let dump = server.config_dump().await.to_string();
        let has_limit = dump.contains("\"token_bucket\"");
        if has_limit == is_there { Ok(()) } else { Err(has_limit) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_requests_are_rejected_and_denied_ones_are_not_counted() {
    let Some(programs) = Programs::find() else { return };
    let policy = [("store.toml", STORE), ("settings.toml", &setting(LIMIT))];
    let mesh = Mesh::start(&programs, &policy).await;
    let app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
    let server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
    let buyer = mesh.envoy(&ProxyOptions::new("default/buyer", 11)).await;
    let socket = buyer.socket(15080);
    // It is denied on a route with its own limit, however often.
    eventually("the store to answer", async || {
        ensure_status(&get_once(socket, "/secret", &[("host", "store")]).await?, 403)
    })
    .await;
    let mut connection = Http1Connection::connect(socket).await.unwrap();
    assert_eq!(statuses(&mut connection, "/secret", 10).await, [403; 10]);
    assert_eq!(statuses(&mut connection, "/share", 10).await, [403; 10]);
    assert_eq!(app.requests(), 0);

    // Requests of the route do not count for the general limit.
    assert_eq!(statuses(&mut connection, "/search?x", 4).await, [200, 200, 503, 503]);
    assert_eq!(statuses(&mut connection, "/books", 7).await, [200, 200, 200, 200, 200, 429, 429]);
    let response = connection.request(Method::GET, "/books", &[("host", "store")]).await.unwrap();
    assert_eq!((response.status.as_u16(), response.header("x-limited")), (429, Some("to 100%")));
    assert_eq!(app.requests(), 7);
    let limited = server.sum(r"^rate_limit\.http_local_rate_limit\.rate_limited$").await;
    assert_eq!(limited, 5);
    // A limit grants nothing: denied requests stay denied.
    assert_eq!(statuses(&mut connection, "/secret", 1).await, [403]);

    // An edit applies to the next request of an open connection.
    mesh.write_policy("settings.toml", "");
    eventually("the limits to be removed", async || {
        let got = statuses(&mut connection, "/books", 10).await;
        if got == [200; 10] { Ok(()) } else { Err(format!("{got:?}")) }
    })
    .await;
    assert_eq!(statuses(&mut connection, "/search", 10).await, [200; 10]);
    server.assert_no_update_errors().await;
    buyer.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_rate_limit_changes_disturb_no_call() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let load = setup.load().await;
    for requests in [1_000_000, 2_000_000] {
        let limit = format!("{{ requests = {requests}, unit = \"second\" }}");
        let mut policy = format!(
            "[[upstream_traffic_setting]]\nname = \"all\"\nrate_limit.local.http = {limit}\n\
             http_routes = [{{ path_regex = \"/e\", rate_limit.local.http = {limit} }}"
        );
        // Envoy accepts every status that policy may set.
        for status in
            (400..=417).chain(421..=424).chain([426, 428, 429, 431, 510, 511]).chain(500..=508)
        {
            let limit = limit.replace(" }", &format!(", response_status_code = {status} }}"));
            write!(policy, ", {{ path_regex = \"/{status}\", rate_limit.local.http = {limit} }}")
                .unwrap();
        }
        policy += "]\n";
        setup.mesh.write_policy("settings.toml", &policy);
        wait_for_limit(&setup.server, true).await;
    }
    setup.mesh.write_policy("settings.toml", "");
    wait_for_limit(&setup.server, false).await;
    setup.assert_no_failures(load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_connections_close_and_older_ones_drain_with_their_chain() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let mut before = TcpConnection::connect(setup.buyer.socket(3306)).await.unwrap();
    before.line().await.unwrap();
    // Requests, and a connection to another service.
    let load = setup.load().await;
    let limit = "rate_limit.local.tcp = { connections = 2, unit = \"hour\" }";
    setup.mesh.write_policy("settings.toml", &setting(limit));
    wait_for_limit(&setup.server, true).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut connection = TcpConnection::connect(setup.buyer.socket(3306)).await.unwrap();
        connection.line().await.unwrap();
        kept.push(connection);
    }
    let mut third = TcpConnection::connect(setup.buyer.socket(3306)).await.unwrap();
    third.line().await.unwrap_err();
    // The buyer's sidecar retries once.
    let limited = setup.server.sum(r"^local_rate_limit\..*\.rate_limited$").await;
    assert!((1..=2).contains(&limited), "{limited}");
    // An earlier connection belongs to a removed chain, and ends within the drain time.
    eventually("the old connection to end", async || {
        before.exchange("still there?").await.err().ok_or("it is there")
    })
    .await;
    for connection in &mut kept {
        connection.exchange("still there?").await.unwrap();
    }
    setup.mesh.write_policy("settings.toml", "");
    wait_for_limit(&setup.server, false).await;
    setup.assert_no_failures(load).await;
}
