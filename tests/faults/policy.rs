//! Rows in which policy is lost, broken or leads nowhere.

use crate::shop::{POLICY, Shop};

/// A backend that no proxy has joined as, and all calls to it: file `split.toml`.
const SPLIT: &str = r#"
[[service]]
name = "stall"
service_account = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[traffic_split]]
name = "canary"
service = "store"
backends = [{ service = "stall", weight = 100 }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn emptied_policy_folder_costs_no_request_and_is_reported() {
    let Some(shop) = Shop::open().await else { return };
    shop.mesh.remove_policy("shop.toml");
    shop.reports(1, &["policy"]).await;
    assert_eq!(shop.row("the policy folder is emptied").await, 0);
    shop.mesh.write_policy("shop.toml", POLICY);
    shop.is_healthy().await;
    shop.close().await.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_policy_file_costs_no_request_and_is_reported() {
    let Some(shop) = Shop::open().await else { return };
    shop.mesh.write_policy("shop.toml", &POLICY.replace("name = \"buyers\"", "name = buyers"));
    shop.reports(1, &["shop.toml"]).await;
    assert_eq!(shop.row("a policy file is broken").await, 0);
    shop.mesh.write_policy("shop.toml", POLICY);
    shop.is_healthy().await;
    shop.close().await.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread")]
async fn split_to_backend_without_endpoints_is_an_error() {
    let Some(shop) = Shop::open().await else { return };
    shop.mesh.write_policy("split.toml", SPLIT);
    shop.reports(1, &["stall"]).await;
    assert!(shop.row("a split leads to a backend without endpoints").await > 0);
    shop.mesh.remove_policy("split.toml");
    shop.is_healthy().await;
    shop.close().await;
}
