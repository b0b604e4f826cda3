//! An operator takes a hand-run proxy out of service under load, and returns it.

use ironmesh_tests::{App, Envoy, Load, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually};
use serde_json::Value;

use crate::bookstore::{Bookstore, HOST, PORT};
use crate::enrollment::text;

/// The host number of the machine that is taken out of service.
const MACHINE: u8 = 23;

#[tokio::test(flavor = "multi_thread")]
async fn cordoned_proxy_gets_no_new_requests_and_returns() {
    let (Some(programs), Some(mut store)) = (Programs::find(), Bookstore::open().await) else {
        return;
    };
    let mesh = &store.mesh;
    let app = App::http1("bookstore-v1", mesh.loopback().socket(MACHINE, 8080)).await;
    let options = ProxyOptions::new("default/bookstore-v1", MACHINE);
    let folder = mesh.bootstrap(&options).await;
    let address = mesh.loopback().host(MACHINE);
    let start = async || Envoy::start(&programs.envoy, "bookstore", &folder, address, 30).await;
    let envoy = start().await;
    let healthy = format!("cluster.default/bookstore-v1|{PORT}.membership_healthy");
    let wait_for_healthy = async |buyer: &Envoy, expected: u64| {
        eventually("healthy endpoints", async || match buyer.stat(&healthy).await {
            count if count == expected => Ok(()),
            count => Err(count),
        })
        .await;
    };
    wait_for_healthy(&store.buyer, 2).await;
    let proxies = mesh.proxies().await;
    let ours = proxies
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["mesh_address"].as_str().unwrap().starts_with(&address.to_string()));
    let name = ours.unwrap()["name"].as_str().unwrap().to_owned();

    let load = Load::start(store.buyer.socket(15080), HOST, "/books/1");
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    let shown = text(&mesh.run(&["proxy", "cordon", &name, "--reason", "a new disk"]).await);
    assert!(shown.contains("all connected callers have ACKed that"), "{shown}");
    assert!(!shown.contains("warning"), "{shown}");
    assert_eq!(store.buyer.stat(&healthy).await, 1, "callers have it when the command ends");
    // Requests on their way arrive; no others are sent.
    load.wait_for_requests(50).await;
    let before = app.requests();
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert_eq!(app.requests(), before, "it gets no new requests");
    let shown = text(&mesh.run(&["endpoints", "default/bookstore-v1"]).await);
    assert!(shown.contains("draining") && shown.contains("its proxy is cordoned since"), "{shown}");

    // Neither a restart of the control plane nor a new Envoy returns it.
    store.mesh.restart_control_plane().await;
    let mesh = &store.mesh;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    envoy.stop().await;
    let mut envoy = start().await;
    eventually("the new Envoy to be synced", async || {
        let proxies = mesh.proxies().await;
        let ours = proxies.as_array().unwrap().iter().find(|one| one["name"] == *name).unwrap();
        anyhow::ensure!(ours["sync"]["state"] == "synced", "{ours:#}");
        Ok(())
    })
    .await;
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    assert_eq!((app.requests(), store.buyer.stat(&healthy).await), (before, 1));

    // Of two proxies that serve the same, the last one is named.
    let shown = text(&mesh.run(&["proxy", "drain", "bookstore-v1-1", "--dry-run"]).await);
    assert!(
        shown.contains("warning: these ports would have no other available endpoint"),
        "{shown}"
    );
    assert!(shown.contains(&format!("default/bookstore-v1|{PORT}")), "{shown}");

    let shown = text(&mesh.run(&["proxy", "drain", &name]).await);
    assert!(shown.contains("drain_listeners?inboundonly&graceful&skip_exit"), "{shown}");
    let shown = text(&mesh.run(&["proxy", "uncordon", &name]).await);
    assert!(shown.contains("is in service"), "{shown}");
    wait_for_healthy(&store.buyer, 2).await;
    eventually("requests to the proxy", async || match app.requests() {
        count if count > before + 10 => Ok(()),
        count => Err(count),
    })
    .await;
    load.finish().await.assert_undisturbed();

    // A caller that hangs is named after 15 s, and the cordon holds all the same.
    store.buyer.freeze();
    let output = mesh.run(&["proxy", "cordon", &name, "--output", "json"]).await;
    store.buyer.thaw();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["acked"], &result["laggards"][0]), (&false.into(), &"bookbuyer-1".into()));
    wait_for_healthy(&store.buyer, 1).await;
    let again = text(&mesh.run(&["proxy", "cordon", &name]).await);
    assert!(again.contains("was already cordoned") && again.contains("have ACKed that"), "{again}");
    envoy.assert_running();
    store.assert_no_update_errors().await;
}
