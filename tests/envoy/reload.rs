//! Policy changes in a running mesh: swaps, edits and mistakes.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use fs_err as fs;
use ironmesh_tests::{Http1Connection, Mesh, Programs, ProxyOptions, eventually, get_once};
use serde_json::Value;
use tokio::time::Instant;

use crate::bookstore::{Bookstore, HOST, buyers, ensure_status};

/// Waits until the buyer gets this status.
async fn wait_for_status(store: &Bookstore, status: u16) {
    eventually(&format!("an answer {status}"), async || {
        ensure_status(&store.buy("/books/1").await?, status)
    })
    .await;
}

/// A copy of the policy folder in which the buyer may request `path_regex`.
fn release(store: &Bookstore, name: &str, path_regex: &str) -> std::path::PathBuf {
    let (policy, copy) = (store.mesh.folder().join("policy"), store.mesh.folder().join(name));
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(policy).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    fs::write(copy.join("buyers.toml"), buyers(path_regex)).unwrap();
    copy
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_policy_folder_or_symlink_is_applied() {
    let Some(store) = Bookstore::open().await else { return };
    let policy = store.mesh.folder().join("policy");
    let denying = release(&store, "denying", "/magazines/.*");
    let granting = release(&store, "granting", "/books/.*");

    // One folder replaces another: for a moment there is none, which changes nothing.
    fs::rename(&policy, store.mesh.folder().join("first")).unwrap();
    fs::rename(&denying, &policy).unwrap();
    wait_for_status(&store, 403).await;

    // A symlink replaces the folder, then a symlink another, as deploy tools do.
    let link = |target: &Path| {
        let new = store.mesh.folder().join("new-link");
        symlink(target, &new).unwrap();
        fs::rename(new, &policy).unwrap();
    };
    fs::rename(&policy, &denying).unwrap();
    link(&granting);
    wait_for_status(&store, 200).await;
    link(&denying);
    wait_for_status(&store, 403).await;
    link(&granting);
    wait_for_status(&store, 200).await;
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_policy_file_changes_nothing_and_is_reported() {
    let Some(mut store) = Bookstore::open().await else { return };
    let good = store.mesh.readyz().await["policy"]["revision"].clone();
    let mut connection = Http1Connection::connect(store.local_address()).await.unwrap();

    // A mistake in a new file, and a valid edit that would withdraw the buyer's grant. The mistake
    // is written first, so the edit alone can never become active.
    store.mesh.write_policy("mistake.toml", "[[service]]\nname = \"till\"\nprots = []\n");
    store.mesh.write_policy("buyers.toml", &buyers("/magazines/.*"));
    let finding = eventually("the finding", async || {
        let policy = store.mesh.readyz().await["policy"].clone();
        match policy["findings"].as_array().map(Vec::as_slice) {
            Some([finding]) if finding["severity"] == "error" => Ok((finding.clone(), policy)),
            _ => Err(policy.to_string()),
        }
    })
    .await;
    let (finding, policy) = finding;
    assert_eq!(finding["code"], "IM0102");
    assert_eq!(finding["file"], "mistake.toml");
    assert_eq!((&finding["line"], &finding["column"]), (&3.into(), &1.into()));
    assert!(policy["rendered"].as_str().unwrap().contains("did you mean `ports`"), "{policy:#}");
    assert_eq!(policy["revision"], good);
    assert_ne!(policy["stale_since"], Value::Null);
    let log = store.mesh.log();
    for part in ["code=IM0102", "mistake.toml:3:1", "did you mean `ports`", "stays active"] {
        assert!(log.contains(part), "no {part:?} in\n{log}");
    }
    assert_eq!(connection.get("/books/1", HOST).await.unwrap().status, 200);

    // The folder is still invalid after a restart: the last good policy is active again.
    store.mesh.kill_control_plane().await;
    store.mesh.restart_control_plane().await;
    let policy = store.mesh.readyz().await["policy"].clone();
    assert_eq!(policy["revision"], good, "{policy:#}");
    assert_eq!(connection.get("/books/1", HOST).await.unwrap().status, 200);

    // Once the mistake is fixed, the whole policy applies.
    store.mesh.remove_policy("mistake.toml");
    eventually("the fixed policy", async || {
        ensure_status(&connection.get("/books/1", HOST).await?, 403)
    })
    .await;
    let policy = store.mesh.readyz().await["policy"].clone();
    let errors = policy["findings"].as_array().unwrap().iter();
    let errors = errors.filter(|finding| finding["severity"] == "error");
    assert_eq!((errors.count(), &policy["stale_since"]), (0, &Value::Null), "{policy:#}");
    store.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quick_edits_in_place_are_applied_as_one_revision() {
    let Some(store) = Bookstore::open().await else { return };
    let policy = store.mesh.folder().join("policy");
    let in_force = || store.mesh.log().matches("policy is active").count();
    let mut attempt = 0;
    eventually("five edits within half of the settling time", async || {
        attempt += 1;
        let (before, started_at) = (in_force(), Instant::now());
        // Each file alone is a change of policy that could become active.
        for number in 0..4 {
            let text = format!("[[service]]\nname = \"extra-{attempt}-{number}\"\n");
            fs::write(policy.join(format!("extra-{number}.toml")), text).unwrap();
        }
        let path_regex = if attempt % 2 == 1 { "/magazines/.*" } else { "/books/.*" };
        fs::write(policy.join("buyers.toml"), buyers(path_regex)).unwrap();
        let took = started_at.elapsed();
        wait_for_status(&store, if attempt % 2 == 1 { 403 } else { 200 }).await;
        // On a machine that stalls between two edits, they count as two.
        anyhow::ensure!(took < SETTLE / 2, "the edits took {took:?}");
        assert_eq!(in_force() - before, 1, "{}", store.mesh.log());
        anyhow::Ok(())
    })
    .await;
    store.assert_no_update_errors().await;
}

/// The time that edits in place settle before the control plane applies them.
const SETTLE: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
async fn change_burst_is_debounced_for_the_settle_time() {
    let Some(programs) = Programs::find() else { return };
    let till = |port: u16| {
        format!(
            "[[service]]\nname = \"till\"\nports = [{{ port = {port}, protocol = \"http\" }}]\n"
        )
    };
    let mesh = Mesh::start_with("settle = \"6s\"", &programs, &[("till.toml", &till(1))]).await;
    let envoy = mesh.envoy(&ProxyOptions::new("default/till", 21)).await;
    let sets = async || {
        let metrics = get_once(mesh.admin(), "/metrics", &[]).await.unwrap().text();
        let sets = metrics.lines().find_map(|line| line.strip_prefix("ironmesh_xds_sets_total "));
        sets.unwrap().parse::<u64>().unwrap()
    };
    let before = sets().await;
    for port in 2..=9 {
        let revision = mesh.readyz().await["policy"]["revision"].clone();
        mesh.write_policy("till.toml", &till(port));
        eventually("the policy to be read", async || {
            let now = mesh.readyz().await["policy"]["revision"].clone();
            if now == revision { Err(now) } else { Ok(()) }
        })
        .await;
    }
    eventually("the last edit to be active", async || {
        let dump = envoy.config_dump().await.to_string();
        if dump.contains("default/till|9") { Ok(()) } else { Err(dump) }
    })
    .await;
    // One at the beginning of the burst, one at its end, and one for a timer that ends in between.
    let sets = sets().await - before;
    assert!(sets <= 3, "8 changes gave {sets} sets");
}
