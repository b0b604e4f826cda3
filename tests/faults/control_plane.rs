//! Rows in which the control plane or its state fails: traffic goes on, and operators see the fault.

use fs_err as fs;

use crate::shop::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn killed_control_plane_costs_no_request_and_is_unreachable() {
    let Some(mut shop) = Shop::open().await else { return };
    shop.mesh.kill_control_plane().await;
    shop.reports(4, &[]).await;
    assert_eq!(shop.row("the control plane is killed").await, 0);
    shop.mesh.restart_control_plane().await;
    shop.is_healthy().await;
    shop.close().await.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_control_plane_costs_no_request_and_is_unreachable() {
    let Some(shop) = Shop::open().await else { return };
    shop.mesh.freeze_control_plane();
    shop.reports(4, &[]).await;
    assert_eq!(shop.row("the control plane hangs").await, 0);
    shop.mesh.thaw_control_plane();
    shop.is_healthy().await;
    shop.close().await.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_state_folder_costs_no_request_and_is_reported() {
    let Some(shop) = Shop::open().await else { return };
    let state = shop.mesh.folder().join("state");
    // The socket stays, so that `status` reaches the control plane.
    fs::remove_file(state.join("state.redb")).unwrap();
    shop.reports(1, &["state"]).await;
    assert_eq!(shop.row("the database file is removed").await, 0);
    shop.close().await.assert_undisturbed();
}
