//! Withdrawals from TCP ports that end only the withdrawn caller's connections.

use ironmesh_tests::{Envoy, Ledger, ProxyOptions, TcpConnection, eventually};
use serde_json::Value;

use crate::bookstore::wait_for_endpoint;
use crate::tcp::{DRAIN_SECONDS, DirectCaller, TcpMesh, UPSTREAM, ledger, use_past_drain_time};

const KEY: &str = "withdrawn.default/bookwarehouse|3306.default/bookkeeper";

/// The names of the runtime keys of withdrawn callers.
async fn keys(sidecar: &Envoy) -> Vec<String> {
    let runtime: Value = sidecar.admin_get("/runtime").await.json();
    let entries = runtime.pointer("/entries").and_then(Value::as_object).unwrap();
    entries.keys().filter(|key| key.starts_with("withdrawn.")).cloned().collect()
}

/// Waits until `connection` has ended, without sending anything.
async fn wait_for_end<S>(connection: &mut TcpConnection<S>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let ended = connection.line().await.unwrap_err();
    assert!(!format!("{ended:#}").contains("no line comes"), "{ended:#}");
}

/// OSM 10. The store's connection stays throughout.
#[tokio::test(flavor = "multi_thread")]
async fn withdrawal_ends_only_the_withdrawn_callers_connections() {
    let Some(mut warehouse) = TcpMesh::open().await else { return };
    let mut stores = warehouse.connected(&warehouse.store).await;
    assert_eq!(keys(&warehouse.sidecar).await, [""; 0]);

    // A new caller.
    warehouse.mesh.write_policy("ledger.toml", &ledger(&["bookstore", "bookkeeper"]));
    let keeper = warehouse.direct_caller("default/bookkeeper", 14).await;
    eventually("the keeper to be admitted", async || keeper.greeting().await).await;
    let mut active = keeper.dial().await.unwrap();
    let mut silent = keeper.dial().await.unwrap();
    for connection in [&mut active, &mut silent] {
        assert_eq!(connection.line().await.unwrap(), "bookwarehouse");
    }
    use_past_drain_time(&mut [&mut stores]).await;
    active.exchange("still there").await.unwrap();

    // Its withdrawal, while the control plane is away.
    let DirectCaller { certificate, proxy_client, .. } = keeper;
    warehouse.mesh.kill_control_plane().await;
    warehouse.mesh.write_policy("ledger.toml", &ledger(&["bookstore"]));
    active.exchange("while it is away").await.unwrap();
    warehouse.mesh.restart_control_plane().await;
    eventually("the end of a connection", async || {
        active.exchange("still there").await.err().ok_or("it is open")
    })
    .await;
    assert_eq!(keys(&warehouse.sidecar).await, [KEY]);
    assert_eq!(warehouse.sidecar.sum(r"^withdrawn_inbound_.*\.rbac\.denied$").await, 1);
    // Envoy judges nothing on a connection without a byte from its caller: its chain ends it.
    wait_for_end(&mut silent).await;
    use_past_drain_time(&mut [&mut stores]).await;
    let keeper = DirectCaller { warehouse: &warehouse, proxy_client, certificate };
    keeper.greeting().await.unwrap_err();

    // A restart repeats nothing, and forgets nothing.
    let DirectCaller { certificate, proxy_client, .. } = keeper;
    warehouse.mesh.restart_control_plane().await;
    use_past_drain_time(&mut [&mut stores]).await;
    assert_eq!(keys(&warehouse.sidecar).await, [KEY]);

    // The next grant applies at once.
    warehouse.mesh.write_policy("ledger.toml", &ledger(&["bookstore", "bookkeeper"]));
    let keeper = DirectCaller { warehouse: &warehouse, proxy_client, certificate };
    eventually("the keeper to be admitted again", async || keeper.greeting().await).await;
    let mut active = keeper.dial().await.unwrap();
    assert_eq!(active.line().await.unwrap(), "bookwarehouse");
    active.exchange("again").await.unwrap();
    assert_eq!(keys(&warehouse.sidecar).await, [""; 0]);
    stores.exchange("still there").await.unwrap();
    warehouse.sidecar.assert_no_update_errors().await;
    warehouse.store.assert_no_update_errors().await;
}

/// Two proxies of one service, of which one has a bootstrap from before there were versions.
#[tokio::test(flavor = "multi_thread")]
async fn bootstraps_with_and_without_the_layer_serve_side_by_side() {
    let Some(warehouse) = TcpMesh::open().await else { return };
    let mesh = &warehouse.mesh;
    mesh.write_policy("ledger.toml", &ledger(&["bookstore", "bookkeeper"]));
    let _app = Ledger::start("bookwarehouse", mesh.loopback().socket(32, 8080)).await;
    let first = ProxyOptions::new("default/bookwarehouse", 32).drain_seconds(DRAIN_SECONDS);
    let first = mesh.envoy(&first.first_bootstrap()).await;
    let store = ProxyOptions::new("default/bookstore", 22).upstream(UPSTREAM);
    let store = mesh.envoy(&store).await;
    wait_for_endpoint(&store, "default/bookwarehouse|3306").await;
    let dump = first.config_dump().await.to_string();
    assert!(!dump.contains("config_discovery") && !dump.contains("callers|"), "{dump}");

    // A connection to each.
    let mut with_layer = Vec::new();
    let mut without = Vec::new();
    eventually("a connection to each of the two", async || {
        let count = first.sum(r"^cluster\.default/bookwarehouse\|3306\|local\.upstream_cx_total$");
        let before = count.await;
        let connection = warehouse.connected(&store).await;
        let count = first.sum(r"^cluster\.default/bookwarehouse\|3306\|local\.upstream_cx_total$");
        if count.await > before {
            without.push(connection);
        } else {
            with_layer.push(connection);
        }
        if with_layer.is_empty() || without.is_empty() { Err("one has none") } else { Ok(()) }
    })
    .await;
    mesh.write_policy("ledger.toml", &ledger(&["bookstore"]));
    eventually("the withdrawal to drain the first bootstrap's connections", async || {
        without[0].exchange("still there").await.err().ok_or("it is open")
    })
    .await;
    eventually("the key", async || {
        let keys = keys(&warehouse.sidecar).await;
        if keys == [KEY] { Ok(()) } else { Err(format!("{keys:?}")) }
    })
    .await;
    use_past_drain_time(&mut [&mut with_layer[0]]).await;

    let shown = |name: &str| {
        let name = name.to_owned();
        async move {
            let output = mesh.run(&["proxy", "show", &name]).await;
            String::from_utf8(output.stdout).unwrap()
        }
    };
    let names: Value = mesh.proxies().await;
    let names = names.as_array().unwrap().iter();
    let mut texts = Vec::new();
    for id in names.filter_map(|proxy| proxy["id"].as_str()) {
        texts.push(shown(id).await);
    }
    let of_all = texts.iter().filter(|text| text.contains("ends all callers' connections"));
    assert_eq!(of_all.count(), 1, "{texts:#?}");
    first.assert_no_update_errors().await;
    warehouse.sidecar.assert_no_update_errors().await;
}
