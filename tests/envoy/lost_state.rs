//! A control plane without its state folder: real Envoys do not trust its new authority.

use ironmesh_tests::eventually;

use crate::bookstore::{Bookstore, ensure_status};

#[tokio::test(flavor = "multi_thread")]
async fn lost_authority_is_an_error_while_envoys_keep_serving() {
    let Some(mut store) = Bookstore::open().await else { return };
    store.mesh.stop().await;
    fs_err::remove_dir_all(store.mesh.folder().join("state")).unwrap();
    store.mesh.restart_control_plane().await;
    eventually("the finding", async || {
        let readiness = store.mesh.readyz().await;
        let findings = readiness["findings"].as_array().unwrap();
        let matches = |code: &str, severity: &str| {
            findings.iter().any(|one| one["code"] == code && one["severity"] == severity)
        };
        anyhow::ensure!(matches("IM0704", "error"), "{readiness:#}");
        Ok(())
    })
    .await;
    let status = store.mesh.run(&["status"]).await;
    assert_eq!(status.status.code(), Some(1), "{status:?}");
    ensure_status(&store.buy("/books/1").await.unwrap(), 200).unwrap();
}
