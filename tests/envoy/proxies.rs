//! A proxy's setup: its listen address, its services and its upstreams.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ironmesh_tests::{App, Mesh, Programs, ProxyOptions, eventually, get_once};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::bookstore::{Bookstore, ensure_status, wait_for_endpoint};

const POLICY: &str = r#"
[[service]]
name = "till"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]

[[service]]
name = "safe"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8081 }]

[[service]]
name = "customer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "till"
destination = { name = "till" }
sources = [{ name = "customer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]

[[traffic_target]]
name = "safe"
destination = { name = "safe" }
sources = [{ name = "customer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// OSM 13.
#[tokio::test(flavor = "multi_thread")]
async fn one_proxy_serves_two_services_each_under_its_own_identity() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let _till = App::http1("till", mesh.loopback().socket(41, 8080)).await;
    let _safe = App::http1("safe", mesh.loopback().socket(41, 8081)).await;
    let both =
        mesh.envoy(&ProxyOptions::new("default/till", 41).with_service("default/safe")).await;
    let customer = mesh.envoy(&ProxyOptions::new("default/customer", 51)).await;
    for service in ["till", "safe"] {
        wait_for_endpoint(&customer, &format!("default/{service}|80")).await;
        let answer = eventually(&format!("the {service} to answer"), async || {
            let by_host = customer.socket(15080);
            let answer = get_once(by_host, "/", &[("host", service)]).await?;
            ensure_status(&answer, 200)?;
            anyhow::Ok(answer)
        })
        .await;
        assert_eq!(answer.header("x-app"), Some(service));
        // The customer accepted only this account, and saw its certificate.
        let checked = format!("cluster.default/{service}|80.ssl.handshake");
        assert!(customer.stat(&checked).await > 0);
    }
    let sans: BTreeSet<_> = both.uri_sans().await;
    for service in ["till", "safe"] {
        let id = format!("spiffe://mesh.internal/ns/default/sa/{service}");
        assert!(sans.contains(&id), "{sans:?}");
    }
    both.assert_no_update_errors().await;
    customer.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_listens_on_bind_and_is_dialed_at_its_mesh_address() {
    let Some(programs) = Programs::find() else { return };
    let mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    // The application is next to the proxy, and a router forwards the dialed address.
    let (address, bind) = (41, 42);
    let app_address = mesh.loopback().host(bind);
    let _till = App::http1("till", mesh.loopback().socket(bind, 8080)).await;
    let options = ProxyOptions::new("default/till", address).bind(bind).app_address(app_address);
    let till = mesh.envoy(&options).await;
    let (dialled, bound) =
        (mesh.loopback().socket(address, 15003), mesh.loopback().socket(bind, 15003));
    let _router = forward(dialled, bound).await;
    let customer = mesh.envoy(&ProxyOptions::new("default/customer", 51)).await;
    eventually("the till to answer", async || {
        let by_host = customer.socket(15080);
        ensure_status(&get_once(by_host, "/", &[("host", "till")]).await?, 200)
    })
    .await;

    let endpoints = customer.admin_get("/clusters").await.text();
    let endpoint = format!("default/till|80::{dialled}::");
    assert!(endpoints.contains(&endpoint), "no {endpoint:?} in\n{endpoints}");
    assert!(!endpoints.contains(&bound.to_string()), "{endpoints}");
    let listeners = till.admin_get("/listeners").await.text();
    assert!(listeners.contains(&format!("inbound::{bound}")), "{listeners}");
    assert!(!listeners.contains(&dialled.ip().to_string()), "{listeners}");
    till.assert_no_update_errors().await;
}

/// Forwards connections from one address to another until the returned set is dropped.
async fn forward(from: SocketAddr, to: SocketAddr) -> JoinSet<()> {
    let listener = TcpListener::bind(from).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let mut far = TcpStream::connect(to).await.unwrap();
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    tasks
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_upstream_is_denied_by_the_caller_sidecar() {
    let upstreams = ["default/bookwarehouse:14002=14002"];
    let Some(store) = Bookstore::open_with(&[], &upstreams).await else { return };
    let app = App::http2("bookwarehouse", store.mesh.loopback().socket(31, 8080)).await;
    let warehouse = store.mesh.envoy(&ProxyOptions::new("default/bookwarehouse", 31)).await;
    let ledger = store.buyer.socket(14002);
    let answer = eventually("the upstream", async || get_once(ledger, "/ledger", &[]).await).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    let caller = "spiffe://mesh.internal/ns/default/sa/bookbuyer";
    let words = format!("ironmesh: {caller} may not call default/bookwarehouse");
    assert!(answer.text().starts_with(&words), "{}", answer.text());
    // The buyer's own sidecar rejected it: it has no route there, and no request reached the
    // warehouse.
    let clusters = store.buyer.admin_get("/clusters").await.text();
    assert!(!clusters.contains("bookwarehouse"), "{clusters}");
    let came = warehouse.stats(r"^listener\..*_15003\.downstream_cx_total$").await;
    assert_eq!(came.values().collect::<Vec<_>>(), [&0], "{came:?}");
    assert_eq!(app.connections(), 0);

    // With a grant the same port leads there.
    store.mesh.write_policy("warehouse.toml", crate::restart::WAREHOUSE);
    eventually("the grant", async || ensure_status(&get_once(ledger, "/ledger", &[]).await?, 200))
        .await;
    assert_eq!(app.requests(), 1);
    store.assert_no_update_errors().await;
}
