//! Rows in which a machine, its Envoy or its application fails.

use ironmesh_tests::{App, get_once};
use serde_json::Value;

use crate::shop::Shop;

/// The share of requests that callers may lose when one of two machines goes, in percent (issue: A5).
const TOLERABLE_PERCENT: u64 = 1;

#[tokio::test(flavor = "multi_thread")]
async fn one_killed_envoy_of_two_costs_few_requests_and_is_reported() {
    let Some(mut shop) = Shop::open().await else { return };
    shop.stores[1].kill().await;
    let lost = shop.lost_of(1000).await;
    assert!(lost * 100 <= TOLERABLE_PERCENT * 1000, "{lost} of 1000 requests failed");
    shop.reports(1, &["store"]).await;
    assert_eq!(shop.row("one of two Envoys of a service is killed").await, 0);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_frozen_envoy_of_two_costs_few_requests_and_is_reported() {
    let Some(shop) = Shop::open().await else { return };
    shop.stores[1].freeze();
    let lost = shop.lost_of(2000).await;
    assert!(lost * 100 <= TOLERABLE_PERCENT * 2000, "{lost} of 2000 requests failed");
    assert_eq!(shop.row("one of two Envoys of a service hangs").await, 0);
    shop.stores[1].thaw();
    shop.is_healthy().await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_without_any_live_envoy_is_an_error() {
    let Some(mut shop) = Shop::open().await else { return };
    for store in &mut shop.stores {
        store.kill().await;
    }
    shop.reports(1, &["default/store"]).await;
    assert!(shop.row("all Envoys of a service are killed").await > 0);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_caller_envoy_is_reported() {
    let Some(mut shop) = Shop::open().await else { return };
    shop.buyer.kill().await;
    shop.reports(1, &["away"]).await;
    assert!(shop.row("the caller's own Envoy is killed").await > 0);
    shop.close().await;
}

/// A row that needs application health: Envoy and control plane are well, the application is not. Nothing probes it
/// yet, so what is shown is `unknown`, and never `healthy`.
#[tokio::test(flavor = "multi_thread")]
async fn killed_application_is_shown_as_unknown() {
    let Some(mut shop) = Shop::open().await else { return };
    shop.apps[1] = None;
    let lost = shop.lost_of(200).await;
    assert!(lost > 0, "the application was not called");
    let output = shop.mesh.run(&["endpoints", "default/store", "--output", "json"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let endpoints: Value = serde_json::from_str(&text).unwrap();
    assert!(!text.contains("\"healthy\"") && text.contains("\"unknown\""), "{endpoints:#}");
    eprintln!("| one of two applications is killed | {lost} of 200 | unknown | needs health |");
    let address = shop.stores[1].socket(8080);
    shop.apps[1] = Some(App::http1("22", address).await);
    shop.is_healthy().await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_proxy_of_two_costs_no_request() {
    let Some(shop) = Shop::open().await else { return };
    let address = shop.stores[1].address().to_string();
    let proxies = shop.mesh.proxies().await;
    let is_it = |proxy: &&Value| {
        proxy["mesh_address"].as_str().is_some_and(|text| text.starts_with(&address))
    };
    let proxy = proxies.as_array().unwrap().iter().find(is_it).unwrap();
    let id = proxy["id"].as_str().unwrap();
    assert!(shop.mesh.run(&["proxy", "revoke", id]).await.status.success());
    assert_eq!(shop.row("one of two proxies is revoked").await, 0);
    assert_eq!(get_once(shop.buyer.socket(14001), "/", &[]).await.unwrap().status, 200);
    shop.close().await.assert_undisturbed();
}
