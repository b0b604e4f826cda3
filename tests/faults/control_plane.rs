//! Rows in which the control plane or its state fails: traffic goes on, and operators see the fault.

use fs_err as fs;

use crate::mesh::FaultMesh;

#[tokio::test(flavor = "multi_thread")]
async fn killed_control_plane_costs_no_request_and_is_unreachable() {
    let Some(mut setup) = FaultMesh::open().await else { return };
    setup.mesh.kill_control_plane().await;
    setup.wait_for_status(4, &[]).await;
    assert_eq!(setup.row("the control plane is killed").await, 0);
    setup.mesh.restart_control_plane().await;
    setup.wait_until_healthy().await;
    setup.close().await.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_control_plane_costs_no_request_and_is_unreachable() {
    let Some(setup) = FaultMesh::open().await else { return };
    setup.mesh.freeze_control_plane();
    setup.wait_for_status(4, &[]).await;
    assert_eq!(setup.row("the control plane hangs").await, 0);
    setup.mesh.thaw_control_plane();
    setup.wait_until_healthy().await;
    setup.close().await.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_state_folder_costs_no_request_and_is_reported() {
    let Some(setup) = FaultMesh::open().await else { return };
    let state = setup.mesh.folder().join("state");
    // The socket stays, so that `status` reaches the control plane.
    fs::remove_file(state.join("state.redb")).unwrap();
    setup.wait_for_status(1, &["state"]).await;
    assert_eq!(setup.row("the database file is removed").await, 0);
    setup.close().await.assert_undisturbed();
}
