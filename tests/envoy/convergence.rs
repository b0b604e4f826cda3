//! `ironmesh policy wait`: which proxies have not ACKed a revision, and why.

use std::process::Output;

use ironmesh_tests::{Mesh, eventually};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::nacks::{LARGE_REGEX, NackMesh, SMALL_REGEX, auditors};

/// Writes a policy, and waits until it is active. Returns its revision.
async fn activate(mesh: &Mesh, text: &str) -> String {
    let active = async || {
        let state = mesh.admin_get("/v1/convergence").await;
        state.get("revision").cloned().unwrap_or_default()
    };
    let before = active().await;
    mesh.write_policy("auditors.toml", text);
    eventually("another revision", async || match active().await {
        Value::String(revision) if before != *revision => Ok(revision),
        other => Err(other),
    })
    .await
}

async fn wait(mesh: &Mesh, arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } =
        mesh.run(&[&["policy", "wait"], arguments].concat()).await;
    let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (status.success(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_wait_names_the_nacking_and_the_frozen_proxy() {
    let Some(setup) = NackMesh::open().await else { return };
    let (store, mesh) = (&setup.store, &setup.store.mesh);
    let (is_synced, text) = wait(mesh, &[]).await;
    assert!(
        is_synced && text.contains("is synced: every connected proxy that it touches has ACKed it"),
        "{text}"
    );

    store.v1.freeze();
    let revision = activate(mesh, &auditors(LARGE_REGEX)).await;
    // The second version ACKs it, and the buyer's set does not change.
    eventually("two laggards", async || match mesh.admin_get("/v1/convergence").await {
        state if state["lagging"] == 2 => Ok(()),
        state => Err(state),
    })
    .await;
    let (is_synced, text) = wait(mesh, &["--timeout", "1s"]).await;
    assert!(!is_synced, "{text}");
    let row = |name: &str| {
        let mut rows = text.lines().filter(|line| line.ends_with(name));
        rows.next().unwrap_or_else(|| panic!("no row of {name}: {text}")).to_owned()
    };
    assert!(row("default/small").contains("  NACK  "), "{text}");
    assert!(row("default/bookstore-v1").contains("  updating  "), "{text}");
    assert!(text.contains("auditors.toml:8"), "{text}");
    let expected = format!("2 proxies did not ACK revision {revision} in 1 s");
    assert!(text.contains(&expected), "{text}");

    let (is_synced, text) = wait(mesh, &["--revision", "0123456789ab"]).await;
    assert!(!is_synced && text.contains("there is no revision `0123456789ab`"), "{text}");

    let next = activate(mesh, &auditors(SMALL_REGEX)).await;
    let (is_synced, text) = wait(mesh, &["--revision", &revision]).await;
    let expected = format!("revision {revision} is superseded: revision {next} is active");
    assert!(!is_synced && text.contains(&expected), "{text}");
    store.v1.thaw();
    let (is_synced, text) = wait(mesh, &["--revision", &next]).await;
    assert!(is_synced, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_wait_survives_a_control_plane_restart() {
    let Some(mut setup) = NackMesh::open().await else { return };
    setup.store.v1.freeze();
    let revision = activate(&setup.store.mesh, &auditors(SMALL_REGEX)).await;
    let mut waiting = setup.store.mesh.spawn(&["policy", "wait", "--timeout", "30s"]);
    let notice = BufReader::new(waiting.stderr.as_mut().unwrap()).lines().next_line().await;
    // Perhaps for others, too, which have not ACKed it yet.
    let notice = notice.unwrap().unwrap();
    let is_of_wait = notice.starts_with("ironmesh: waiting for ");
    assert!(is_of_wait && notice.ends_with(&format!("to ACK revision {revision}")), "{notice}");
    setup.store.mesh.restart_control_plane().await;
    assert!(waiting.try_wait().unwrap().is_none(), "the frozen proxy has ACKed nothing");
    setup.store.v1.thaw();
    let Output { status, stdout, stderr } = waiting.wait_with_output().await.unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(status.success() && text.contains(&format!("revision {revision} is synced")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_killed_before_its_ack_fails_the_wait() {
    let Some(mut setup) = NackMesh::open().await else { return };
    setup.store.v1.freeze();
    let revision = activate(&setup.store.mesh, &auditors(SMALL_REGEX)).await;
    eventually("the laggard", async || match setup.store.mesh.admin_get("/v1/convergence").await {
        state if state["lagging"] == 1 => Ok(()),
        state => Err(state),
    })
    .await;
    setup.store.v1.kill().await;
    let mesh = &setup.store.mesh;
    eventually("the disconnect", async || match mesh.admin_get("/v1/convergence").await {
        state if state["lagging"] == 0 => Ok(()),
        state => Err(state),
    })
    .await;
    let (is_synced, text) = wait(mesh, &["--timeout", "1s"]).await;
    assert!(!is_synced, "{text}");
    assert!(text.contains("its xDS stream ended before its ACK"), "{text}");
    assert!(text.contains(&format!("1 proxy did not ACK revision {revision}")), "{text}");
    let next = activate(mesh, &auditors("^/small$")).await;
    let (is_synced, text) = wait(mesh, &["--revision", &next]).await;
    assert!(is_synced, "it was away before: {text}");
}

/// Starts the control plane of this mesh with releases in place of its policy folder.
async fn switch_to_releases(mesh: &mut Mesh) {
    let file = mesh.folder().join("ironmesh.toml");
    let settings = fs_err::read_to_string(&file).unwrap();
    let folder =
        format!("{{ folder = \"{}/policy\", removal_hold = \"0s\" }}", mesh.folder().display());
    let releases = settings.replace(&folder, "{ source = \"releases\" }");
    assert_ne!(releases, settings);
    fs_err::write(&file, releases).unwrap();
    mesh.restart_control_plane().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_waits_until_real_envoys_ack() {
    let Some(mut setup) = NackMesh::open().await else { return };
    // The last good policy stays active until the first apply.
    switch_to_releases(&mut setup.store.mesh).await;
    let (store, mesh) = (&setup.store, &setup.store.mesh);
    let (is_synced, text) = wait(mesh, &[]).await;
    assert!(is_synced, "{text}");

    store.v1.freeze();
    mesh.write_policy("auditors.toml", &auditors(SMALL_REGEX));
    let folder = mesh.folder().join("policy");
    let apply = async |timeout: &str| {
        let folder = folder.to_str().unwrap();
        let Output { status, stdout, stderr } =
            mesh.run(&["policy", "apply", folder, "--wait", "--timeout", timeout]).await;
        let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (status.success(), text)
    };
    let (is_synced, text) = apply("1s").await;
    assert!(!is_synced && text.contains("applied revision "), "{text}");
    assert!(text.contains("default/bookstore-v1") && text.contains("did not ACK"), "{text}");
    store.v1.thaw();
    let (is_synced, text) = apply("20s").await;
    assert!(is_synced && text.contains("is already active: nothing to apply"), "{text}");
    assert!(
        text.contains("is synced: every connected proxy that it touches has ACKed it"),
        "{text}"
    );
}
