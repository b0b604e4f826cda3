//! A control plane that follows policy in etcd.

use ironmesh_tests::Etcd;

use crate::documents::service;
use crate::workspace::Workspace;

#[tokio::test]
async fn running_control_plane_applies_a_push() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    let mut serve = workspace.serve().await;
    let readyz = workspace.readyz().await;
    assert_eq!(readyz["ready"], false);
    let waiting = readyz["waiting_for"][0].as_str().unwrap();
    assert!(waiting.contains("nothing has been pushed to `/ironmesh/default/policy`"), "{waiting}");

    workspace.write("policy/a.toml", &service("a"));
    let first = workspace.push("policy").await;
    workspace.wait_until_active(&first).await;
    workspace.write("policy/b.toml", &service("b"));
    let run = workspace.policy(&["push", "policy", "--message", "b too", "--expect", &first]).await;
    let pushed = run.assert_success().stdout;
    let readyz = workspace
        .wait_for_readyz("the second", |readyz| readyz["policy"]["revision"] != first)
        .await;
    let active = &readyz["policy"]["active"];
    assert!(pushed.contains(active["revision"].as_str().unwrap()), "{pushed}");
    assert_eq!(active["message"], "b too");
    assert!(active["by"].as_str().unwrap().starts_with("anna@"), "{readyz:#}");

    workspace.policy(&["rollback", &first]).await.assert_success();
    let readyz = workspace.wait_until_active(&first).await;
    let message = format!("rollback to {first}");
    assert_eq!(readyz["policy"]["active"]["message"], message);
    // What a second push would write exists already.
    workspace.policy(&["rollback", &first]).await.assert_success();
    assert!(serve.terminate().await.success());
}

#[tokio::test]
async fn manual_etcd_edit_is_reported_and_the_last_good_stays_active() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("policy/a.toml", &service("a"));
    let good = workspace.push("policy").await;
    let mut serve = workspace.serve().await;
    workspace.wait_until_active(&good).await;
    let current = "/ironmesh/default/policy/current";
    let manifest = etcd.ctl(&["get", "--print-value-only", current]).await;
    let manifest = manifest.trim();
    let chunk = etcd.keys("/ironmesh/default/policy/revisions/").await.remove(0);
    let content = etcd.ctl(&["get", "--print-value-only", &chunk]).await;

    let newer = manifest.replace("\"format\":1", "\"format\":2");
    for (value, expected) in [
        ("garbage", "was not written by a push"),
        ("{\"format\":1}", "was not written by a push"),
        (newer.as_str(), "has format 2, and this version knows 1"),
    ] {
        etcd.ctl(&["put", current, value]).await;
        wait_for_finding(&workspace, &good, expected).await;
        // A pull ignores the foreign keys, too.
        let run = workspace.policy(&["pull", "out"]).await;
        assert!(run.code == 1 && run.stderr.contains(expected), "{run:?}");
    }
    etcd.ctl(&["put", &chunk, "something else"]).await;
    etcd.ctl(&["put", current, manifest]).await;
    wait_for_finding(&workspace, &good, "do not have the content that was pushed").await;
    // There is no folder for `policy check`.
    let status = workspace.status().await;
    assert!(status.code == 1 && status.stdout.contains("is rejected since "), "{status:?}");
    assert!(status.stdout.contains("`ironmesh policy push`"), "{status:?}");
    assert!(!status.stdout.contains("policy check"), "{status:?}");
    etcd.ctl(&["del", &chunk]).await;
    etcd.ctl(&["put", current, manifest]).await;
    wait_for_finding(&workspace, &good, "lacks the chunk 0").await;
    etcd.ctl(&["put", &chunk, content.trim_end_matches('\n')]).await;
    etcd.ctl(&["put", current, manifest]).await;
    workspace.wait_until_active(&good).await;

    // A missing policy is not an empty policy.
    etcd.ctl(&["del", "--prefix", "/ironmesh/"]).await;
    let readyz = workspace
        .wait_for_readyz("that nothing is there", |readyz| {
            readyz["policy"]["rendered"].as_str().unwrap().contains("nothing has been pushed")
        })
        .await;
    assert_eq!(
        (&readyz["ready"], &readyz["policy"]["revision"]),
        (&true.into(), &good.as_str().into())
    );
    // A push repairs everything.
    etcd.ctl(&["put", current, "garbage"]).await;
    workspace.write("policy/a.toml", &service("b"));
    let next = workspace.push("policy").await;
    workspace.wait_until_active(&next).await;
    assert!(serve.terminate().await.success());
}

/// Waits for the finding, while this revision stays active.
async fn wait_for_finding(workspace: &Workspace, good: &str, expected: &str) {
    let readyz = workspace
        .wait_for_readyz(expected, |readyz| {
            let finding = &readyz["policy"]["findings"][0];
            finding["message"].as_str().is_some_and(|message| message.contains(expected))
        })
        .await;
    let policy = &readyz["policy"];
    assert_eq!(policy["findings"][0]["code"], "IM0109");
    assert_eq!((&readyz["ready"], &policy["revision"]), (&true.into(), &good.into()), "{readyz:#}");
    assert!(!policy["stale_since"].is_null());
}

