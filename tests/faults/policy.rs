//! Rows in which policy is lost, broken or leads to no endpoint.

use crate::mesh::{FaultMesh, POLICY};

/// A backend without a proxy, and a split of all calls to it: file `split.toml`.
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
    let Some(setup) = FaultMesh::open().await else { return };
    setup.mesh.remove_policy("shop.toml");
    setup.wait_for_status(1, &["policy"]).await;
    assert_eq!(setup.row("the policy folder is emptied").await, 0);
    setup.mesh.write_policy("shop.toml", POLICY);
    setup.wait_until_healthy().await;
    setup.close().await.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_policy_file_costs_no_request_and_is_reported() {
    let Some(setup) = FaultMesh::open().await else { return };
    setup.mesh.write_policy("shop.toml", &POLICY.replace("name = \"buyers\"", "name = buyers"));
    setup.wait_for_status(1, &["shop.toml"]).await;
    assert_eq!(setup.row("a policy file is broken").await, 0);
    setup.mesh.write_policy("shop.toml", POLICY);
    setup.wait_until_healthy().await;
    setup.close().await.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread")]
async fn split_to_backend_without_endpoints_is_an_error() {
    let Some(setup) = FaultMesh::open().await else { return };
    setup.mesh.write_policy("split.toml", SPLIT);
    setup.wait_for_status(1, &["stall"]).await;
    assert!(setup.row("a split leads to a backend without endpoints").await > 0);
    setup.mesh.remove_policy("split.toml");
    setup.wait_until_healthy().await;
    setup.close().await;
}
