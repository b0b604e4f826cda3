//! Rows in which a machine, its Envoy or its application fails.

use ironmesh_tests::{App, get_once};
use serde_json::Value;

use crate::mesh::FaultMesh;

/// The share of requests that callers may lose when one of two machines goes, in percent (issue: A5).
const TOLERABLE_PERCENT: u64 = 1;

#[tokio::test(flavor = "multi_thread")]
async fn one_killed_envoy_of_two_costs_few_requests_and_is_reported() {
    let Some(mut setup) = FaultMesh::open().await else { return };
    setup.stores[1].kill().await;
    let lost = setup.failures_of(1000).await;
    assert!(lost * 100 <= TOLERABLE_PERCENT * 1000, "{lost} of 1000 requests failed");
    setup.wait_for_status(1, &["store"]).await;
    assert_eq!(setup.row("one of two Envoys of a service is killed").await, 0);
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_frozen_envoy_of_two_costs_few_requests_and_is_reported() {
    let Some(setup) = FaultMesh::open().await else { return };
    setup.stores[1].freeze();
    let lost = setup.failures_of(2000).await;
    assert!(lost * 100 <= TOLERABLE_PERCENT * 2000, "{lost} of 2000 requests failed");
    assert_eq!(setup.row("one of two Envoys of a service hangs").await, 0);
    setup.stores[1].thaw();
    setup.wait_until_healthy().await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_without_any_live_envoy_is_an_error() {
    let Some(mut setup) = FaultMesh::open().await else { return };
    for store in &mut setup.stores {
        store.kill().await;
    }
    setup.wait_for_status(1, &["default/store"]).await;
    assert!(setup.row("all Envoys of a service are killed").await > 0);
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_caller_envoy_is_reported() {
    let Some(mut setup) = FaultMesh::open().await else { return };
    setup.buyer.kill().await;
    setup.wait_for_status(1, &["disconnected"]).await;
    assert!(setup.row("the caller's own Envoy is killed").await > 0);
    setup.close().await;
}

/// A row that needs application health: Envoy and control plane work, the application does not. No
/// health probe exists yet, so status shows `unknown`, and never `healthy`.
#[tokio::test(flavor = "multi_thread")]
async fn killed_application_is_shown_as_unknown() {
    let Some(mut setup) = FaultMesh::open().await else { return };
    setup.apps[1] = None;
    let lost = setup.failures_of(200).await;
    assert!(lost > 0, "the application was not called");
    let output = setup.mesh.run(&["endpoints", "default/store", "--output", "json"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let endpoints: Value = serde_json::from_str(&text).unwrap();
    assert!(!text.contains("\"healthy\"") && text.contains("\"unknown\""), "{endpoints:#}");
    eprintln!("| one of two applications is killed | {lost} of 200 | unknown | needs health |");
    let address = setup.stores[1].socket(8080);
    setup.apps[1] = Some(App::http1("22", address).await);
    setup.wait_until_healthy().await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_proxy_of_two_costs_no_request() {
    let Some(setup) = FaultMesh::open().await else { return };
    let address = setup.stores[1].address().to_string();
    let proxies = setup.mesh.proxies().await;
    let matches = |proxy: &&Value| {
        proxy["mesh_address"].as_str().is_some_and(|text| text.starts_with(&address))
    };
    let proxy = proxies.as_array().unwrap().iter().find(matches).unwrap();
    let id = proxy["id"].as_str().unwrap();
    assert!(setup.mesh.run(&["proxy", "revoke", id]).await.status.success());
    assert_eq!(setup.row("one of two proxies is revoked").await, 0);
    assert_eq!(get_once(setup.buyer.socket(14001), "/", &[]).await.unwrap().status, 200);
    setup.close().await.assert_undisturbed();
}