#[tokio::test]
async fn start_without_etcd_uses_the_last_good_policy() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("policy/a.toml", &service("a"));
    let good = workspace.push("policy").await;
    let mut serve = workspace.serve().await;
    workspace.wait_until_active(&good).await;
    assert!(serve.terminate().await.success());

    etcd.kill(0).await;
    let mut serve = workspace.serve().await;
    let readyz = workspace.wait_for_readyz("readiness", |readyz| readyz["ready"] == true).await;
    let policy = &readyz["policy"];
    assert_eq!(policy["revision"], good);
    assert!(!policy["stale_since"].is_null(), "{readyz:#}");
    assert!(policy["rendered"].as_str().unwrap().contains("cannot be used"), "{readyz:#}");
    assert!(policy["active"]["by"].as_str().unwrap().starts_with("anna@"), "{readyz:#}");
    let run = workspace.policy(&["push", "policy"]).await;
    assert!(run.code == 1 && run.stderr.contains("Connection refused"), "{run:?}");

    etcd.start_member(0);
    workspace.wait_until_active(&good).await;
    workspace.write("policy/a.toml", &service("b"));
    let next = workspace.push("policy").await;
    workspace.wait_until_active(&next).await;
    assert!(serve.terminate().await.success());
}

#[tokio::test]
async fn start_without_etcd_or_saved_policy_waits_and_reports_why() {
    let Some(mut etcd) = Etcd::stopped() else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    let mut serve = workspace.serve().await;
    let readyz = workspace
        .wait_for_readyz("a reason", |readyz| {
            readyz["waiting_for"][0].as_str().is_some_and(|why| why.contains("cannot be used"))
        })
        .await;
    assert_eq!(readyz["ready"], false);
    let waiting = readyz["waiting_for"][0].as_str().unwrap();
    for part in
        ["a policy without errors in", "/ironmesh/default/policy in etcd", &etcd.endpoint(0)]
    {
        assert!(waiting.contains(part), "{waiting}");
    }
    etcd.start_member(0);
    etcd.ready().await;
    workspace.write("policy/a.toml", &service("a"));
    let first = workspace.push("policy").await;
    workspace.wait_until_active(&first).await;
    assert!(serve.terminate().await.success());
}

#[tokio::test]
async fn compacted_pushes_are_read_again_after_a_lost_watch() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("policy/a.toml", &service("a"));
    let first = workspace.push("policy").await;
    let mut serve = workspace.serve().await;
    workspace.wait_until_active(&first).await;

    serve.signal(rustix::process::Signal::STOP);
    // Its watch is lost with its member.
    etcd.kill(0).await;
    etcd.start_member(0);
    etcd.ready().await;
    for name in ["b", "c"] {
        workspace.write("policy/a.toml", &service(name));
        workspace.push("policy").await;
    }
    let status = etcd.ctl(&["endpoint", "status", "--write-out=json"]).await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    etcd.ctl(&["compact", &revision]).await;
    serve.signal(rustix::process::Signal::CONT);
    let list = workspace.policy(&["revisions", "--output", "json"]).await.assert_success().json();
    let last = list["revisions"][0]["revision"].as_str().unwrap();
    assert_ne!(last, first);
    workspace.wait_until_active(last).await;
    // The watch goes on.
    workspace.write("policy/a.toml", &service("d"));
    let next = workspace.push("policy").await;
    workspace.wait_until_active(&next).await;
    assert!(serve.terminate().await.success());
}

/// The etcd revision of the pointer, and etcd's current revision.
async fn revisions(etcd: &Etcd) -> (i64, i64) {
    let current = "/ironmesh/default/policy/current";
    let got = etcd.ctl(&["get", "--keys-only", "--write-out=json", current]).await;
    let got: serde_json::Value = serde_json::from_str(&got).unwrap();
    let number = |value: &serde_json::Value| value.as_i64().unwrap();
    (number(&got["kvs"][0]["mod_revision"]), number(&got["header"]["revision"]))
}

#[tokio::test]
async fn push_after_an_etcd_restore_is_applied() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("policy/a.toml", &service("a"));
    workspace.push("policy").await;
    let backup = etcd.file("backup");
    etcd.ctl(&["snapshot", "save", &backup.display().to_string()]).await;
    // Advances etcd's revision, so that it can reach the same number again after the restore.
    for _ in 0..10 {
        etcd.ctl(&["put", "/filler", ""]).await;
    }
    workspace.write("policy/a.toml", &service("b"));
    let lost = workspace.push("policy").await;
    let (written, _) = revisions(&etcd).await;
    let mut serve = workspace.serve().await;
    workspace.wait_until_active(&lost).await;

    serve.signal(rustix::process::Signal::STOP);
    etcd.kill(0).await;
    etcd.restore(0, &backup).await;
    etcd.start_member(0);
    etcd.ready().await;
    // A push writes its chunk and moves the pointer.
    while revisions(&etcd).await.1 < written - 2 {
        etcd.ctl(&["put", "/filler", ""]).await;
    }
    workspace.write("policy/a.toml", &service("c"));
    let next = workspace.push("policy").await;
    assert_eq!(revisions(&etcd).await.0, written, "by its revision alone it is what was there");
    serve.signal(rustix::process::Signal::CONT);
    workspace.wait_until_active(&next).await;
    assert!(serve.terminate().await.success());
}
